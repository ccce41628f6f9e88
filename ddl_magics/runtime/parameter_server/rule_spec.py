"""What an update rule consists of: its functions, its settings, and how `NAME:setting=value` is parsed.

The rules themselves, with their formulas, are in update_rules.py.
"""

from __future__ import annotations

import difflib
import math
from typing import TYPE_CHECKING, Callable, Literal, Mapping, NamedTuple, Protocol

if TYPE_CHECKING:
    from .vector import Vector


class UnknownRule(ValueError):
    """There is no such rule or setting: one line with the nearest right one."""


class Setting(NamedTuple):
    """A number above zero that a rule depends on. Where the user gives none, it follows from the job."""

    name: str
    help: str
    #: How `value` comes about, for the documentation.
    default: str
    #: (workers, learning rate or None where none is known) -> the value where the user gives none.
    value: Callable[[int, float | None], float]


#: A setting of every rule. n workers' windows together may move the centre about as far as one window (stability.py),
#: so that n workers at the learning rate of one process get as far as it does in 1/n of the batches. But a mean over n
#: windows has 1/n of the variance: steps sqrt(n) times as long give the variance of one process. Krizhevsky, "One weird
#: trick for parallelizing convolutional neural networks" (arXiv:1404.5997), for SGD; Malladi et al., "On the SDEs and
#: scaling rules for adaptive gradient algorithms", NeurIPS 2022 (arXiv:2205.10287), for Adam and RMSprop.
RATE = Setting("rate", "factor of each worker's learning rate", "sqrt(n)", lambda workers, _: math.sqrt(workers))


class Delta(Protocol):
    """What a worker commits."""

    def __call__(self, local: Vector, base: Vector, window: int) -> Vector:
        """The delta, a new vector, of a worker with the weights `local` after `window` batches since the centre `base`.

        local, base: of one size and dtype, which is the delta's too; neither is changed.
        """


class Merge(Protocol):
    """What a commit makes of the centre."""

    def __call__(self, centre: Vector, delta: Vector, staleness: int, base: Vector | None) -> Vector:
        """The new centre, of the size and dtype of `centre`; `delta` may be overwritten and returned.

        staleness: commits since `base`. base: the centre that the delta was computed against, or None where the rule's
        `history` is 0. `centre` and `base` are not changed.
        """


class Gain(Protocol):
    """How strongly a commit moves the centre, for the prediction of divergence (stability.py)."""

    def __call__(self, progress: float, window: int) -> float:
        """The share of its distance to the optimum that a commit moves the centre by.

        progress: the share of its own distance to the optimum that a worker covers in a window of `window` batches.
        """


class Rule(NamedTuple):
    """An update rule for a number of workers, with its settings: pure functions over vectors. `update_rules.get`."""

    delta: Delta
    merge: Merge
    gain: Gain
    #: Mean number of other workers' commits between a centre and the delta computed against it.
    lag: int
    #: Whether a worker continues from the centre after its commit; else (elastic rules) from its weights less delta.
    adopt: bool = True
    #: Whether a worker pulls the centre right before it computes `delta`, as `base`.
    fresh: bool = False
    #: Whether `local` is the weights without the look-ahead of the optimizer's Nesterov momentum.
    look_ahead: bool = False
    #: How many old centres the server keeps for `merge`. A delta older than all of them is merged against the oldest.
    history: int = 0
    name: str = ""
    settings: Mapping[str, float] = {}
    #: Factor of each worker's learning rate.
    rate: float = 1.0

    def resume(self, local: Vector, delta: Vector, centre: Vector | None) -> Vector:
        """The weights from which a worker continues after it has committed `delta` and received `centre`.

        All of one size and dtype. centre: None is enough where the rule does not adopt it.
        """
        if not self.adopt:
            return local - delta
        assert centre is not None, "a rule that adopts the centre asks for it"
        return centre


class RuleSpec(NamedTuple):
    """A rule as the user asks for it: its name, and the settings that were given. Made by `parse`."""

    name: str
    settings: Mapping[str, float]

    @property
    def text(self) -> str:
        """As --rule takes it."""
        explicit = ",".join("%s=%.17g" % pair for pair in self.settings.items())
        return self.name + (":" + explicit if explicit else "")


class RuleDefinition(NamedTuple):
    """A rule before it is made for a job."""

    name: str
    help: str
    #: The strategy that the rule belongs to: of "allreduce" all ranks exchange at the same time, without a server.
    strategy: Literal["ps", "allreduce"]
    settings: tuple[Setting, ...]
    #: (workers, **settings but `RATE`) -> the rule, without name, settings and rate.
    make: Callable[..., Rule]

    def build(self, explicit: Mapping[str, float], workers: int, rate: float | None) -> Rule:
        """The `Rule` for `workers` workers with the settings `explicit`; the others follow from the job.

        rate: the learning rate of the workers' optimizer, or None where it has none.
        """
        settings = {setting.name: setting.value(workers, rate) for setting in self.settings}
        settings.update(explicit)
        rule_settings = {name: value for name, value in settings.items() if name != RATE.name}
        return self.make(workers, **rule_settings)._replace(name=self.name, settings=settings, rate=settings[RATE.name])


def parse(text: str, rules: Mapping[str, RuleDefinition]) -> RuleSpec:
    """The `RuleSpec` of `NAME` or `NAME:setting=value,...`. Raises `UnknownRule`."""
    name, _, settings_text = text.partition(":")
    if name not in rules:
        raise UnknownRule("no update rule is called %.80r; %s" % (name, _hint(name, list(rules))))
    settings = {}
    for item in filter(None, settings_text.split(",")):
        setting, equals, value = item.partition("=")
        names = [defined.name for defined in rules[name].settings]
        if setting not in names:
            raise UnknownRule("the rule %s has no setting %.80r; %s" % (name, setting, _hint(setting, names)))
        number = _positive(value)
        if not equals or number is None:
            raise UnknownRule("%s of the rule %s must be a number above 0, not %.80r." % (setting, name, value))
        settings[setting] = number
    return RuleSpec(name, settings)


def _positive(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value < math.inf else None


def _hint(name: str, choices: list[str]) -> str:
    matches = difflib.get_close_matches(name, choices, 1)
    if matches:
        return "did you mean %s?" % matches[0]
    return "there are: %s." % ", ".join(sorted(choices))
