"""The update rules by value, against cases worked out by hand, and the parsing of their names and settings."""

import numpy as np
import pytest
from support.refusals import one_line

from ddl_magics.runtime.parameter_server import rule_spec, update_rules
from ddl_magics.runtime.parameter_server.centre import Fit
from ddl_magics.runtime.training import stability

BASE, LOCAL = np.array([1.0, 2.0, 3.0]), np.array([1.5, 2.0, 1.0])


@pytest.mark.parametrize(
    ("text", "delta"),
    [
        ("downpour", [0.125, 0.0, -0.5]),  # (W - W0) / 4 workers
        ("downpour:scale=1", [0.5, 0.0, -2.0]),
        ("adag", [0.1, 0.0, -0.4]),  # (W - W0) / 5 batches
        ("adag-distance", [0.1, 0.0, -0.4]),
        ("dynsgd", [0.5, 0.0, -2.0]),
        ("aeasgd", [0.1125, 0.0, -0.45]),  # 0.9 / 4 (W - c)
        ("aeasgd:alpha=0.5", [0.25, 0.0, -1.0]),
        ("eamsgd", [0.1125, 0.0, -0.45]),
        ("easgd", [0.1125, 0.0, -0.45]),
    ],
)
def test_deltas(text, delta):
    base, local = BASE.copy(), LOCAL.copy()
    np.testing.assert_allclose(update_rules.get(text, 4).delta(local, base, 5), delta, atol=1e-15)
    np.testing.assert_array_equal(base, BASE)
    np.testing.assert_array_equal(local, LOCAL)


@pytest.mark.parametrize(
    ("text", "centre"),
    [
        ("downpour", [1.5, 1.0]),
        ("adag", [1.5, 1.0]),
        ("aeasgd", [1.5, 1.0]),
        ("eamsgd", [1.5, 1.0]),
        ("easgd", [1.5, 1.0]),
        ("dynsgd", [1.125, 1.75]),  # delta / (3 + 1)
        (
            "adag-distance:eta=0.25",
            [1 + 0.5 / 2, 2 - 1 / 5],
        ),  # moved by .5 and 1: delta / (.25 / .25 + 1), / (1 / .25 + 1)
    ],
)
def test_merges(text, centre):
    before, then, delta = np.array([1.0, 2.0]), np.array([0.5, 3.0]), np.array([0.5, -1.0])
    after = update_rules.get(text, 4).merge(before, delta, 3, then)
    np.testing.assert_allclose(after, centre)
    np.testing.assert_array_equal(before, [1.0, 2.0])
    np.testing.assert_array_equal(then, [0.5, 3.0])


@pytest.mark.parametrize("text", ["downpour", "adag", "adag-distance", "dynsgd"])
def test_workers_of_an_additive_rule_continue_from_the_centre(text):
    centre = np.full(3, 9.0)
    assert update_rules.get(text, 4).resume(LOCAL, np.ones(3), centre) is centre


@pytest.mark.parametrize("text", ["aeasgd", "eamsgd", "easgd"])
def test_elastic_workers_keep_their_weights_less_the_delta(text):
    rule = update_rules.get(text, 3)
    local, centre = np.array([2.0]), np.array([1.0])
    delta = rule.delta(local, centre, 10)
    np.testing.assert_allclose(delta, [0.3])
    np.testing.assert_allclose(rule.resume(local, delta, np.array([77.0])), [1.7])
    assert rule.fresh


@pytest.mark.parametrize("text", update_rules.names())
def test_float32_stays_float32(text):
    rule = update_rules.get(text, 4)
    local, centre = np.ones(3, np.float32), np.zeros(3, np.float32)
    delta = rule.delta(local, centre, 3)
    assert delta.dtype == rule.resume(local, delta, centre).dtype == np.float32
    assert rule.merge(centre, delta, 2, centre).dtype == np.float32


# -- in a fit


def test_a_commit_counts_less_the_staler_it_is():
    fit = Fit(update_rules.get("dynsgd", 2), np.zeros(2))
    assert fit.commit(0, 0, 0, np.array([1.0, 1.0]), 0) == 0
    assert fit.commit(1, 0, 0, np.array([1.0, 3.0]), 0) == 1
    np.testing.assert_allclose(fit.centre, [1.5, 2.5])


def test_a_commit_that_is_repeated_changes_nothing_and_has_the_same_answer():
    fit = Fit(update_rules.get("dynsgd", 2), np.zeros(2))
    fit.commit(0, 0, 0, np.array([1.0, 1.0]), 0)
    for _ in range(2):
        assert fit.commit(1, 0, 0, np.array([1.0, 3.0]), 0) == 1
    assert fit.version == 2
    np.testing.assert_allclose(fit.centre, [1.5, 2.5])


def test_a_commit_counts_less_the_further_the_centre_has_moved():
    fit = Fit(update_rules.get("adag-distance:eta=0.1", 1), np.array([0.0]))
    fit.commit(0, 0, 0, np.array([1.0]), 0)
    fit.commit(1, 0, 0, np.array([1.0]), 0)  # the centre has moved by 1 since: 1 / (1 / 0.1 + 1)
    np.testing.assert_allclose(fit.centre, [1 + 1 / 11])


