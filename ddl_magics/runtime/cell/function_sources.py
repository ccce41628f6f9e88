"""The source of functions that travel: AutoGraph reads it on a rank, as in the notebook, and so do tracebacks.

TensorFlow makes `tf.cond` of an `if` in a function of another cell, but only where it finds the function's lines.
"""

from __future__ import annotations

import ast
import linecache
from typing import Iterable, Mapping

#: Values that take more are data, and are not searched for names of files.
MOST_BYTES = 1 << 20

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def of(pickled: Iterable[bytes]) -> dict[str, str]:
    """{file name: its definitions} of the notebook's cells whose functions are among the values of up to MOST_BYTES.

    A cell is known to `linecache` alone, and its name is in what pickle makes of a function. Lines outside functions
    and classes are left empty: they may hold what is nobody's business elsewhere.
    """
    small = b"\0".join(pickled)
    found = {}
    for name, entry in list(linecache.cache.items()):
        if len(entry) == 4 and entry[1] is None and name.encode("utf-8", "replace") in small:
            found[name] = _definitions(entry[2])
    return found


def _definitions(lines: Iterable[str]) -> str:
    """The text of a cell in which all lines but those of functions and classes are empty."""
    lines = [line.rstrip("\n") for line in lines]
    try:
        tree = ast.parse("\n".join(lines))
    except SyntaxError:
        return ""
    kept: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, _DEFINITIONS):
            first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])
            kept.update(range(first - 1, node.end_lineno or node.lineno))
    return "\n".join(line if number in kept else "" for number, line in enumerate(lines)) + "\n"


def remember(sources: Mapping[str, str]) -> None:
    """On a rank: have `inspect` and tracebacks find these texts, by the names of their files."""
    for name, text in sources.items():
        linecache.cache[name] = (len(text), None, text.splitlines(True), name)
