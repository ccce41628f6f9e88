"""An epoch is reported whoever is the chief at its end, also if it dies before it has done so."""

from types import SimpleNamespace

import pytest

from ddl_magics.options.parsing import parse
from ddl_magics.runtime.rank.config import JobConfig
from ddl_magics.runtime.rank.rank import Rank
from ddl_magics.runtime.training import fit_reporter
from ddl_magics.runtime.transport.credentials import Credentials

CHIEF, OTHER = SimpleNamespace(rank=0, size=1), SimpleNamespace(rank=1, size=2)


@pytest.fixture
def rank(tmp_path, monkeypatch):
    """Rank 1 of two, at position 1; it reports to `rank.told`."""
    job = JobConfig(parse("--workers 1..2 --seed 7"), Credentials("run", b"secret" * 6), ("host", 80), "3.5", 2)
    rank = Rank(job.of_rank(1, "10.0.0.1", str(tmp_path), []), None)
    rank.peers.regrouping, rank.peers.ring = SimpleNamespace(has_joined=True), OTHER
    rank.told = []
    tell = lambda kind, **fields: rank.told.append((kind, fields["epoch"], fields["metrics"]))  # noqa: E731
    monkeypatch.setattr(rank.reporter, "emit", tell)
    buckets = SimpleNamespace(open=int, begin_step=int, end_step=bool, count=0)
    monkeypatch.setattr(fit_reporter, "StepBuckets", lambda *_: buckets)
    return rank


@pytest.mark.parametrize("where", ["at the end of the epoch", "in the next epoch"])
def test_a_rank_that_becomes_the_chief_reports_the_epoch_before(rank, monkeypatch, where):
    def agree(peers):
        if where == "at the end of the epoch":
            peers.ring = CHIEF  # the chief died before it came here
        return [False]

    monkeypatch.setattr(fit_reporter.reduce, "agree_on_stop", agree)
    reporter = fit_reporter.FitReporter(rank, SimpleNamespace(checkpoints=None, checks_finite=True), None)
    reporter.set_model(SimpleNamespace(stop_training=False, built=False))
    reporter.on_epoch_begin(0)
    reporter.on_epoch_end(0, {"loss": 0.5})
    rank.peers.ring = CHIEF
    reporter.on_epoch_begin(1)
    for step in range(2):
        reporter.on_train_batch_begin(step)
        reporter.on_train_batch_end(step)
    assert rank.told == [("epoch", 0, {"loss": 0.5})]
    reporter.on_epoch_end(1, {"loss": 0.25})
    assert rank.told[1:] == [("epoch", 1, {"loss": 0.25})]


def test_another_rank_reports_none(rank, monkeypatch):
    monkeypatch.setattr(fit_reporter.reduce, "agree_on_stop", lambda peers: [False])
    reporter = fit_reporter.FitReporter(rank, SimpleNamespace(checkpoints=None, checks_finite=True), None)
    reporter.set_model(SimpleNamespace(stop_training=False, built=False))
    reporter.on_epoch_begin(0)
    reporter.on_epoch_end(0, {"loss": 0.5})
    assert rank.told == []
