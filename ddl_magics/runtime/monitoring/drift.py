"""How far a distribution has moved: PSI, Kolmogorov-Smirnov and chi-square, on counts per bin. Pure.

Two samples of one distribution differ by chance, by an amount that depends on their sizes, as do the thresholds.
"""

from __future__ import annotations

import functools
import math
import statistics
from typing import Literal, NamedTuple, Sequence

Level = Literal["none", "drift", "severe"]

#: The customary bounds of the PSI: below the first all is well, above the second the population is another one
#: (Siddiqi, Credit Risk Scorecards, 2006, section 9).
DRIFT, SEVERE = 0.1, 0.25
#: Probability of a false alarm for one distribution in one window: with 35 distributions, one in 300 series of 100
#: windows has one.
FALSE_ALARM = 1e-6
#: A mean error has risen if it is this many times that of training,
ERROR_RISE = 1.1
#: and so many standard errors above it, which chance exceeds with `FALSE_ALARM`.
ERROR_DEVIATIONS = statistics.NormalDist().inv_cdf(1 - FALSE_ALARM)
#: With fewer rows, drift is not judged.
MIN_ROWS = 200
#: Added to each bin, so that an empty one has a logarithm (Krichevsky and Trofimov, 1981).
_PRIOR = 0.5


class Drift(NamedTuple):
    """psi, ks: 0 where nothing has moved. chi2: the statistic of homogeneity, p: its probability by chance.

    threshold: of the PSI, from which on there is a drift: `DRIFT`, or what chance can do with so few rows.
    """

    psi: float
    ks: float
    chi2: float
    p: float
    threshold: float
    level: Level


def compare(reference: Sequence[float], window: Sequence[float]) -> Drift | None:
    """How far `window` is from `reference`: rows per bin, in the same bins. None where the rows are too few."""
    n, m = sum(window), sum(reference)
    if n < MIN_ROWS or m < MIN_ROWS:
        return None
    index = psi(reference, window)
    bins = sum(1 for a, b in zip(reference, window) if a or b)
    noise = psi_by_chance(bins, n, m)
    threshold = max(DRIFT, noise)
    level: Level = "none" if index < threshold else "drift" if index < max(SEVERE, noise) else "severe"
    statistic = chi_square(reference, window)
    return Drift(index, ks(reference, window), statistic, chi_square_tail(statistic, bins - 1), threshold, level)


def psi(reference: Sequence[float], window: Sequence[float]) -> float:
    """The population stability index, sum of (p - q) ln(p / q) over the bins: Jeffreys' divergence of the shares."""
    occupied = [(a, b) for a, b in zip(reference, window) if a or b]
    m, n = (sum(side) + _PRIOR * len(occupied) for side in (reference, window))
    total = 0.0
    for a, b in occupied:
        q, p = (a + _PRIOR) / m, (b + _PRIOR) / n
        total += (p - q) * math.log(p / q)
    return total


def psi_by_chance(bins: int, n: float, m: float, probability: float = FALSE_ALARM) -> float:
    """What the PSI of samples of n and m rows of one distribution exceeds with this probability.

    It is distributed as (1/n + 1/m) times chi-square with bins - 1 degrees of freedom (Yurdakul and Naranjo,
    Statistical Properties of the Population Stability Index, 2020, section 3).
    """
    return (1 / n + 1 / m) * _quantile(max(1, bins - 1), probability)


def ks(reference: Sequence[float], window: Sequence[float]) -> float:
    """The Kolmogorov-Smirnov distance at the edges of the bins: at most that of the values themselves."""
    n, m = sum(window), sum(reference)
    reference_share = window_share = distance = 0.0
    for a, b in zip(reference, window):
        reference_share, window_share = reference_share + a / m, window_share + b / n
        distance = max(distance, abs(reference_share - window_share))
    return distance


def chi_square(reference: Sequence[float], window: Sequence[float]) -> float:
    """Pearson's statistic of the hypothesis that both samples have one distribution."""
    n, m = sum(window), sum(reference)
    total = 0.0
    for a, b in zip(reference, window):
        if a or b:
            expected_a, expected_b = (a + b) * m / (n + m), (a + b) * n / (n + m)
            total += (a - expected_a) ** 2 / expected_a + (b - expected_b) ** 2 / expected_b
    return total


def chi_square_tail(statistic: float, freedom: int) -> float:
    """The probability that chi-square with so many degrees of freedom is larger.

    The finite sums of Abramowitz and Stegun, 26.4.4 and 26.4.5.
    """
    if statistic <= 0 or freedom < 1:
        return 1.0
    half = statistic / 2
    if freedom % 2:
        tail, term = math.erfc(math.sqrt(half)), math.exp(-half) * math.sqrt(half) / math.gamma(1.5)
        lowest_degree = 3
    else:
        tail, term = math.exp(-half), math.exp(-half) * half
        lowest_degree = 4
    for degree in range(lowest_degree, freedom + 1, 2):
        tail += term
        term *= half / (degree / 2)
    return min(1.0, tail)


@functools.lru_cache(maxsize=512)
def _quantile(freedom: int, probability: float) -> float:
    """What chi-square with so many degrees of freedom exceeds with this probability."""
    low, high = 0.0, 10.0 * (freedom + 20)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if chi_square_tail(middle, freedom) > probability else (low, middle)
    return high


def error_rose(training_mean: float, mean: float, spread: float, rows: int) -> bool:
    """Whether a mean error of so many rows is above that of training: by a tenth, and by more than chance can do.

    spread: standard deviation of the error of a row.
    """
    if rows < MIN_ROWS:
        return False
    return mean > ERROR_RISE * training_mean and mean - training_mean > ERROR_DEVIATIONS * spread / math.sqrt(rows)
