"""The parameters of a cell, read from its source: the calls of `ddl.suggest_float` and its siblings.

The space is known before any trial runs, and the values travel with the trial. A trial therefore never waits for an
answer of the notebook, which could not come while a Livy session executes the cell, nor after the kernel is gone. The
price: names and ranges must be written out, and a call in a branch is sampled even if the branch is not taken.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from IPython.core.error import UsageError

from ddl_magics.options.redaction import as_word
from ddl_magics.runtime.cell.suggestions import (
    DECLARE,
    FUNCTIONS,
    NO_DEFAULT,
    BadSuggestion,
    FloatRange,
    IntRange,
    Parameter,
    missing,
)
from ddl_magics.wording import first_line, nearest

#: The largest grid that is written out.
MAX_GRID = 100_000

_BINARY: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}
#: Largest operands of a power, so that it is computed at once.
_MAX_BASE, _MAX_EXPONENT = 1e4, 64


@dataclass(frozen=True)
class Call:
    """A call in the cell: its line, and its parameter, or why the source does not determine it."""

    line: int
    parameter: Parameter | None
    problem: str = ""


def calls(source: str) -> list[Call]:
    """The calls of `ddl.suggest_...` in the order of their lines.

    Raises:
        UsageError: a call makes no sense, such as a low above its high.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # of an imported search
        raise UsageError(f"the cell cannot be read: {as_word(first_line(error))}.") from None
    calls_by_function = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    suggestions = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "ddl":
            if node.attr in FUNCTIONS:
                suggestions.append(_read(node.attr, node.lineno, calls_by_function.get(id(node))))
            elif node.attr.startswith("suggest"):
                hint = nearest(node.attr, FUNCTIONS)
                raise UsageError(f"line {node.lineno}: ddl has no {node.attr}; it has {', '.join(FUNCTIONS)}.{hint}")
    return sorted(suggestions, key=lambda call: call.line)


def _read(function: str, line: int, call: ast.Call | None) -> Call:
    if call is None:
        return Call(line, None, f"call ddl.{function} directly")
    if any(keyword.arg is None for keyword in call.keywords):
        return Call(line, None, "write its arguments out, without **")
    try:
        arguments = [_constant(argument) for argument in call.args]
        keywords = {str(keyword.arg): _constant(keyword.value) for keyword in call.keywords}
    except _NotConstant as error:
        return Call(line, None, f"write {error} as a number, text or list of these")
    try:
        parameter: Parameter = DECLARE[function](*arguments, **keywords)  # type: ignore[operator]
    except BadSuggestion as error:
        raise UsageError(f"line {line}: {error}.") from None
    except TypeError as error:
        raise UsageError(f"line {line}: ddl.{error!s}.") from None
    except OverflowError:
        raise UsageError(f"line {line}: a number is too large.") from None
    return Call(line, parameter)


class _NotConstant(Exception):
    """An argument whose value the source does not determine; the message is its source."""


def _constant(node: ast.expr) -> Any:
    """The value of a number, text, list, tuple or arithmetic expression. Raises _NotConstant for others."""
    match node:
        case ast.Constant(value=value) if value is None or isinstance(value, (bool, int, float, str)):
            return value
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return [_constant(element) for element in elements]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_number(operand)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            base, exponent = _number(left), _number(right)
            if abs(base) <= _MAX_BASE and abs(exponent) <= _MAX_EXPONENT and (base or exponent >= 0):
                return base**exponent
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            a, b = _number(left), _number(right)
            if b or not isinstance(op, (ast.Div, ast.FloorDiv)):
                return _BINARY[type(op)](a, b)
    raise _NotConstant(ast.unparse(node))


def _number(node: ast.expr) -> Any:
    value = _constant(node)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _NotConstant(ast.unparse(node))
    return value