def test_a_delta_older_than_the_kept_centres_gets_the_oldest():
    rule = update_rules.get("adag-distance:eta=0.1", 1)
    fit = Fit(rule, np.array([0.0]))
    for seq in range(3):
        fit.commit(0, 0, seq, np.array([1.0]), fit.version)
    assert (float(fit.centre[0]), rule.history) == (3.0, 2)  # centres of versions 2 and 3 are kept
    fit.commit(1, 0, 0, np.array([1.0]), 0)
    np.testing.assert_allclose(fit.centre, [3 + 1 / 11])  # against 2.0, not against 0.0


def test_a_delta_is_measured_from_the_centre_that_it_was_computed_against():
    fit = Fit(update_rules.get("adag-distance:eta=0.1", 2), np.array([0.0]))
    for seq in range(3):
        fit.commit(0, 0, seq, np.array([1.0]), fit.version)
    before = float(fit.centre[0])
    fit.commit(1, 0, 0, np.array([1.0]), 2)
    np.testing.assert_allclose(fit.centre, [before + 1 / 11])


def test_a_centre_never_changes():
    fit = Fit(update_rules.get("adag", 1), np.zeros(2))
    first = fit.centre
    fit.commit(0, 0, 0, np.ones(2), 0)
    assert (first.tolist(), fit.centre.tolist()) == ([0, 0], [1, 1])
    with pytest.raises(ValueError, match="read-only"):
        fit.centre += 1


# -- names and settings


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ("adga", "no update rule is called 'adga'; did you mean adag"),
        ("zzz", "there are: adag, adag-distance, "),
        ("aeasgd:alhpa=0.1", "the rule aeasgd has no setting 'alhpa'; did you mean alpha"),
        ("adag:alpha=0.1", "the rule adag has no setting 'alpha'; there are: rate"),
        ("aeasgd:alpha=-1", "alpha of the rule aeasgd must be a number above 0, not '-1'"),
        ("aeasgd:alpha=inf", "must be a number above 0"),
        ("aeasgd:alpha", "must be a number above 0"),
    ],
)
def test_an_unknown_rule_or_setting_is_refused_with_the_nearest_right_one(wrong, hint):
    assert hint in one_line(rule_spec.UnknownRule, update_rules.get, wrong, 2)


def test_settings_follow_from_the_job_unless_they_are_given():
    assert update_rules.get("aeasgd", 9).settings == {"alpha": 0.1, "rate": 3}
    assert update_rules.get("aeasgd:alpha=0.2", 9).settings == {"alpha": 0.2, "rate": 3}
    assert update_rules.get("downpour:rate=1", 4).settings == {"scale": 0.25, "rate": 1}
    assert update_rules.get("adag-distance", 4, 0.3).settings == {"eta": 0.3, "rate": 2}
    assert update_rules.get("adag-distance", 4).settings["eta"] > 0


@pytest.mark.parametrize("text", update_rules.names())
def test_the_rate_of_workers_follows_from_their_number(text):
    assert [update_rules.get(text, workers).rate for workers in (1, 4, 16)] == [1, 2, 4]
    assert update_rules.get(text + ":rate=0.5", 16).rate == 0.5


# -- what is known before training


def test_the_limit_of_late_steps():
    assert stability.limit(0) == pytest.approx(2)
    assert stability.limit(1) == pytest.approx(1)
    # c <- c - gain c' with c' from three commits ago, just below the limit and just above
    for gain, shrinks in [(0.97 * stability.limit(3), True), (1.03 * stability.limit(3), False)]:
        centre = [1.0] * 4
        for _ in range(2000):
            centre.append(centre[-1] - gain * centre[-4])
        assert (max(map(abs, centre[-10:])) < 1e-3) is shrinks


def test_progress_of_a_window():
    assert stability.progress(0.1, 0.0, 2) == pytest.approx(0.19)
    assert stability.progress(0.01, 0.9, 2) == pytest.approx(0.19)
    assert stability.progress(5.0, 0.0, 1) == 1


@pytest.mark.parametrize(
    ("text", "workers", "window", "advice"),
    [
        ("downpour:scale=1", 4, 10, "leave its scale out"),
        ("aeasgd:alpha=0.5", 10, 10, "leave its alpha out"),
        ("adag", 20, 1, "use --window "),
    ],
)
def test_probable_divergence_is_warned_of(text, workers, window, advice):
    warning = stability.warning(update_rules.get(text, workers, 0.1), 0.1, 0.0, window, workers)
    assert "will probably diverge" in warning and advice in warning and "\n" not in warning


def test_a_rule_lowers_its_factor_of_the_rate_where_that_would_overshoot():
    def factor(workers, window, rate):
        return stability.steady(update_rules.get("adag", workers), rate, 0.0, window).rate

    assert factor(16, 16, 0.1) == factor(16, 4, 0.001) == 4
    assert 1 < factor(16, 12, 0.1) < 4
    assert factor(16, 4, 0.1) == 1, "the given rate diverges by itself, and gets a warning"


@pytest.mark.parametrize("workers", [1, 2, 4, 10, 20, 64])
@pytest.mark.parametrize("text", update_rules.names())
def test_rules_with_their_defaults_give_no_warning(text, workers):
    for rate in (None, 0.001, 0.1):
        assert stability.warning(update_rules.get(text, workers, rate), rate, 0.0, workers, workers) is None


@pytest.mark.parametrize("name", ["downpour", "adag", "dynsgd", "aeasgd", "eamsgd"])
def test_only_elastic_averaging_with_momentum_needs_nesterovs(name):
    assert update_rules.get(name, 2).look_ahead == (name == "eamsgd")
