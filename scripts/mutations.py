"""Small defects that can be planted in a file: what scripts/mutants.py chooses from.

A mutant is one change of one place: a bound that is off by one, a condition that is negated, a call that is left out.
A good suite of tests notices nearly all. Left alone are texts, annotations, and constants of a module with a unit in
their names, which are there to be tuned.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

_BOUNDS: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
_OPPOSITES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}

#: Constants of a module with such names are there to be tuned.
_TUNED = re.compile(r"_(SECONDS|BYTES|MB|GB|MILLISECONDS|MINUTES|DAYS|HOURS)\b")

#: Calls that do nothing which a test could see.
_IDLE = {"assert_never"}


@dataclass(frozen=True)
class Mutant:
    """A change of a file.

    Attributes:
        file: its path from the repository's root.
        function: the function or class around the place, with those around it; "" at the top of the file.
        before, after: the code that is replaced, and what replaces it.
        number: how many equal changes stand above it in the function.
        start, end: the place, as offsets in the file's bytes.
    """

    file: str
    function: str
    kind: str
    before: str
    after: str
    number: int
    start: int
    end: int

    @property
    def key(self) -> str:
        """Names it as long as its code stays, wherever that moves inside of its function."""
        number = f" #{self.number}" if self.number else ""
        return f"{self.file} {self.function}: {_line(self.before)} -> {self.after}{number}"

    def applied(self, source: bytes) -> bytes:
        return source[: self.start] + self.after.encode() + source[self.end :]

    def line(self, source: bytes) -> int:
        return source.count(b"\n", 0, self.start) + 1


def mutants(file: str, source: bytes) -> list[Mutant]:
    """All of a file, in the order of their places."""
    return _Finder(file, source).found


def _line(text: str) -> str:
    return re.sub(r"\s+", " ", text)


class _Finder:
    def __init__(self, file: str, source: bytes) -> None:
        self._file, self._source = file, source
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._seen: Counter[tuple[str, str, str]] = Counter()
        self.found: list[Mutant] = []
        self._visit(ast.parse(source), "")

    def _visit(self, node: ast.AST, function: str) -> None:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            function = f"{function}.{node.name}" if function else node.name
        for kind, after in _changes(node):
            self._add(node, function, kind, after)
        if isinstance(node, (ast.If, ast.IfExp, ast.While)) and _is_changed_here(node.test):
            self._add(node.test, function, "condition", f"(not {ast.unparse(node.test)})")
        for child in _inner(node, function):
            self._visit(child, function)

    def _add(self, node: ast.AST, function: str, kind: str, after: str) -> None:
        start, end = self._place(node)
        before = self._source[start:end].decode()
        # The same text twice in a function is told apart by its number.
        same = (function, before, after)
        self.found.append(Mutant(self._file, function, kind, before, after, self._seen[same], start, end))
        self._seen[same] += 1

    def _place(self, node: ast.AST) -> tuple[int, int]:
        assert isinstance(node, (ast.expr, ast.stmt)) and node.end_lineno and node.end_col_offset is not None
        return (
            self._starts[node.lineno - 1] + node.col_offset,
            self._starts[node.end_lineno - 1] + node.end_col_offset,
        )


def _inner(node: ast.AST, function: str) -> Iterator[ast.AST]:
    """The nodes inside of a node that may be changed."""
    if isinstance(node, ast.JoinedStr):
        return  # texts for people; and Python 3.11 does not know the places inside
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        yield from node.orelse
        return
    if isinstance(node, (ast.Assign, ast.AnnAssign)) and not function and _TUNED.search(_targets(node)):
        return
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "bases"):
            continue
        children = value if isinstance(value, list) else [value]
        yield from (child for child in children if isinstance(child, ast.AST))


def _is_changed_here(condition: ast.expr) -> bool:
    """Others are changed as what they are."""
    others = (ast.Compare, ast.BoolOp, ast.UnaryOp, ast.Constant)
    return not isinstance(condition, others) and ast.unparse(condition) != "TYPE_CHECKING"


def _targets(node: ast.Assign | ast.AnnAssign) -> str:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return " ".join(ast.unparse(target) for target in targets)


def _changes(node: ast.AST) -> Iterator[tuple[str, str]]:
    """(kind, the node's code after the change) of each change of the node itself."""
    if isinstance(node, ast.stmt):
        yield from _of_statement(node)
    elif isinstance(node, ast.expr):
        yield from ((kind, f"({ast.unparse(after)})") for kind, after in _of_expression(node))


def _of_statement(node: ast.stmt) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.Expr) and isinstance(node.value, (ast.Call, ast.Await)):
        if not (isinstance(node.value, ast.Call) and ast.unparse(node.value.func) in _IDLE):
            yield "removed call", "pass"
    elif isinstance(node, (ast.Raise, ast.Continue, ast.Break, ast.Delete)) or _changes_objects(node):
        yield "removed statement", "pass"
    elif isinstance(node, ast.AugAssign):
        if type(node.op) in _ARITHMETIC and not _is_text(node.value):
            op = _ARITHMETIC[type(node.op)]()
            yield "arithmetic", ast.unparse(ast.AugAssign(node.target, op, node.value))
    elif isinstance(node, ast.Return):
        if node.value is None:
            yield "removed statement", "pass"
        elif not (isinstance(node.value, ast.Constant) and node.value.value is None):
            yield "return", "return None"


