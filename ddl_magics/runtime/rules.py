"""The update rules of the parameter server, as pure functions over flat buffers.

Notation of the formulas: c is the centre that the server holds, W a worker's weights, W0 the centre that the worker has
last seen, n the number of workers. A worker trains a window of some batches, commits a delta, gets the centre back.

To add a rule, write its factory under `@_register(name)`. Neither the server nor its client changes.
"""

import difflib
from typing import Callable, NamedTuple


class UnknownRule(ValueError):
    """There is no rule of that name: one line with the nearest right one."""


class Rule(NamedTuple):
    """What a worker commits, and what the server does with it.

    All arrays are flat (1-D), of the dtype of the centre and of the same size.
    """

    name: str
    #: (local, base, batches, workers) -> delta, a new array: what a worker whose weights are `local` commits after
    #: `batches` batches since it had the centre `base`.
    delta: Callable
    #: (centre, delta, staleness, then) -> None: changes `centre` in place. `staleness` is the number of commits since
    #: the centre that the delta was made against; `then` is that centre, or None unless `history` is above zero.
    merge: Callable
    #: True: after its commit a worker goes on from the centre. False (elastic rules): from its weights less the delta.
    adopt: bool = True
    #: True: a worker fetches the centre anew right before `delta`, as `base`.
    fresh: bool = False
    #: How many old centres the server keeps for `merge`. A delta older than all of them gets the oldest.
    history: int = 0

    def resume(self, local, delta, centre):
        """The weights from which a worker goes on after it has committed `delta` and got `centre` back."""
        return centre if self.adopt else local - delta


_factories = {}


def _register(name):
    def register(factory):
        _factories[name] = factory
        return factory

    return register


def names():
    """The names of all rules, sorted."""
    return sorted(_factories)


def get(name, options=None):
    """The rule `name`, made with its `options` (a dict, or None). Raises `UnknownRule`."""
    if name not in _factories:
        near = difflib.get_close_matches(str(name), _factories, 1)
        hint = "did you mean %s?" % near[0] if near else "there are: %s" % ", ".join(names())
        raise UnknownRule("no update rule is called %r; %s" % (name, hint))
    return _factories[name](options or {})


def _add(centre, delta, staleness, then):
    centre += delta


@_register("adag")
def _adag(options):
    """Accumulated gradient normalisation, AGN, called ADAG in dist-keras: delta = (W - W0) / batches; c += delta.

    Hermans, Spanakis and Moeckel, "Accumulated Gradient Normalization", ACML 2017 (arXiv:1710.02368).
    A commit is the mean of the window's local steps, so that the centre moves by one step a window and worker whatever
    the window's length. `batches` is the number that were really trained: the last window of an epoch may be shorter.
    """

    def delta(local, base, batches, workers):
        return (local - base) / local.dtype.type(batches)

    return Rule("adag", delta, _add)
