"""PSI, KS and chi-square on counts per bin: as the literature has them, and thresholds that chance does not reach."""

import numpy as np
import pytest
from scipy import stats

from ddl_magics.runtime.monitoring import drift, reference

RANDOM = np.random.default_rng(3)


def counts(edges, values):
    return np.bincount(np.searchsorted(edges, values, side="right"), minlength=len(edges) + 1).tolist()


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 9, 10, 21])
def test_the_tail_of_chi_square_is_scipys(freedom):
    for statistic in (0.1, 1.0, 7.5, 30.0, 80.0):
        assert drift.chi_square_tail(statistic, freedom) == pytest.approx(stats.chi2.sf(statistic, freedom), rel=1e-9)
    assert drift._quantile(freedom, 1e-6) == pytest.approx(stats.chi2.isf(1e-6, freedom), rel=1e-6)


def test_the_statistic_of_homogeneity_is_scipys():
    one, other = [120, 80, 30, 0, 9], [90, 100, 25, 0, 1]
    found = stats.chi2_contingency(np.array([one, other])[:, [0, 1, 2, 4]], correction=False)
    assert drift.chi_square(one, other) == pytest.approx(found.statistic)


def test_distributions_that_are_equal_have_not_moved():
    moved = drift.compare([500] * 10, [100] * 10)
    assert (moved.psi, moved.ks, moved.chi2, moved.level) == (0, 0, 0, "none")
    assert moved.p == 1


def test_the_psi_of_a_shifted_normal_is_near_jeffreys_divergence():
    before, now = RANDOM.normal(size=200_000), RANDOM.normal(0.5, 1, 200_000)
    edges = np.quantile(before, np.linspace(0, 1, 200)[1:-1])
    assert drift.psi(counts(edges, before), counts(edges, now)) == pytest.approx(0.25, abs=0.01)


def test_ks_of_bins_is_that_of_the_values_where_each_has_a_bin():
    before, now = RANDOM.integers(0, 8, 900), RANDOM.integers(1, 9, 700)
    edges = np.arange(1, 9)
    assert drift.ks(counts(edges, before), counts(edges, now)) == pytest.approx(stats.ks_2samp(before, now).statistic)


def test_too_few_rows_say_nothing():
    assert drift.compare([100] * 10, [10] * 10) is None


def test_few_rows_need_a_larger_psi():
    assert drift.compare([2000] * 10, [30] * 10).threshold > 0.14
    assert drift.compare([2000] * 10, [500] * 10).threshold == drift.DRIFT


@pytest.mark.parametrize("rows", [250, 1000, 5000])
def test_no_false_alarm_in_100_windows_of_31_features(rows):
    sample = RANDOM.normal(size=(20_000, 31))
    features = [reference.merged("f", [reference.sketch(values, 401)], False) for values in sample.T]
    worst = 0.0
    for _ in range(100):
        window = RANDOM.normal(size=(rows, 31))
        for feature, values in zip(features, window.T, strict=True):
            moved = drift.compare(feature["counts"], counts(feature["edges"], values))
            worst = max(worst, moved.psi / moved.threshold)
    assert worst < 1


@pytest.mark.parametrize(
    "draw",
    [
        RANDOM.standard_normal,
        RANDOM.standard_exponential,
        RANDOM.random,
        lambda n: RANDOM.standard_t(3, n),
        lambda n: RANDOM.integers(0, 7, n).astype(float),
        lambda n: RANDOM.lognormal(0, 1, n),
    ],
    ids=["normal", "exponential", "uniform", "heavy tails", "weekday", "lognormal"],
)
def test_half_a_standard_deviation_is_found_within_5000_rows(draw):
    sample = draw(20_000)
    feature = reference.merged("f", [reference.sketch(sample, 401)], False)
    now = draw(5000) + sample.std() / 2
    assert drift.compare(feature["counts"], counts(feature["edges"], now)).level != "none"


def test_an_error_has_risen_where_it_is_higher_than_chance_makes_it():
    assert drift.error_rose(3.4, 4.9, 3.0, 5000)
    assert not drift.error_rose(3.4, 3.5, 3.0, 5000)
    assert not drift.error_rose(3.4, 4.2, 3.0, 250)
    assert not drift.error_rose(3.4, 9.0, 3.0, 10)
