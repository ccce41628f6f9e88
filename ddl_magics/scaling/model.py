"""A small model of a training step, fitted to measurements, that predicts other numbers of workers.

With n workers, of which k share a host, and r rows of a worker in a step, the step of a worker takes

    compute   busy(k) (a + b r), where busy(k) = max(1, k u / cores): u cores are kept busy by a worker alone
    feeding   busy(k) (c + d r)
    exchange  of all-reduce: E = 2 (n - 1) m l + 2 (n - 1) / n bytes s, as a ring has 2 (n - 1) rounds for each of m
              buckets, and each worker sends 2 (n - 1) / n of the bytes (Patarasuk and Yuan 2009, "Bandwidth optimal
              all-reduce algorithms"). Between hosts the buckets travel as the backward pass makes them, in 2/3
              of compute: max(E/m, E - 2/3 compute (1 - 1/m)) is waited for. Of the other strategies: e + f (n - 1)
    waiting   w z(n) compute, where z(n) is the expected maximum of n standard normal values (Blom 1958): all wait for
              the slowest

and an epoch has the steps for its rows, and g + h / n seconds outside of them. The coefficients are not negative; they
are the least squares of the relative error. The bounds of a prediction are the 5th and the 95th percentile of fits to
resampled runs and parts of these, widened by how well the model meets what was measured. Where one number of workers
above 1 was measured, l and s cannot be told apart: l is then the usual latency, and between a quarter and four times
that in the other fits. Nor can e and f: half of the exchange is then e, and any part of it in the other fits.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ddl_magics.runtime.collectives import buckets
from ddl_magics.scaling.measurement import MeasuredRun, Step, mean_step

Array = npt.NDArray[np.float64]
_T = TypeVar("_T")

#: Of the compute of a step, what follows the first gradient, and may overlap with their exchange.
BACKWARD = 2 / 3
#: The part of a link's rate that is usable.
USABLE = 0.95
#: Bytes of a gradient's element.
FLOAT_BYTES = 4
#: The usual latency of a round, where the measurement cannot tell it from the rate.
LATENCY_SECONDS = 5e-5
#: It is unknown by such a factor.
LATENCY_FACTOR = 4.0

RESAMPLED = 200
LOW, HIGH = 0.05, 0.95


def slowest(workers: int) -> float:
    """Approximates the expected maximum of so many standard normal values; 0 for one."""
    return NormalDist().inv_cdf((workers - 0.375) / (workers + 0.25)) if workers > 1 else 0.0


def nonnegative(features: Sequence[Sequence[float]], values: Sequence[float]) -> tuple[float, ...]:
    """The coefficients, none below 0, for which features * coefficients is nearest to the values, relative to them.

    Of several solutions, the one with the smallest coefficients. For few features: it tries all subsets.
    """
    matrix, target = np.array(features, float), np.array(values, float)
    scale = 1 / np.maximum(target, max(1e-9, float(target.max(initial=0.0)) * 1e-3))
    matrix, target = matrix * scale[:, None], target * scale
    width = matrix.shape[1]
    best, least = np.zeros(width), float(target @ target)
    for size in range(1, width + 1):
        for columns in map(list, itertools.combinations(range(width), size)):
            submatrix = matrix[:, columns]
            norms = np.linalg.norm(submatrix, axis=0)
            if not norms.all():
                continue
            solution = np.linalg.lstsq(submatrix / norms, target, rcond=1e-6)[0] / norms
            error = float(np.sum((submatrix @ solution - target) ** 2))
            if (solution >= 0).all() and error < least * (1 - 1e-9) - 1e-18:
                best, least = np.zeros(width), error
                best[columns] = solution
    return tuple(float(coefficient) for coefficient in best)


@dataclass(frozen=True)
class Observation:
    """The means over the runs with one number of workers."""

    workers: int
    per_host: int
    step: Step
    outside_steps: float


@dataclass(frozen=True)
class Setting:
    """The setting of a prediction.

    Attributes:
        workers: the number of workers.
        rows: of a worker in a step.
        per_host: workers that share a host.
        gbit: rate of each host's link in Gbit/s; None for the network that was measured.
    """

    workers: int
    rows: float
    per_host: int
    gbit: float | None = None


@dataclass(frozen=True)
class Constants:
    """The quantities that all fits of a strategy share. size: bytes of the gradients."""

    sums_gradients: bool
    size: int
    busy: float
    cores: int

    def slower(self, per_host: int) -> float:
        """How many times as long computing takes where so many workers share the cores of a host."""
        return max(1.0, per_host * self.busy / self.cores) if self.cores and self.busy else 1.0


@dataclass(frozen=True)
class Model:
    """The coefficients for one strategy. latency, byte_seconds: l and s; steady, growing: e and f."""

    compute: tuple[float, ...]
    feeding: tuple[float, ...]
    latency: float
    byte_seconds: float
    steady: float
    growing: float
    waiting: float
    outside_steps: tuple[float, ...]
    constants: Constants

    def step(self, setting: Setting) -> Step:
        """The step of a worker."""
        factor, rows = self.constants.slower(setting.per_host), setting.rows
        compute = factor * (self.compute[0] + self.compute[1] * rows)
        feeding = factor * (self.feeding[0] + self.feeding[1] * rows)
        waiting = self.waiting * slowest(setting.workers) * compute
        return Step(rows, compute, self._exchange(setting, compute), waiting, feeding)

    def epoch_seconds(self, setting: Setting, rows: float) -> float:
        """An epoch of so many rows of all workers."""
        steps = rows / (setting.workers * setting.rows)
        return steps * self.step(setting).seconds + self.outside_steps[0] + self.outside_steps[1] / setting.workers

    def _exchange(self, setting: Setting, compute: float) -> float:
        n = setting.workers
        if n == 1:
            return 0.0
        if not self.constants.sums_gradients:
            return self.steady + self.growing * (n - 1)
        rounds, bytes_sent = ring(n, self.constants.size)
        latency, byte_seconds = self.latency, self.byte_seconds
        if setting.gbit is not None:
            latency, byte_seconds = max(latency, LATENCY_SECONDS), 8 / (USABLE * setting.gbit * 1e9)
        seconds = latency * rounds + byte_seconds * bytes_sent
        return visible(seconds, compute, self.constants.size) if n > setting.per_host else seconds


def ring(workers: int, size: int) -> tuple[float, float]:
    """Of an all-reduce of so many bytes: its rounds, and the bytes that a worker sends."""
    return 2.0 * (workers - 1) * number_of_buckets(size), 2 * (workers - 1) / workers * size


def number_of_buckets(size: int) -> int:
    return max(1, min(buckets.MAX_BUCKETS, size // buckets.MIN_BUCKET_BYTES))


def visible(exchange: float, compute: float, size: int) -> float:
    """Seconds that a step waits for an exchange that takes so long, and overlaps with the backward pass."""
    m = number_of_buckets(size)
    return max(exchange / m, exchange - BACKWARD * compute * (1 - 1 / m))


def fit(observations: Sequence[Observation], constants: Constants, guess: float = 0.0) -> Model:
    """The model of one strategy.

    Args:
        observations: one for each number of workers.
        constants: the quantities that are not fitted.
        guess: from -1 to 1, sets what a single number of workers above 1 cannot determine: the latency, and the
            part of an exchange that grows with the workers.
    """
    crowded = [constants.slower(o.per_host) for o in observations]
    by_rows = [[factor, factor * o.step.rows] for factor, o in zip(crowded, observations, strict=True)]
    distributed = [o for o in observations if o.workers > 1]
    exchanges = [o.step.exchange for o in distributed]
    round_seconds = byte_seconds = steady = growing = 0.0
    if constants.sums_gradients and distributed:
        round_seconds, byte_seconds = _rates(distributed, constants, LATENCY_SECONDS * LATENCY_FACTOR**guess)
    elif len(distributed) == 1:
        growing = exchanges[0] * (1 + guess) / 2 / (distributed[0].workers - 1)
        steady = exchanges[0] * (1 - guess) / 2
    elif distributed:
        steady, growing = nonnegative([[1.0, o.workers - 1.0] for o in distributed], exchanges)
    by_workers = [[1.0, 1 / o.workers] for o in observations]
    waits = [[slowest(o.workers) * o.step.compute] for o in distributed]
    return Model(
        compute=nonnegative(by_rows, [o.step.compute for o in observations]),
        feeding=nonnegative(by_rows, [o.step.feeding for o in observations]),
        latency=round_seconds,
        byte_seconds=byte_seconds,
        steady=steady,
        growing=growing,
        waiting=nonnegative(waits, [o.step.waiting for o in distributed])[0] if distributed else 0.0,
        outside_steps=nonnegative(by_workers, [o.outside_steps for o in observations]),
        constants=constants,
    )


def _rates(distributed: Sequence[Observation], constants: Constants, usual_latency: float) -> tuple[float, float]:
    """Seconds of a round, and of a byte."""
    features = [ring(o.workers, constants.size) for o in distributed]
    exchanges = [o.step.exchange + o.step.hidden for o in distributed]
    if len(distributed) > 1:
        latency, byte_seconds = nonnegative(features, exchanges)
        return latency, byte_seconds
    (rounds, bytes_sent), exchange = features[0], exchanges[0]
    by_latency = min(exchange, usual_latency * rounds) if bytes_sent else exchange
    return by_latency / rounds, (exchange - by_latency) / bytes_sent if bytes_sent else 0.0


@dataclass(frozen=True)
class Estimate:
    """A number with its bounds."""

    value: float
    low: float
    high: float


class Fitted:
    """The model of a strategy's runs, and the fits to resampled runs that give its bounds.

    Args:
        runs: of one strategy, with at least two numbers of workers.
        rows: of an epoch. None: as measured.
    """

    def __init__(self, runs: Sequence[MeasuredRun], rows: int | None = None) -> None:
        self._by_workers = {n: [run for run in runs if run.workers == n] for n in sorted({run.workers for run in runs})}
        fewest, random = next(iter(self._by_workers.values())), np.random.default_rng(0)
        size = FLOAT_BYTES * max(run.parameters for run in runs)
        busy, cores = float(np.mean([run.busy for run in fewest])), max(run.cores for run in runs)
        self._constants = Constants(runs[0].sums_gradients, size, busy, cores)
        self.rows = float(rows or np.mean([run.rows for run in runs]))
        self.model = fit(self._observe(list), self._constants)

        def resampled(items: Sequence[_T]) -> list[_T]:
            return [items[i] for i in random.integers(0, len(items), len(items))]

        self._resampled = [
            fit(self._observe(resampled), self._constants, float(random.uniform(-1, 1))) for _ in range(RESAMPLED)
        ]
        self._misfit = self._relative_error()

    @property
    def knows_bytes(self) -> bool:
        """Whether the exchange is known by bytes, so that another network can be predicted."""
        return self._constants.sums_gradients and self._constants.size > 0

    def _observe(self, choose: Callable[[Sequence[Any]], list[Any]]) -> list[Observation]:
        """The means over the chosen runs, and the chosen steps of each."""
        observations = []
        for n, runs in self._by_workers.items():
            sample: list[MeasuredRun] = choose(runs)
            step = mean_step([step for run in sample for step in choose(run.steps)])
            outside_steps = float(np.mean([run.rest for run in sample]))
            observations.append(Observation(n, per_host(runs), step, outside_steps))
        return observations

    def _relative_error(self) -> float:
        """The root mean square of the model's relative errors in the time of the steps that were measured."""
        observed = self._observe(list)
        predicted = [self.model.step(Setting(o.workers, o.step.rows, o.per_host)).seconds for o in observed]
        errors = [seconds / o.step.seconds - 1 for seconds, o in zip(predicted, observed, strict=True)]
        return float(np.sqrt(np.mean(np.square(errors))))

    def rate(self, setting: Setting) -> Estimate:
        """Samples per second of all workers, over whole epochs."""
        rates = [self.rows / model.epoch_seconds(setting, self.rows) for model in (self.model, *self._resampled)]
        low, high = np.quantile(rates[1:], (LOW, HIGH))
        doubt = NormalDist().inv_cdf(HIGH) * self._misfit * rates[0]
        return Estimate(
            rates[0],
            max(0.0, rates[0] - float(np.hypot(max(0.0, rates[0] - low), doubt))),
            rates[0] + float(np.hypot(max(0.0, high - rates[0]), doubt)),
        )


def per_host(runs: Sequence[MeasuredRun]) -> int:
    """The workers that share a host."""
    return max(-(-run.workers // run.hosts) for run in runs)


def by_strategy(runs: Sequence[MeasuredRun]) -> Mapping[str, list[MeasuredRun]]:
    """Strategy -> its runs, in the order in which they were measured."""
    return {name: [run for run in runs if run.strategy == name] for name in dict.fromkeys(run.strategy for run in runs)}