def parameters(source: str) -> dict[str, Parameter]:
    """The parameters of a search, by name.

    Raises:
        UsageError: there is none, one cannot be read, or a name is used twice with different ranges.
    """
    space: dict[str, Parameter] = {}
    for call in calls(source):
        if call.parameter is None:
            raise UsageError(f"line {call.line}: a search reads its parameters before the cell runs: {call.problem}.")
        name = call.parameter.name
        if space.setdefault(name, call.parameter) != call.parameter:
            raise UsageError(f"line {call.line}: {name} is suggested twice, with different ranges: rename one of them.")
    if not space:
        raise UsageError(
            '--trials needs something to search for: write lr = ddl.suggest_float("lr", 1e-4, 1e-1, log=True) in the '
            "cell, or suggest_int or suggest_categorical."
        )
    return space


def searched(source: str, fixed: Mapping[str, str]) -> dict[str, Parameter]:
    """The parameters that a search samples: all but those of --set.

    Raises:
        UsageError: as `parameters`; or --set names no parameter, has a bad value, or leaves nothing to search for.
    """
    declared = parameters(source)
    _check_fixed(declared, fixed)
    space = {name: parameter for name, parameter in declared.items() if name not in fixed}
    if not space:
        raise UsageError("--set gives every parameter its value, which leaves --trials nothing to search for.")
    return space


def check_values(source: str, fixed: Mapping[str, str]) -> None:
    """Check the values of an ordinary run, as far as its parameters can be read.

    Raises:
        UsageError: --set names no parameter or has a bad value, or a parameter has neither a value nor a default.
    """
    suggestions = calls(source)
    declared = {call.parameter.name: call.parameter for call in suggestions if call.parameter is not None}
    if all(call.parameter is not None for call in suggestions):
        _check_fixed(declared, fixed)
    for call in suggestions:
        parameter = call.parameter
        if parameter is not None and parameter.default is NO_DEFAULT and parameter.name not in fixed:
            raise UsageError(f"line {call.line}: {missing(parameter.name)}.")


def _check_fixed(declared: Mapping[str, Parameter], fixed: Mapping[str, str]) -> None:
    for name, text in fixed.items():
        if name not in declared:
            hint = nearest(name, declared) or (
                f" It has {', '.join(declared)}."
                if declared
                else f" Write {name} = ddl.suggest_float({name!r}, LOW, HIGH) in it."
            )
            raise UsageError(f"--set {as_word(name)}: the cell has no parameter {as_word(name)}.{hint}")
        try:
            declared[name].read(text)
        except BadSuggestion as error:
            raise UsageError(f"--set {error}.") from None


def grid(space: Mapping[str, Parameter]) -> dict[str, list[Any]]:
    """The values of each parameter on the grid.

    Raises:
        UsageError: a range of floats has no step, or the grid is too large.
    """
    values = {name: list(_points(parameter)) for name, parameter in space.items()}
    if grid_size(values) > MAX_GRID:
        raise UsageError(
            f"--search grid: the grid has {grid_size(values):,} points; give the ranges a larger step=, or use another "
            "--search."
        )
    return values


def grid_size(values: Mapping[str, list[Any]]) -> int:
    """The number of combinations."""
    size = 1
    for points in values.values():
        size *= len(points)
    return size


def _points(parameter: Parameter) -> Iterator[Any]:
    if isinstance(parameter, IntRange):
        if (parameter.high - parameter.low) // parameter.step >= MAX_GRID:
            raise UsageError(f"--search grid: {parameter.name} has too many values; give its call a larger step=.")
        yield from range(parameter.low, parameter.high + 1, parameter.step)
    elif isinstance(parameter, FloatRange):
        if parameter.step is None:
            raise UsageError(
                f"--search grid: {parameter.name} has no step: give its call step=, or use suggest_categorical."
            )
        steps = int((parameter.high - parameter.low) / parameter.step + 1e-9)
        if steps >= MAX_GRID:
            raise UsageError(f"--search grid: {parameter.name} has too many values; give its call a larger step=.")
        # Rounded, so that 0.1 + 2 * 0.1 is 0.3.
        yield from (round(parameter.low + step * parameter.step, 12) for step in range(steps + 1))
    else:
        yield from parameter.choices