def _changes_objects(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and all(isinstance(to, (ast.Attribute, ast.Subscript)) for to in node.targets)


def _of_expression(node: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        for kind, others in (("bound", _BOUNDS), ("comparison", _OPPOSITES)):
            if type(node.ops[0]) in others:
                yield kind, ast.Compare(node.left, [others[type(node.ops[0])]()], node.comparators)
    elif isinstance(node, ast.Compare):
        for index, op in enumerate(node.ops):
            if type(op) in _BOUNDS:
                ops = [*node.ops[:index], _BOUNDS[type(op)](), *node.ops[index + 1 :]]
                yield "bound", ast.Compare(node.left, ops, node.comparators)
    elif isinstance(node, ast.BinOp):
        if type(node.op) in _ARITHMETIC and not (_is_text(node.left) or _is_text(node.right)):
            yield "arithmetic", ast.BinOp(node.left, _ARITHMETIC[type(node.op)](), node.right)
    elif isinstance(node, ast.BoolOp):
        yield "and, or", ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
        yield from (("condition", value) for value in node.values)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
        if not isinstance(node.operand, ast.Constant):
            yield ("condition" if isinstance(node.op, ast.Not) else "sign"), node.operand
    elif isinstance(node, ast.Constant):
        yield from (("constant", ast.Constant(value)) for value in _others(node.value))
    elif isinstance(node, ast.Call):
        yield from (("arguments", call) for call in _swapped(node))


def _is_text(node: ast.expr) -> bool:
    """Also a list or tuple: to subtract one is an error wherever it happens."""
    texts = (ast.JoinedStr, ast.List, ast.Tuple, ast.ListComp)
    return isinstance(node, texts) or (isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)))


def _others(value: object) -> list[float]:
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value - 1] if value > 1 else [value + 1] if value == 0 else [0, 2]
    return [value + 1.0] if isinstance(value, float) else []


def _swapped(call: ast.Call) -> Iterator[ast.Call]:
    """The call with two neighbours among its arguments swapped, where both are names or attributes."""
    if ast.unparse(call.func) in ("isinstance", "issubclass", "cast"):
        return
    for index, pair in enumerate(itertools.pairwise(call.args)):
        if all(isinstance(argument, (ast.Name, ast.Attribute)) for argument in pair):
            args = [*call.args[:index], pair[1], pair[0], *call.args[index + 2 :]]
            yield ast.Call(call.func, args, call.keywords)
