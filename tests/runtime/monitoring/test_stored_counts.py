"""The counts of a batch are stored before Spark marks it as done: what fails in between is neither lost nor doubled."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from support.monitoring_logs import trained

from ddl_magics.runtime.driver import monitor_stream
from ddl_magics.runtime.driver.monitor_arrivals import Arrivals
from ddl_magics.runtime.driver.monitor_counts import StoredCounts
from ddl_magics.runtime.driver.monitor_job import MonitorJob
from ddl_magics.runtime.monitoring import counting, windows
from ddl_magics.runtime.monitoring.counting import Counter
from ddl_magics.runtime.monitoring.windows import Watch
from ddl_magics.runtime.run_spec import MonitorSpec

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

    def read(self, made_of):
        return made_of(self.state)

    def write(self, state):
        fails, self.fails = self.fails, ""
        if fails == "before":
            raise OSError("no disk")
        self.state = json.loads(json.dumps(state))
        if fails == "after":
            raise OSError("no answer")


@pytest.fixture
def counts():
    return StoredCounts(REFERENCE, COUNTER, Folder())


@pytest.mark.parametrize("fails", ["before", "after"])
def test_a_batch_and_labels_that_come_again_after_a_failure_are_counted_once(counts, fails):
    counts.add(0, lambda: ROWS)
    for add, added in ((counts.add, (1, lambda: ROWS)), (counts.add_errors, (0, [(600.0, 10, 20.0, 40.0)]))):
        counts._file.fails = fails
        with pytest.raises(OSError):
            add(*added)
        add(*added)
        assert counts._file.state == json.loads(json.dumps(counts.watch.to_json())), "Spark marks the batch as done now"
    assert (counts.watch.error()["rows"], counts.watch.error()["mean"]) == (10, 2.0)
    for _ in range(2):
        counts.add(2, lambda: ROWS)
        assert counts.watch.totals["requests"] == 3
        assert Watch(REFERENCE, COUNTER, counts._file.state).totals["rows"] == 30


def test_late_records_are_summed_beyond_the_batches_that_spark_still_knows():
    arrivals, totals = Arrivals(), {"requests": 400, "unreadable": 0}

    def progress(batch):
        return {
            "runId": "r",
            "batchId": batch,
            "numInputRows": 10,
            "stateOperators": [{"numRowsDroppedByWatermark": 1}],
        }

    for newest in range(50):
        recent = [progress(batch) for batch in range(max(0, newest - 3), newest + 1)]
        arrivals.note(SimpleNamespace(name="m requests", recentProgress=recent))
    arrivals.count_in(totals)
    assert len(arrivals._recent) == 4 and (totals["late"], totals["double"]) == (50, 50)


def test_a_stream_is_ended_where_the_next_one_cannot_begin():
    ended = []
    query = SimpleNamespace(isActive=False, stop=lambda: ended.append("requests"))

    def no_labels():
        raise OSError("no folder")

    job = MonitorJob.__new__(MonitorJob)
    job._start_counting = lambda: query
    job._monitor, job._labels = MonitorSpec(), SimpleNamespace(starts=lambda: [no_labels])
    with pytest.raises(OSError, match="no folder"):
        job._follow()
    assert ended == ["requests"]


def test_a_stream_that_cannot_begin_again_is_tried_later(monkeypatch):
    """Where the storage of the log is away, the start itself fails."""
    queries, warnings = [SimpleNamespace(isActive=False, exception=lambda: OSError("away")), None, None], []

    def start():
        query = queries.pop(0) if queries else SimpleNamespace(isActive=True, lastProgress=None)
        if query is None:
            raise OSError("the storage is away")
        return query

    monkeypatch.setattr(monitor_stream, "AGAIN_SECONDS", 0.0)
    stream = monitor_stream.MonitorStream(start, False, warnings.append)
    for _ in range(4):
        assert not stream.paused
        stream.look()
    assert stream.query.isActive and stream.failures == 3 and not queries
    assert [text.split(";")[0] for text in warnings] == ["the stream was interrupted: away"]


@pytest.mark.parametrize("at_start", [False, True])
def test_a_stream_whose_spark_has_ended_is_not_tried_for_hours(monkeypatch, at_start):
    words = "IllegalStateException: Cannot call methods on a stopped SparkContext."
    problem = OSError("away" if at_start else words)
    queries = [SimpleNamespace(isActive=False, exception=lambda: problem)]

    def start():
        if not queries:
            raise RuntimeError(words)
        return queries.pop()

    monkeypatch.setattr(monitor_stream, "AGAIN_SECONDS", 0.0)
    stream = monitor_stream.MonitorStream(start, False, [].append)
    if at_start:
        stream.look()
    with pytest.raises(RuntimeError, match="stopped SparkContext"):
        stream.look()


def test_the_rate_of_a_window_that_is_not_over_is_that_of_its_time():
    watch = Watch(REFERENCE, COUNTER)
    watch.add(0, [(600.0, COUNTER.latency, 12, 30, 0.1, 0.0), (660.0, COUNTER.latency, 12, 6, 0.1, 0.0)])
    assert watch.lines(60.0, 672.0)["rate"] == [0.5, 0.5]
    assert watch.lines(60.0, 9999.0)["rate"] == [0.5, 0.1]


def test_latencies_are_those_of_the_requests_that_have_one():
    known = {"12": [60, 0.0, 0.0], str(counting.NULL): [40, 0.0, 0.0]}
    assert windows.percentile(known, 0.99) == windows.percentile({"12": [60, 0.0, 0.0]}, 0.99) is not None


def test_counts_of_another_form_are_damaged():
    state = StoredCounts(REFERENCE, COUNTER, Folder())
    state.add(0, lambda: ROWS)
    whole = state._file.state
    assert Watch(REFERENCE, COUNTER, whole).totals["requests"] == 1
    for name, damaged in [
        ("batch", "x"),
        ("windows", {"x": {}}),
        ("windows", {"600.0": {"0": {"x": [1, 2, 3]}}}),
        ("windows", {"600.0": {"0": {"1": [1, 2]}}}),
        ("windows", {"600.0": {"0": {"1": [-1, 2, 3]}}}),
        ("windows", {"600.0": {"0": {"1": [float("inf"), 2, 3]}}}),
        ("errors", {"600.0": [float("nan"), 1.0, 1.0]}),
        ("totals", {"rows": 10**400}),
        ("errors", []),
        ("since", {"load": None}),
    ]:
        with pytest.raises(ValueError):
            Watch(REFERENCE, COUNTER, {**whole, name: damaged})
