"""What an update rule is: the functions that make it, its settings, and how both are read from `NAME:setting=value`.

The rules themselves, with their formulas, are in rules.py.
"""

import difflib
import math
from typing import Callable, Dict, NamedTuple, Tuple


class UnknownRule(ValueError):
    """There is no such rule or setting: one line with the nearest right one."""


class Setting(NamedTuple):
    """A number above zero that a rule depends on. Where it is not given, it follows from the job."""

    name: str
    help: str
    #: How `value` comes about, for the documentation.
    default: str
    #: (workers, learning rate or None where none is known) -> its value if it is not given.
    value: Callable


#: Of every rule. n workers' windows may move the centre together about as far as one window (stability.py), so that n
#: workers at the rate of one process get as far as it does in an n-th of the batches. But a mean over n windows has an
#: n-th of the variance: with steps sqrt(n) times as long it is that of one process. Krizhevsky, "One weird trick for
#: parallelizing convolutional neural networks" (arXiv:1404.5997), for SGD; Malladi et al., "On the SDEs and scaling
#: rules for adaptive gradient algorithms", NeurIPS 2022 (arXiv:2205.10287), for Adam and RMSprop.
RATE = Setting("rate", "factor of each worker's learning rate", "sqrt(n)", lambda workers, _: math.sqrt(workers))


class Rule(NamedTuple):
    """What a worker commits, and what becomes of the centre: pure functions over flat arrays of one dtype and size.

    Made by `rules.get` for a number of workers, with its settings in it.
    """

    name: str
    settings: Dict[str, float]
    #: (local, base, window) -> delta, a new array: what a worker whose weights are `local` commits at the end of a
    #: window of `window` batches since it had the centre `base`.
    delta: Callable
    #: (centre, delta, staleness, then) -> the new centre. `delta` may be overwritten and returned, `centre` and `then`
    #: never change. `staleness` is the number of commits since the centre that the delta was made against; `then` is
    #: that centre, or None unless `history` is above zero.
    merge: Callable
    #: (progress, window) -> gain, the share of its distance to the optimum by which a commit moves the centre, where
    #: a worker covers `progress` of its own distance in a window (stability.py).
    gain: Callable
    #: How many commits of others come between a centre and the delta made against it, on average.
    lag: int
    #: Factor of each worker's learning rate.
    rate: float = 1.0
    #: True: after its commit a worker goes on from the centre. False (elastic rules): from its weights less the delta.
    adopt: bool = True
    #: True: a worker fetches the centre anew right before `delta`, as `base`.
    fresh: bool = False
    #: True: the weights that count as `local` are those without the look-ahead of the optimizer's Nesterov momentum.
    look_ahead: bool = False
    #: How many old centres the server keeps for `merge`. A delta older than all of them gets the oldest.
    history: int = 0

    def resume(self, local, delta, centre):
        """The weights from which a worker goes on after it has committed `delta` and got `centre` back."""
        return centre if self.adopt else local - delta


class Kind(NamedTuple):
    """A rule before it is made for a job."""

    name: str
    help: str
    #: "ps", or "allreduce" for a rule whose ranks exchange at the same time, without a server.
    strategy: str
    settings: Tuple[Setting, ...]
    #: (workers, **settings but `RATE`) -> the fields of `Rule` beside name, settings and rate, as a dict.
    make: Callable

    def rule(self, given, workers, rate):
        """The `Rule` with the settings `given` (a dict), for `workers` workers of learning rate `rate` or None."""
        settings = {setting.name: setting.value(workers, rate) for setting in self.settings}
        settings.update(given)
        own = {name: value for name, value in settings.items() if name != RATE.name}
        return Rule(self.name, settings, rate=settings[RATE.name], **self.make(workers, **own))


def read(text, kinds):
    """(name, {setting: value}) of `NAME` or `NAME:setting=value,...`. Raises `UnknownRule`."""
    name, _, rest = str(text).partition(":")
    if name not in kinds:
        raise UnknownRule("no update rule is called %r; %s" % (name, _hint(name, kinds)))
    given = {}
    for part in filter(None, rest.split(",")):
        setting, equals, value = part.partition("=")
        known = [each.name for each in kinds[name].settings]
        if setting not in known:
            hint = _hint(setting, known) if known else "it has none."
            raise UnknownRule("the rule %s has no setting %r; %s" % (name, setting, hint))
        given[setting] = _positive(value)
        if not equals or given[setting] is None:
            raise UnknownRule("%s of the rule %s must be a number above 0, not %r." % (setting, name, value))
    return name, given


def _positive(text):
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value < math.inf else None


def _hint(word, known):
    near = difflib.get_close_matches(str(word), known, 1)
    if near:
        return "did you mean %s?" % near[0]
    return "there are: %s." % ", ".join(sorted(known))
