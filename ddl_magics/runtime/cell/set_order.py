"""Sets of texts that a cell of the notebook has made: each process iterates them in an order of its own."""

from __future__ import annotations

import ast
from typing import Any, Iterator, List, Mapping

#: What these functions return depends on no order.
_UNORDERED = ("all", "any", "frozenset", "isinstance", "len", "max", "min", "set", "sorted")


def iterated(source: str, namespace: Mapping[str, Any]) -> List[str]:
    """The names of sets of texts in `namespace` that the cell uses by their order, as `for` and `list` do."""
    sets = {name for name, value in namespace.items() if _has_own_order(value)}
    if not sets:
        return []
    tree = ast.parse(source)
    unordered = {id(operand) for node in ast.walk(tree) for operand in _unordered(node)}
    names = (node for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load))
    return sorted({name.id for name in names if name.id in sets and id(name) not in unordered})


def _has_own_order(value: Any) -> bool:
    """Whether the seed of this process' hashes decides on the order."""
    return isinstance(value, (set, frozenset)) and len(value) > 1 and any(isinstance(v, (str, bytes)) for v in value)


def _unordered(node: ast.AST) -> Iterator[ast.AST]:
    """The operands of a node whose order does not matter to it."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _UNORDERED:
        yield from node.args
    elif isinstance(node, ast.Compare):
        yield from (node.left, *node.comparators)
    elif isinstance(node, ast.BinOp):
        yield from (node.left, node.right)
    elif isinstance(node, ast.Attribute):
        yield node.value
