"""The update rules: what a worker commits, and what a commit makes of the centre.

Notation of the formulas: c is the centre, W a worker's weights, W0 the centre that the worker last received, n the
number of workers, tau the window in batches, g the gradient. A worker trains a window with the user's own optimizer, at
sqrt(n) times its learning rate (`rule_spec.RATE`), commits a delta, and trains on.

Rules work element by element on vectors: 1-D arrays of all trainable weights, of one size and one dtype (float16,
float32 or float64). A rule may write over the delta that it merges, and over no other vector. Settings such as alpha
have no unit.

To add a rule, write its function under `_register`: options, help, documentation, server and workers read `RULES`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, Literal

from . import rule_spec
from .rule_spec import RATE, Gain, Rule, RuleDefinition, RuleSpec, Setting

if TYPE_CHECKING:
    from .vector import Vector

#: How many old centres a rule that looks back keeps for each worker; a commit is n - 1 versions late on average.
_HISTORY_PER_WORKER = 2
#: The learning rate that a rule assumes where the optimizer has none to report.
_ASSUMED_RATE = 0.01

#: All rules by name.
RULES: dict[str, RuleDefinition] = {}


def _register(
    name: str, help: str, *settings: Setting, strategy: Literal["ps", "allreduce"] = "ps"
) -> Callable[[Callable[..., Rule]], Callable[..., Rule]]:
    def register(make: Callable[..., Rule]) -> Callable[..., Rule]:
        RULES[name] = RuleDefinition(name, help, strategy, (*settings, RATE), make)
        return make

    return register


def names(strategy: str | None = None) -> list[str]:
    """The names of all rules, or of those of one strategy, sorted."""
    return sorted(name for name, rule in RULES.items() if strategy in (None, rule.strategy))


def parse(text: str) -> RuleSpec:
    """The `RuleSpec` of `NAME` or `NAME:setting=value,...`. Raises `rule_spec.UnknownRule`."""
    return rule_spec.parse(text, RULES)


def get(text: str, workers: int, rate: float | None = None) -> Rule:
    """As `make`, of a text that `parse` takes. Raises `rule_spec.UnknownRule`."""
    return make(parse(text), workers, rate)


def make(spec: RuleSpec, workers: int, rate: float | None = None) -> Rule:
    """The rule of `spec` for `workers` workers; settings that it does not give follow from the job.

    rate: the learning rate of the workers' optimizer, or None where it has none.
    """
    return RULES[spec.name].build(spec.settings, workers, rate)


def _add(centre: Vector, delta: Vector, staleness: int, base: Vector | None) -> Vector:
    delta += centre
    return delta


def _mean_step(local: Vector, base: Vector, window: int) -> Vector:
    delta = local - base
    delta /= window
    return delta


@_register(
    "downpour",
    "adds each worker's change of the weights, scaled down by the number of workers",
    Setting("scale", "factor of each update; 1 is the paper's step, n times as long", "1/n", lambda n, _: 1 / n),
)
def _downpour(workers: int, scale: float) -> Rule:
    """DOWNPOUR: delta = scale (W - W0); c <- c + delta.

    Dean et al., "Large Scale Distributed Deep Networks", NIPS 2012, section 4.1, has scale = 1, so that the step grows
    with n. With 1/n the windows of n workers together move c about as far as one of them.
    """

    def delta(local: Vector, base: Vector, window: int) -> Vector:
        learned = local - base
        learned *= scale
        return learned

    return Rule(delta, _add, lambda progress, window: scale * progress, workers - 1)


@_register("adag", "accumulated gradient normalization: adds the mean step of each window")
def _adag(workers: int) -> Rule:
    """Accumulated gradient normalization (AGN), called ADAG in dist-keras: delta = (W - W0) / tau; c <- c + delta.

    Hermans, Spanakis and Moeckel, "Accumulated Gradient Normalization", ACML 2017 (arXiv:1710.02368). A commit is the
    mean of the window's local steps, so that n workers together take n / tau steps a batch: with tau = n the centre
    takes the mean of their windows. The last window of an epoch may be shorter and is divided by tau all the same: a
    batch counts as much there as in any other window, and an epoch of one batch per worker does not diverge.
    """
    return Rule(_mean_step, _add, _gain_of_mean_step, workers - 1)


def _gain_of_mean_step(progress: float, window: int) -> float:
    return progress / window


@_register("dynsgd", "divides each update by its staleness (updates merged since the worker's last pull) plus 1")
def _dynsgd(workers: int) -> Rule:
    """DynSGD: delta = W - W0; c <- c + delta / (s + 1), with s the staleness: commits to c since W0.

    Jiang, Cui, Zhang and Yu, "Heterogeneity-aware Distributed Parameter Servers", SIGMOD 2017. s is about n - 1 where
    all workers are equally fast. Where all commit at the same time it would be 0 to n - 1, and the centre would take
    1 + 1/2 + ... + 1/n of their windows: `exchange.concurrent_staleness` corrects that.
    """

    def delta(local: Vector, base: Vector, window: int) -> Vector:
        return local - base

    def merge(centre: Vector, delta: Vector, staleness: int, base: Vector | None) -> Vector:
        delta /= staleness + 1
        return _add(centre, delta, staleness, base)

    return Rule(delta, merge, lambda progress, window: progress / workers, workers - 1)


@_register(
    "adag-distance",
    "adag, with each weight's update scaled down by how far its centre has moved since the last pull",
    Setting(
        "eta", "squared distance at which an update counts half", "learning rate", lambda _, rate: rate or _ASSUMED_RATE
    ),
)
def _adag_distance(workers: int, eta: float) -> Rule:
    """ADAG scaled by distance: delta = (W - W0) / tau; c <- c + delta / ((c - W0)^2 / eta + 1), element by element.

    Hermans, "On Scalable Deep Learning and Parallelizing Gradient Descent", master's thesis, Maastricht 2017, which
    measures staleness as a distance instead of a number of commits. eta is the learning rate unless it is given.
    """

    def merge(centre: Vector, delta: Vector, staleness: int, base: Vector | None) -> Vector:
        if staleness:  # else the distance is zero
            assert base is not None, "the rule has a history"
            distance = centre - base
            distance *= distance
            distance /= eta
            distance += 1
            delta /= distance
        return _add(centre, delta, staleness, base)

    return Rule(_mean_step, merge, _gain_of_mean_step, workers - 1, history=_HISTORY_PER_WORKER * workers)


_ALPHA = Setting(
    "alpha", "fraction of their distance by which worker and centre approach each other", "0.9/n", lambda n, _: 0.9 / n
)


def _elastic(alpha: float, gain: Gain, lag: int, look_ahead: bool = False) -> Rule:
    def delta(local: Vector, base: Vector, window: int) -> Vector:
        force = local - base
        force *= alpha
        return force

    return Rule(delta, _add, gain, lag, adopt=False, fresh=True, look_ahead=look_ahead)


@_register(
    "aeasgd", "elastic averaging: each worker keeps its own weights, which an elastic force ties to the centre", _ALPHA
)
def _aeasgd(workers: int, alpha: float) -> Rule:
    """Asynchronous elastic averaging: E = alpha (W - c); W <- W - E; c <- c + E, with c pulled right before.

    Zhang, Choromanska and LeCun, "Deep Learning with Elastic Averaging SGD", NIPS 2015 (arXiv:1412.6651), algorithm 1.
    The paper has alpha = beta / n with beta = 0.9 (section 5); an alpha that does not fall with n diverges.
    """
    return _elastic(alpha, lambda progress, window: alpha, workers - 1)


@_register("eamsgd", "aeasgd for an SGD optimizer with Nesterov momentum", _ALPHA)
def _eamsgd(workers: int, alpha: float) -> Rule:
    """Asynchronous elastic averaging with momentum: as AEASGD, where a worker's step is
    v <- d v - eta g(W + d v); W <- W + v, with v the velocity, d the momentum and eta the learning rate.

    Zhang et al. 2015 (as for `aeasgd`), algorithm 2. That step is the user's own keras.optimizers.SGD(eta, momentum=d,
    nesterov=True), which is required: Keras holds y = W + d v in place of W, and y' = y + d v' - eta g(y) is the same
    iteration. `local` is W = y - d v, and y moves by as much as W.
    """
    return _elastic(alpha, lambda progress, window: alpha, workers - 1, look_ahead=True)


@_register("easgd", "synchronous elastic averaging, among all workers at once", _ALPHA, strategy="allreduce")
def _easgd(workers: int, alpha: float) -> Rule:
    """Synchronous elastic averaging, every tau batches: d = alpha (W - c); W <- W - d; c <- c + sum of d over workers.

    Zhang et al. 2015 (as for `aeasgd`), equations 5 and 6. Each rank holds a copy of c; the sum is an all-reduce.
    """
    return _elastic(alpha, lambda progress, window: workers * alpha, 0)
