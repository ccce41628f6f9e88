"""Imports of a cell that fail on workers of this machine, because they have this kernel's Python."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Iterator
from importlib.util import find_spec

#: Where a cell mentions one of these, it may bring its modules itself.
_BRINGING = ("sys.path", "sys.modules", "site.addsitedir", "pip", "invalidate_caches")


def problem(source: str) -> str | None:
    """Why the first import at the top level of the cell that finds nothing would fail, in one line, or None."""
    if any(words in source for words in _BRINGING):
        return None
    importlib.invalidate_caches()  # installed since
    for name, line in _imported(ast.parse(source)):
        if not _is_there(name):
            return (
                f"line {line}: there is no module {name} in this kernel's Python, which is the workers' too: "
                f"%pip install the package that has it, or put {name}.py beside the notebook."
            )
    return None


def _imported(tree: ast.Module) -> Iterator[tuple[str, int]]:
    for statement in tree.body:
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                yield alias.name.partition(".")[0], statement.lineno
        elif isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
            yield statement.module.partition(".")[0], statement.lineno


def _is_there(name: str) -> bool:
    try:
        return name in sys.modules or find_spec(name) is not None
    except (ImportError, ValueError):  # a finder's own, which says nothing of the module
        return True
