"""The source of functions that travel: AutoGraph reads it on a rank, as in the notebook, and so do tracebacks.

TensorFlow makes `tf.cond` of an `if` in a function of another cell, but only where it finds the function's lines.
"""

from __future__ import annotations

import ast
import linecache
from typing import Collection, Iterable, Mapping

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def of(files: Collection[str]) -> dict[str, str]:
    """{file name: its definitions} of those of the functions' files that are cells of the notebook.

    A cell is known to `linecache` alone. Lines outside functions and classes are left empty: they may hold what is
    nobody's business elsewhere.
    """
    cached = ((name, linecache.cache.get(name)) for name in files)
    return {name: _definitions(entry[2]) for name, entry in cached if entry and len(entry) == 4 and entry[1] is None}


def _definitions(lines: Iterable[str]) -> str:
    """The text of a cell in which all lines but those of functions and classes are empty."""
    lines = [line.rstrip("\n") for line in lines]
    try:
        tree = ast.parse("\n".join(lines))
    except SyntaxError:
        return ""
    line_numbers: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, _DEFINITIONS):
            start = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", ()))])
            line_numbers.update(range(start - 1, node.end_lineno or node.lineno))
    return "\n".join(line if number in line_numbers else "" for number, line in enumerate(lines)) + "\n"


def remember(sources: Mapping[str, str]) -> None:
    """On a rank: have `inspect` and tracebacks find these texts, by the names of their files."""
    for name, text in sources.items():
        linecache.cache[name] = (len(text), None, text.splitlines(True), name)
