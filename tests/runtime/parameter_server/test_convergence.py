"""The update rules on a least-squares problem with 1 to 20 simulated workers, and settings that must fail there."""

import numpy as np
import pytest
from support.simulation import RATE, simulate

from ddl_magics.runtime.parameter_server import update_rules
from ddl_magics.runtime.training import stability

WORKERS = (1, 4, pytest.param(10, marks=pytest.mark.slow), 20)
SOLVED = 1e-3
#: The rate of `eamsgd` is that of one process with this momentum.
MOMENTUM = 0.8


def _run(text, workers, **changes):
    if text.startswith("eamsgd"):
        changes.update(momentum=MOMENTUM, rate=RATE * (1 - MOMENTUM))
    return simulate(text, workers, **changes)


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("text", update_rules.names("ps"))
def test_every_rule_converges_with_its_defaults(text, workers):
    assert _run(text, workers).loss < SOLVED
    assert _run(text, workers, window=10).loss < SOLVED


@pytest.mark.parametrize("workers", WORKERS)
def test_staleness_is_as_with_workers_that_take_turns(workers):
    """Plus up to two batches of a window, which were trained while the last answer was in flight."""
    staleness = _run("adag", workers).staleness
    assert workers - 1.5 <= np.mean(staleness) <= (workers - 1) * (1 + 2 / workers) + 1
    assert (max(staleness) > 0) is (workers > 1)


@pytest.mark.parametrize(("workers", "window"), [(4, 10), (10, 10), (20, 20)])
def test_downpour_with_the_papers_scale_diverges(workers, window):
    assert _run("downpour:scale=1", workers, window=window).loss > 1e3
    assert _run("downpour", workers, window=window).loss < SOLVED


@pytest.mark.parametrize("workers", [10, 20])
def test_an_elastic_force_that_does_not_fall_with_the_workers_diverges(workers):
    """With short windows and a slow network, so that commits cross."""
    crossing = {"window": 1, "delay": 5.0}
    assert _run("aeasgd:alpha=0.5", workers, **crossing).loss > 1e3
    assert _run("aeasgd", workers, **crossing).loss < SOLVED


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("text", ["downpour:scale=1", "downpour:scale=0.5", "adag", "dynsgd"])
def test_a_warning_precedes_every_divergence(text, workers):
    for window in (1, 4, 10):
        diverged = not _run(text, workers, window=window).loss < 1
        rule = stability.steady(update_rules.get(text, workers, RATE), RATE, 0.0, window)
        warned = stability.warning(rule, RATE, 0.0, window, workers)
        assert warned or not diverged, (window, warned)
