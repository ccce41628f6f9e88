"""`ddl.suggest_float`, `suggest_int` and `suggest_categorical`: the values that a run gives to a cell's parameters.

Names and signatures are those of Optuna's `Trial`, with `default=` added. Nothing is sampled here: a value comes from
`--set NAME=VALUE`, from the search whose trial the run is, or is the default. Values travel as text, in the notation of
`--set`.
"""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass
from typing import Any, Mapping, Sequence, TypeVar, Union

#: What a choice may be: what Optuna stores.
Choice = Union[None, bool, int, float, str]


class _NoDefault:
    def __repr__(self) -> str:
        return "NO_DEFAULT"


#: The default of a parameter that has none; None is a value that a choice may have.
NO_DEFAULT: Any = _NoDefault()

FUNCTIONS = ("suggest_float", "suggest_int", "suggest_categorical")

#: Relative to a step: how far rounding may take a value from the grid of steps.
_GRID_TOLERANCE = 1e-6


class BadSuggestion(ValueError):
    """A parameter, or a value for it, is not valid: one line that names the parameter and says what to write."""


@dataclass(frozen=True)
class FloatRange:
    """A number from `low` to `high`, both included; on a grid from `low` on if `step` is given."""

    name: str
    low: float
    high: float
    step: float | None = None
    log: bool = False
    default: Any = NO_DEFAULT

    def read(self, text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise BadSuggestion("%s must be a number, not %s" % (self.name, _cut(repr(text)))) from None
        return self.checked(value)

    def checked(self, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise BadSuggestion("%s must be a number, not %r" % (self.name, value))
        if not self.low <= value <= self.high:
            raise BadSuggestion(_out_of_range(self, value))
        if self.step is not None:
            steps = (value - self.low) / self.step
            if abs(steps - round(steps)) > _GRID_TOLERANCE * max(1.0, abs(steps)):
                raise BadSuggestion(_off_grid(self, value, self.low + self.step))
        return float(value)


@dataclass(frozen=True)
class IntRange:
    """A whole number from `low` to `high`, both included, in steps of `step` from `low` on."""

    name: str
    low: int
    high: int
    step: int = 1
    log: bool = False
    default: Any = NO_DEFAULT

    def read(self, text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise BadSuggestion("%s must be a whole number, not %s" % (self.name, _cut(repr(text)))) from None
        return self.checked(value)

    def checked(self, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise BadSuggestion("%s must be a whole number, not %r" % (self.name, value))
        if not self.low <= value <= self.high:
            raise BadSuggestion(_out_of_range(self, value))
        if (value - self.low) % self.step:
            raise BadSuggestion(_off_grid(self, value, self.low + self.step))
        return value


@dataclass(frozen=True)
class Choices:
    """One of `choices`, whose texts differ."""

    name: str
    choices: tuple[Choice, ...]
    default: Any = NO_DEFAULT

    def read(self, text: str) -> Choice:
        for choice in self.choices:
            if str(choice) == text:
                return choice
        raise BadSuggestion(self._not_one_of_them(text))

    def checked(self, value: Any) -> Choice:
        for choice in self.choices:
            if value is choice or (type(value) is type(choice) and value == choice):
                return choice
        raise BadSuggestion(self._not_one_of_them(value))

    def _not_one_of_them(self, value: Any) -> str:
        texts = [str(choice) for choice in self.choices]
        text = value if isinstance(value, str) and value.isprintable() else repr(value)
        matches = difflib.get_close_matches(_cut(text), texts, 1)
        hint = "; did you mean %s?" % matches[0] if matches else ""
        return "%s=%s is none of its choices: %s%s" % (self.name, _cut(text), ", ".join(texts), hint)


Parameter = Union[FloatRange, IntRange, Choices]

#: Characters of a value that a message shows.
_MOST_SHOWN = 80


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_SHOWN else text[: _MOST_SHOWN - 3] + "..."


def _out_of_range(parameter: FloatRange | IntRange, value: float) -> str:
    low, high = parameter.low, parameter.high
    return "%s=%s is out of range: it is from %r to %r" % (parameter.name, _cut(repr(value)), low, high)


def _off_grid(parameter: FloatRange | IntRange, value: float, second: float) -> str:
    return "%s=%r is not on its grid: %r, %r and so on" % (parameter.name, value, parameter.low, second)


def suggest_float(
    name: str, low: float, high: float, *, step: float | None = None, log: bool = False, default: Any = NO_DEFAULT
) -> FloatRange:
    """The parameter that a call of `ddl.suggest_float` declares. BadSuggestion where the call makes no sense."""
    _check_name(name)
    for bound in (low, high, *([] if step is None else [step])):
        if isinstance(bound, bool) or not isinstance(bound, (int, float)) or not math.isfinite(bound):
            raise BadSuggestion("%s: low, high and step of suggest_float must be numbers, not %r" % (name, bound))
    _check_range(name, low, high, step, log, smallest=0.0)
    return _with_checked_default(FloatRange(name, float(low), float(high), step, log, default))


def suggest_int(
    name: str, low: int, high: int, *, step: int = 1, log: bool = False, default: Any = NO_DEFAULT
) -> IntRange:
    """The parameter that a call of `ddl.suggest_int` declares. BadSuggestion where the call makes no sense."""
    _check_name(name)
    for bound in (low, high, step):
        if isinstance(bound, bool) or not isinstance(bound, int):
            raise BadSuggestion("%s: low, high and step of suggest_int must be whole numbers, not %r" % (name, bound))
    _check_range(name, low, high, None if step == 1 else step, log, smallest=1)
    return _with_checked_default(IntRange(name, low, high, step, log, default))


def suggest_categorical(name: str, choices: Sequence[Choice], *, default: Any = NO_DEFAULT) -> Choices:
    """The parameter that a call of `ddl.suggest_categorical` declares. BadSuggestion where the call makes no sense."""
    _check_name(name)
    if isinstance(choices, str) or not isinstance(choices, (list, tuple)) or not choices:
        raise BadSuggestion("%s: the choices must be a list such as ['relu', 'gelu'], not %r" % (name, choices))
    for choice in choices:
        if choice is not None and not isinstance(choice, (bool, int, float, str)):
            raise BadSuggestion(
                "%s: a choice must be text, a number, True, False or None, and %r is a %s: choose between names, and "
                "look the object up by its name" % (name, choice, type(choice).__name__)
            )
    texts = [str(choice) for choice in choices]
    twice = next((text for text in texts if texts.count(text) > 1), None)
    if twice is not None:
        raise BadSuggestion("%s: two of its choices read %s: write each once" % (name, twice))
    return _with_checked_default(Choices(name, tuple(choices), default))


#: Makes the parameter of a call from its arguments.
DECLARE = {
    "suggest_float": suggest_float,
    "suggest_int": suggest_int,
    "suggest_categorical": suggest_categorical,
}


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not name.strip() or name != name.strip() or "=" in name or not name.isprintable():
        raise BadSuggestion("the name of a parameter must be a word without an equals sign, not %s" % _cut(repr(name)))


def _check_range(name: str, low: float, high: float, step: float | None, log: bool, smallest: float) -> None:
    if low > high:
        raise BadSuggestion("%s: low must not be above high, and %r is above %r" % (name, low, high))
    if step is not None and step <= 0:
        raise BadSuggestion("%s: step must be above 0, not %r" % (name, step))
    if log and step is not None:
        raise BadSuggestion("%s: log=True has no step: leave one of them out" % name)
    if log and (low < smallest or low <= 0):
        raise BadSuggestion("%s: log=True needs a low above 0, not %r" % (name, low))


_P = TypeVar("_P", FloatRange, IntRange, Choices)


def _with_checked_default(parameter: _P) -> _P:
    if parameter.default is not NO_DEFAULT:
        try:
            parameter.checked(parameter.default)
        except BadSuggestion as error:
            raise BadSuggestion("the default of %s" % error) from None
    return parameter


class Suggestions:
    """The values of one run, by name; the cell asks for them through `ddl`.

    values: as text. searched: the run is a trial, whose search has read the parameters in the cell's source.
    """

    def __init__(self, values: Mapping[str, str], searched: bool) -> None:
        self._values, self._searched = values, searched
        self._parameters: dict[str, Parameter] = {}

    def value(self, parameter: Parameter) -> Any:
        """The parameter's value. BadSuggestion where there is none, or where it is out of range."""
        name = parameter.name
        before = self._parameters.setdefault(name, parameter)
        if before != parameter:
            raise BadSuggestion("%s is suggested twice, with different ranges: give each its own name" % name)
        if name in self._values:
            return parameter.read(self._values[name])
        if self._searched:
            raise BadSuggestion(
                "the search has no value for %s: a search finds the calls of ddl.suggest_... that stand in the cell "
                "itself, with the name in quotes" % name
            )
        if parameter.default is NO_DEFAULT:
            raise BadSuggestion(missing(name))
        return parameter.checked(parameter.default)

    def unused(self) -> list[str]:
        """The names of --set that the cell has not asked for; none in a trial, which may not take every branch."""
        return [] if self._searched else [name for name in self._values if name not in self._parameters]


def missing(name: str) -> str:
    """What to do about a parameter without a value."""
    text = "%s has no value: write --set %s=VALUE, or give the call a default=, or search for it with --trials"
    return text % (name, name)
