"""The names that a cell assigns, read from its source."""

from __future__ import annotations

import ast
import symtable

#: IPython's names for its last outputs, and what loops call a variable that nobody reads.
UNREAD = frozenset(("_", "__", "___"))
#: Methods that change an array of NumPy.
_ARRAY_METHODS = frozenset(("sort", "fill", "resize", "partition", "itemset", "put", "setflags", "setfield"))


def assigned(source: str) -> frozenset[str]:
    """The global names that the cell assigns or deletes; without functions, classes and modules.

    Raises SyntaxError.
    """
    names: set[str] = set()
    table = symtable.symtable(source, "<cell>", "exec")
    scopes = [table]
    while scopes:
        scope = scopes.pop()
        for symbol in scope.get_symbols():
            is_global = scope is table or symbol.is_declared_global()
            if is_global and symbol.is_assigned() and not symbol.is_namespace() and not symbol.is_imported():
                names.add(symbol.get_name())
        scopes += scope.get_children()
    return frozenset(names - UNREAD)


def written(source: str) -> frozenset[str]:
    """The names of arrays of which the cell's text says that it changes them: `x[0] = 1`, `x += 1`, `x.sort()`."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        target: ast.AST | None = None
        if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            target = node.value
        elif isinstance(node, ast.AugAssign):
            target = node.target
        elif (isinstance(node, ast.Attribute) and node.attr in _ARRAY_METHODS) or (
            isinstance(node, ast.keyword) and node.arg == "out"
        ):
            target = node.value
        while isinstance(target, (ast.Subscript, ast.Attribute)):
            target = target.value
        if isinstance(target, ast.Name):
            names.add(target.id)
    return frozenset(names)
