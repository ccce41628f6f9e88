"""The update rules: how what a worker has learned gets into the centre.

Notation of the formulas: c is the centre, W a worker's weights, W0 the centre that it has last got, n the number of
workers, tau the window in batches, eta the learning rate. A worker trains a window with the user's own optimizer, at
sqrt(n) times its learning rate (`rule.RATE`), commits a delta, and goes on.

To add a rule, write its function under `_register`: options, help, documentation, server and workers read the table.
"""

from . import rule as _rule
from .rule import RATE, Setting

#: How many old centres a rule that looks back keeps for each worker; commits come n - 1 versions late on average.
_HISTORY_PER_WORKER = 2
#: For a rule that needs the learning rate, where the optimizer does not tell it.
_UNKNOWN_RATE = 0.01

#: name -> `rule.Kind`.
KINDS = {}


def _register(name, help, *settings, strategy="ps"):
    def register(make):
        KINDS[name] = _rule.Kind(name, help, strategy, (*settings, RATE), make)
        return make

    return register


def names(strategy=None):
    """The names of all rules, or of those of one strategy, sorted."""
    return sorted(name for name, kind in KINDS.items() if strategy in (None, kind.strategy))


def read(text):
    """(name, {setting: value}) of `NAME` or `NAME:setting=value,...`. Raises `rule.UnknownRule`."""
    return _rule.read(text, KINDS)


def get(text, workers, rate=None):
    """The `rule.Rule` that `text` (as `read` takes it) names, for `workers` workers. Raises `rule.UnknownRule`.

    rate: the learning rate of the workers' optimizer, or None where it has none.
    """
    name, given = read(text)
    return KINDS[name].rule(given, workers, rate)


def _add(centre, delta, staleness, then):
    delta += centre
    return delta


@_register(
    "downpour",
    "adds what each worker has learned, scaled down by their number",
    Setting(
        "scale", "factor of each update; 1 is the paper's, which takes n times the step", "1/n", lambda n, _: 1 / n
    ),
)
def _downpour(workers, scale):
    """DOWNPOUR: delta = scale (W - W0); c += delta.

    Dean et al., "Large Scale Distributed Deep Networks", NIPS 2012, section 4.1, has scale = 1, so that the step grows
    with n. 1/n makes n workers' windows together as long a step as one of them took.
    """

    def delta(local, base, window):
        learned = local - base
        learned *= scale
        return learned

    return {"delta": delta, "merge": _add, "gain": lambda progress, window: scale * progress, "lag": workers - 1}


@_register("adag", "accumulated gradient normalization: adds the mean step of each window")
def _adag(workers):
    """Accumulated gradient normalization (AGN), called ADAG in dist-keras: delta = (W - W0) / tau; c += delta.

    Hermans, Spanakis and Moeckel, "Accumulated Gradient Normalization", ACML 2017 (arXiv:1710.02368). A
    commit is the mean of the window's local steps, so that n workers together take n / tau steps a batch: a window of n
    makes the centre take the mean of their windows. An epoch's last window may be shorter, and is divided by tau all
    the same: a batch counts as much there as in any other, and an epoch of a batch for each worker does not diverge.
    """

    def delta(local, base, window):
        learned = local - base
        learned /= window
        return learned

    return {"delta": delta, "merge": _add, "gain": lambda progress, window: progress / window, "lag": workers - 1}


@_register("dynsgd", "takes an update for less, the more others came before it")
def _dynsgd(workers):
    """DynSGD: delta = W - W0; c += delta / (s + 1), s the staleness: commits since the centre W0.

    Jiang, Cui, Zhang and Yu, "Heterogeneity-aware Distributed Parameter Servers", SIGMOD 2017. s is about n - 1 where
    the workers are alike fast. Where all commit at the same time it would be 0 to n - 1, and the centre would
    take 1 + 1/2 + ... + 1/n of their windows: see `parameter_exchange.together`.
    """

    def delta(local, base, window):
        return local - base

    def merge(centre, delta, staleness, then):
        delta /= staleness + 1
        return _add(centre, delta, staleness, then)

    return {"delta": delta, "merge": merge, "gain": lambda progress, window: progress / workers, "lag": workers - 1}


@_register(
    "adag-distance",
    "adag, that takes a weight's update for less, the further its centre has moved since",
    Setting(
        "eta", "squared distance at which an update counts half", "learning rate", lambda _, rate: rate or _UNKNOWN_RATE
    ),
)
def _adag_distance(workers, eta):
    """ADAG scaled by distance: delta = (W - W0) / tau; c += delta / ((c - c_then)^2 / eta + 1), element by element.

    c_then is the centre that the delta was made against. Hermans, "On Scalable Deep Learning and Parallelizing Gradient
    Descent", master's thesis, Maastricht 2017, on staleness as a distance instead of a number of commits.
    """

    def delta(local, base, window):
        learned = local - base
        learned /= window
        return learned

    def merge(centre, delta, staleness, then):
        if staleness:  # else the distance is zero
            moved = centre - then
            moved *= moved
            moved /= eta
            moved += 1
            delta /= moved
        return _add(centre, delta, staleness, then)

    return {
        "delta": delta,
        "merge": merge,
        "gain": lambda progress, window: progress / window,
        "lag": workers - 1,
        "history": _HISTORY_PER_WORKER * workers,
    }


_ALPHA = Setting("alpha", "share of its distance to the centre that a worker gives way", "0.9/n", lambda n, _: 0.9 / n)


def _elastic(alpha, **fields):
    def delta(local, base, window):
        force = local - base
        force *= alpha
        return force

    return dict(fields, delta=delta, merge=_add, adopt=False, fresh=True)


@_register("aeasgd", "elastic averaging: each worker keeps its weights, tied to the centre by a spring", _ALPHA)
def _aeasgd(workers, alpha):
    """Asynchronous elastic averaging: E = alpha (W - c); W -= E; c += E, with c fetched right before.

    Zhang, Choromanska and LeCun, "Deep Learning with Elastic Averaging SGD", NIPS 2015 (arXiv:1412.6651), algorithm 1.
    The paper has alpha = beta / n with beta = 0.9 (section 5); an alpha that does not fall with n diverges.
    """
    return _elastic(alpha, gain=lambda progress, window: alpha, lag=workers - 1)


@_register("eamsgd", "aeasgd for an SGD optimizer with Nesterov momentum", _ALPHA)
def _eamsgd(workers, alpha):
    """Asynchronous elastic averaging with momentum: as AEASGD, where a worker's step is
    v = d v - eta g(W + d v); W += v.

    Zhang et al. 2015 (as for `aeasgd`), algorithm 2. That step is the user's own keras.optimizers.SGD(eta, momentum=d,
    nesterov=True), which is required: Keras holds y = W + d v in place of W, and y' = y + d v' - eta g(y) is the same
    iteration. The spring takes hold of W = y - d v, and moves y by as much.
    """
    return _elastic(alpha, gain=lambda progress, window: alpha, lag=workers - 1, look_ahead=True)


@_register("easgd", "synchronous elastic averaging, among all workers at once", _ALPHA, strategy="allreduce")
def _easgd(workers, alpha):
    """Synchronous elastic averaging, every tau batches: d = alpha (W - c); W -= d; c += the sum of d over the workers.

    Zhang et al. 2015 (as for `aeasgd`), equations 5 and 6. Each rank holds a copy of c; the sum is an all-reduce.
    """
    return _elastic(alpha, gain=lambda progress, window: workers * alpha, lag=0)
