"""The update rules by value, and that rules to come fit into the same frame."""

import numpy as np
import pytest

from ddl_magics.runtime import rules
from ddl_magics.runtime.parameter_centre import Fit
from ddl_magics.runtime.rules import Rule


def test_adag_commits_the_mean_step_of_the_window():
    rule = rules.get("adag")
    base, local = np.array([1.0, 2.0, 3.0]), np.array([1.5, 2.0, 1.0])
    delta = rule.delta(local, base, 5, 4)
    np.testing.assert_allclose(delta, [0.1, 0.0, -0.4])
    np.testing.assert_array_equal(base, [1.0, 2.0, 3.0])
    np.testing.assert_array_equal(local, [1.5, 2.0, 1.0])


def test_adag_merges_in_place_whatever_the_staleness():
    rule = rules.get("adag")
    centre = np.array([1.0, 2.0])
    same = centre
    rule.merge(centre, np.array([0.5, -1.0]), 7, None)
    assert centre is same
    np.testing.assert_array_equal(centre, [1.5, 1.0])


def test_adag_keeps_float32_and_takes_the_centre_afterwards():
    rule = rules.get("adag")
    local = np.ones(3, np.float32)
    delta = rule.delta(local, np.zeros(3, np.float32), 3, 2)
    assert delta.dtype == np.float32
    centre = np.full(3, 9, np.float32)
    assert rule.resume(local, delta, centre) is centre


@pytest.mark.parametrize(("wrong", "hint"), [("adga", "did you mean adag?"), ("zzz", "there are: adag")])
def test_an_unknown_rule_is_named_with_the_nearest_right_one(wrong, hint):
    with pytest.raises(rules.UnknownRule, match=hint) as caught:
        rules.get(wrong)
    assert "\n" not in str(caught.value)


# The shapes of the rules to come, from the formulas of their papers: the frame must hold them without a change.

DYNSGD = Rule("dynsgd", lambda w, w0, batches, n: w - w0, lambda c, d, s, then: np.add(c, d / (s + 1), out=c))
ELASTIC = Rule(
    "aeasgd",
    lambda w, c, batches, n: (0.9 / n) * (w - c),
    lambda c, d, s, then: np.add(c, d, out=c),
    adopt=False,
    fresh=True,
)
DISTANCE = Rule(
    "adag-distance",
    lambda w, w0, batches, n: (w - w0) / batches,
    lambda c, d, s, then: np.add(c, d / ((c - then) ** 2 / 0.1 + 1), out=c),
    history=2,
)


def test_a_rule_may_scale_by_staleness():
    fit = Fit(DYNSGD, np.zeros(2))
    assert fit.commit(0, 0, 0, np.array([1.0, 1.0]), 0) == 0
    assert fit.commit(1, 0, 0, np.array([1.0, 3.0]), 0) == 1
    np.testing.assert_allclose(fit.centre, [1.5, 2.5])


def test_an_elastic_worker_keeps_its_own_weights():
    local, centre = np.array([2.0]), np.array([1.0])
    delta = ELASTIC.delta(local, centre, 10, 3)
    np.testing.assert_allclose(delta, [0.3])
    np.testing.assert_allclose(ELASTIC.resume(local, delta, np.array([77.0])), [1.7])


def test_a_rule_may_look_at_the_centre_that_a_delta_was_made_against():
    fit = Fit(DISTANCE, np.array([0.0]))
    fit.commit(0, 0, 0, np.array([1.0]), 0)
    fit.commit(1, 0, 0, np.array([1.0]), 0)  # the centre has moved by 1 since: 1 / (1 / 0.1 + 1)
    np.testing.assert_allclose(fit.centre, [1 + 1 / 11])


def test_a_delta_older_than_the_kept_centres_gets_the_oldest():
    fit = Fit(DISTANCE, np.array([0.0]))
    for seq in range(3):  # centres of versions 2 and 3 are kept
        fit.commit(0, 0, seq, np.array([1.0]), fit.version)
    assert fit.centre == pytest.approx(3.0)
    fit.commit(1, 0, 0, np.array([1.0]), 0)
    np.testing.assert_allclose(fit.centre, [3 + 1 / 11])  # against 2.0, not against 0.0
