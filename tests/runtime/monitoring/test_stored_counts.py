"""The counts of a batch are stored before Spark marks it as done: what fails in between is neither lost nor doubled."""

import json
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from support.monitoring_logs import trained

from ddl_magics.runtime.driver import monitor_job
from ddl_magics.runtime.driver.monitor_job import MonitorJob
from ddl_magics.runtime.monitoring import counting, windows
from ddl_magics.runtime.monitoring.counting import Counter
from ddl_magics.runtime.monitoring.windows import Watch

REFERENCE = trained(np.random.default_rng(6))
COUNTER = Counter(REFERENCE, 60.0)
#: A batch's counts: a request of ten rows in one window.
ROWS = [
    *[(600.0, thing, 3, 10, 1.0, 1.0) for thing in range(4)],
    (600.0, COUNTER.latency, 12, 1, 0.004, 0.0),
    (600.0, COUNTER.error, 0, 1, 0.0, 0.0),
]


class Folder:
    """A checkpoint's folder in memory, which fails when told to."""

    def __init__(self):
        self.state, self.fails = {}, ""

    def read(self):
        return self.state

    def write(self, state):
        fails, self.fails = self.fails, ""
        if fails == "before":
            raise OSError("no disk")
        self.state = json.loads(json.dumps(state))
        if fails == "after":
            raise OSError("no answer")


@pytest.fixture
def job():
    made = MonitorJob.__new__(MonitorJob)
    made._reference, made._counter, made._folder = REFERENCE, COUNTER, Folder()
    made._watch, made._lock = Watch(REFERENCE, COUNTER), threading.Lock()
    made._stale = made._changed = False
    made._counter = type("Fake", (), {"counts": lambda self, batch: batch, **vars(COUNTER)})()
    made.collected = lambda frame: frame
    return made


@pytest.mark.parametrize("fails", ["before", "after"])
def test_a_batch_that_comes_again_after_a_failure_is_counted_once(job, fails):
    job._count(ROWS, 0)
    job._folder.fails = fails
    with pytest.raises(OSError):
        job._count(ROWS, 1)
    job._count(ROWS, 1)
    job._count(ROWS, 2)
    assert job._watch.totals["requests"] == 3
    assert Watch(REFERENCE, COUNTER, job._folder.state).totals["rows"] == 30
    job._count(ROWS, 2)
    assert job._watch.totals["requests"] == 3


@pytest.mark.parametrize("fails", ["before", "after"])
def test_labels_that_come_again_after_a_failure_are_counted_once(job, fails):
    job._count(ROWS, 0)
    job._folder.fails = fails
    with pytest.raises(OSError):
        job.add_errors(0, [(600.0, 10, 20.0, 40.0)])
    job.add_errors(0, [(600.0, 10, 20.0, 40.0)])
    assert (job._watch.error()["rows"], job._watch.error()["mean"]) == (10, 2.0)


def test_late_records_are_summed_beyond_the_batches_that_spark_still_knows(job):
    job._recent, job._came, job._late, job._at_start = {}, 0, 0, {}
    job._watch.totals["requests"] = 400

    def progress(batch):
        return {
            "runId": "r",
            "batchId": batch,
            "numInputRows": 10,
            "stateOperators": [{"numRowsDroppedByWatermark": 1}],
        }

    for newest in range(50):
        recent = [progress(batch) for batch in range(max(0, newest - 3), newest + 1)]
        job._note_progress(SimpleNamespace(name="m requests", recentProgress=recent))
    job._count_left_out()
    assert len(job._recent) == 4 and (job._watch.totals["late"], job._watch.totals["double"]) == (50, 50)


def test_a_stream_is_ended_where_the_next_one_cannot_begin(job):
    ended = []
    query = SimpleNamespace(isActive=False, stop=lambda: ended.append("requests"))

    def no_labels():
        raise OSError("no folder")

    job._start_counting = lambda: query
    job._labels = SimpleNamespace(starts=lambda: [no_labels])
    with pytest.raises(OSError, match="no folder"):
        job._follow()
    assert ended == ["requests"]


def test_a_stream_that_cannot_begin_again_is_tried_later(job, monkeypatch):
    """Where the storage of the log is away, the start itself fails."""
    away, said = [True, True, False], []

    def start():
        if away.pop(0):
            raise OSError("the storage is away")
        return SimpleNamespace(isActive=True, lastProgress=None, recentProgress=[], exception=lambda: None)

    monkeypatch.setattr(monitor_job, "AGAIN_SECONDS", 0.0)
    job._asked, job._notice, job._note_progress = {}, lambda level, text: said.append(text), lambda query: None
    stream = monitor_job._Stream(lambda: SimpleNamespace(isActive=False, exception=lambda: OSError("away")))
    stream._start = start
    for _ in range(4):
        job._look_at(stream)
    assert stream.query.isActive and stream.failures == 3
    assert [text.split(";")[0] for text in said] == ["the stream was interrupted: away"]


def test_the_rate_of_a_window_that_is_not_over_is_that_of_its_time():
    watch = Watch(REFERENCE, COUNTER)
    watch.add(0, [(600.0, COUNTER.latency, 12, 30, 0.1, 0.0), (660.0, COUNTER.latency, 12, 6, 0.1, 0.0)])
    assert watch.lines(60.0, 672.0)["rate"] == [0.5, 0.5]
    assert watch.lines(60.0, 9999.0)["rate"] == [0.5, 0.1]


def test_latencies_are_those_of_the_requests_that_have_one():
    known = {"12": [60, 0.0, 0.0], str(counting.NULL): [40, 0.0, 0.0]}
    assert windows.percentile(known, 0.99) == windows.percentile({"12": [60, 0.0, 0.0]}, 0.99) is not None
