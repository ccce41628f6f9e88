"""What a cell can use in a notebook and not on a worker: `get_ipython()`, `input()`, and what else asks a person."""

from __future__ import annotations

import ast
import symtable
from typing import Iterator, NamedTuple

GET_IPYTHON = "get_ipython"

_EXIT = "%s() ends the notebook's kernel: let the cell end, or raise an exception"

#: Functions that a worker cannot call, and why and what to do instead.
_ASKING = {
    "exit": _EXIT % "exit",
    "quit": _EXIT % "quit",
    "input": "input() waits for a person, and a worker has none: ask in a cell of its own, and use the answer's "
    "variable here",
    "breakpoint": "breakpoint() waits for a person, and a worker has none: leave it out, and print what you look for",
}
_IPYTHON = (
    "get_ipython() is the notebook's, and workers have none: move what needs it to a cell of its own, or catch its "
    "NameError"
)
_CATCHES = ("NameError", "Exception", "BaseException")


class Use(NamedTuple):
    """A use of a name of the notebook. line: from 1. reason: a sentence, without its full stop."""

    name: str
    line: int
    reason: str


def find(source: str) -> Use | None:
    """The first use in `source` that would fail on a worker, or None. Raises SyntaxError.

    A name that the source binds itself is its own. `get_ipython` where its NameError is caught is a question whether
    this is a notebook.
    """
    tree = ast.parse(source)
    table = symtable.symtable(source, "<cell>", "exec")
    local_names = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
    uses = [use for use in _uses(tree, False) if use.name not in local_names]
    return min(uses, key=lambda use: use.line, default=None)


def _uses(node: ast.AST, caught: bool) -> Iterator[Use]:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _ASKING:
        yield Use(node.func.id, node.lineno, _ASKING[node.func.id])
    if isinstance(node, ast.Name) and node.id == GET_IPYTHON and not caught:
        yield Use(GET_IPYTHON, node.lineno, _IPYTHON)
    if isinstance(node, ast.Try) and any(map(_catches_name_error, node.handlers)):
        for statement in node.body:
            yield from _uses(statement, True)
        for child in [*node.handlers, *node.orelse, *node.finalbody]:
            yield from _uses(child, caught)
        return
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        signature = node.args
        named = [*getattr(signature, "posonlyargs", []), *signature.args, *signature.kwonlyargs]
        parameters = {argument.arg for argument in named}
        yield from (
            use for child in ast.iter_child_nodes(node) for use in _uses(child, caught) if use.name not in parameters
        )
        return
    for child in ast.iter_child_nodes(node):
        yield from _uses(child, caught)


def _catches_name_error(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    return any(isinstance(node, ast.Name) and node.id in _CATCHES for node in ast.walk(handler.type))
