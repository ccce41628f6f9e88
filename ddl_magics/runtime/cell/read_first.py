"""The names that a cell reads before it assigns them: `x = x / 255` means the notebook's `x`, as in any cell."""

from __future__ import annotations

import ast
from typing import Iterator

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def find(tree: ast.Module) -> dict[str, int]:
    """{name: line} of what the statements read before one of them assigns it.

    The bodies of functions are left out: they run later. What one branch of an `if` assigns counts as assigned.
    """
    read_lines: dict[str, int] = {}
    _run(tree.body, set(), read_lines)
    return read_lines


def _run(statements: list[ast.stmt], bound: set[str], read_lines: dict[str, int]) -> None:
    for statement in statements:
        for node in _in_order(statement):
            if isinstance(node, ast.Name) and node.id not in bound:
                if not isinstance(node.ctx, ast.Store):  # `del x`, too, means the notebook's
                    read_lines.setdefault(node.id, node.lineno)
                else:
                    bound.add(node.id)
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                bound.add(node.name)
            elif isinstance(node, ast.alias):
                bound.add((node.asname or node.name).partition(".")[0])
            elif isinstance(node, ast.ExceptHandler) and node.name:
                bound.add(node.name)


def _in_order(node: ast.AST) -> Iterator[ast.AST]:
    """The node and what is in it, about in the order of evaluation; without the bodies of functions and classes."""
    if isinstance(node, _FUNCTIONS):
        outer = [*node.args.defaults, *filter(None, node.args.kw_defaults), *getattr(node, "decorator_list", [])]
        children: list[ast.AST] = list(outer)
    elif isinstance(node, ast.ClassDef):
        children = [*node.bases, *node.keywords, *node.decorator_list]
    elif isinstance(node, _COMPREHENSIONS):
        yield from _in_order(node.generators[0].iter)  # the rest has a scope of its own
        return
    elif isinstance(node, ast.AugAssign):
        if isinstance(node.target, ast.Name):
            yield ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target)
        children = [node.value, node.target]
    elif isinstance(node, (ast.Assign, ast.AnnAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        children = [*([node.value] if node.value else []), *targets]
    elif isinstance(node, (ast.For, ast.AsyncFor)):
        children = [node.iter, node.target, *node.body, *node.orelse]
    else:
        children = list(ast.iter_child_nodes(node))
    for child in children:
        yield from _in_order(child)
    yield node
