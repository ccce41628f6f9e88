"""A run's numbered events in bounded memory: sums stay exact, readers get no event twice, and nothing else is lost."""

import json
import sys
from itertools import pairwise

import pytest

from ddl_magics.runtime import bounded_log, events, merging
from ddl_magics.runtime.bounded_log import BoundedLog
from ddl_magics.runtime.driver.event_log import EventLog


def steps(rank, time, epoch=0, step=0, count=5, fit=0, **fields):
    event = events.make(
        "steps", rank, fit=fit, epoch=epoch, step=step, count=count, rows=8 * count, seconds=0.9, compute=0.5, wait=0.3,
        metrics={"loss": time} if rank == 0 else {},
    )  # fmt: skip
    return {**event, "time": float(time), "attempt": 1, **fields}


def sample(rank, time, cpu=50.0, memory=1000, gpus=None, **fields):
    made = events.make("sample", rank, cpu=cpu, memory=memory, gpus=gpus)
    return {**made, "time": float(time), "attempt": 1, **fields}


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(bounded_log, "TAIL_EVENTS", 50)
    monkeypatch.setattr(bounded_log, "OLD_EVENTS", dict.fromkeys(merging.MERGES, 200))
    monkeypatch.setattr(bounded_log, "BLOCK_CHARACTERS", 2000)


def filled(seconds, ranks=4, epoch_seconds=50):
    """Each rank reports five steps and a sample a second; there is a line of output and an epoch now and then."""
    log = BoundedLog()

    def append(event):
        log.append({**event, "seq": log.last + 1})

    for second in range(seconds):
        epoch, within = divmod(second, epoch_seconds)
        for rank in range(ranks):
            append(steps(rank, second, epoch=epoch, step=5 * within))
            append(sample(rank, second, cpu=float(second)))
        if within == epoch_seconds - 1:
            append({**events.make("epoch", 0, fit=0, epoch=epoch, metrics={"loss": 1.0}, seconds=1.0), "attempt": 1})
        if second % 10 == 0:
            append({**events.make("log", 1, stream="stdout", text=f"line {second}\n"), "attempt": 1})
    return log


def test_the_number_of_events_is_bounded_and_sums_are_exact(small):
    log = filled(seconds=5_000)
    found = list(log.events())
    assert log.last > 40_000 and len(found) < 100 + 2 * 200 + 600
    numbers = [event["seq"] for event in found]
    assert numbers == sorted(set(numbers)) and numbers[-1] == log.last
    for rank in range(4):
        mine = [event for event in found if event["kind"] == "steps" and event["rank"] == rank]
        assert sum(event["count"] for event in mine) == 25_000 and sum(event["rows"] for event in mine) == 200_000
        assert sum(event["seconds"] for event in mine) == pytest.approx(4_500)
        assert [e["step"] + e["count"] - e.get("earlier", 0) <= 250 for e in mine].count(False) == 0
        samples = [event for event in found if event["kind"] == "sample" and event["rank"] == rank]
        assert sum(event.get("count", 1) for event in samples) == 5_000
        mean = sum(event["cpu"] * event.get("count", 1) for event in samples) / 5_000
        assert mean == pytest.approx(2_499.5, abs=1.0)
    assert [e["epoch"] for e in found if e["kind"] == "epoch"] == list(range(100)), "epochs are all kept"
    assert [e["text"] for e in found if e["kind"] == "log"] == [f"line {n}\n" for n in range(0, 5000, 10)]


def test_the_newest_events_are_as_they_were_and_the_others_equally_dense(small):
    found = list(filled(seconds=5_000).events())
    assert all("first" not in event for event in found[-50:])
    old = [event["time"] for event in found if event["kind"] == "steps" and event["rank"] == 3 and "first" in event]
    gaps = {later - earlier for earlier, later in pairwise(old)}
    assert len(old) >= 10 and max(gaps) <= 2 * min(gaps)
    of_the_chief = [event for event in found if event["kind"] == "steps" and event["rank"] == 0]
    assert len(of_the_chief) > 4 * len(old), "rank 0 has the curves"


def test_a_part_of_the_events_is_that_of_all(small):
    log = filled(seconds=1_000)
    found = list(log.events())
    for after in (0, 1, 17, found[100]["seq"], found[-60]["seq"], log.last - 3, log.last):
        assert list(log.events(after)) == [event for event in found if event["seq"] > after]
    assert [json.loads(text) for _, text in log.lines()] == found


def test_a_run_that_is_not_long_keeps_every_event():
    log = filled(seconds=4_000, ranks=2)
    assert log.last > 16_000 and len(list(log.events())) == log.last


def test_a_reader_that_comes_back_late_counts_no_step_twice(small):
    log, after, counted = EventLog("r"), 0, 0
    for second in range(3_000):
        for rank in range(4):
            log.append(steps(rank, second, epoch=second // 50, step=5 * (second % 50)), 1)
        if second in (100, 101, 1_500, 1_503, 2_999):  # it reads everything, and is away for a long time
            more = True
            while more:
                texts, after, more = log.read(after, 500)
                counted += sum(json.loads(text)["count"] for text in texts)
            assert counted == 4 * 5 * (second + 1)
    found = [json.loads(text) for text in log.read(0, sys.maxsize)[0]]
    assert sum(event["count"] for event in found) == counted and len(found) < 1_000


def test_a_reader_of_a_finished_part_reads_on_where_a_reply_was_lost(small):
    log = EventLog("r")
    for second in range(60):
        log.append(steps(1, second), 1)
    texts, last, _ = log.read(0, 3_000)
    for second in range(60, 3_000):
        log.append(steps(1, second), 1)
    for got in (0, len(texts) // 2, len(texts)):  # its kernel was killed while it wrote the reply down
        after = json.loads(texts[got - 1])["seq"] if got else 0
        rest = [json.loads(text) for text in log.read(after, sys.maxsize)[0]]
        assert sum(event["count"] for event in rest) == 5 * (3_000 - got)
        assert last >= after


def test_nobody_reads_and_memory_is_bounded(small):
    log = EventLog("r")
    for second in range(20_000):
        log.append(sample(second % 3, second), 1)
    assert len(log._pending) <= 2_000
    assert sum(1 for _ in log._numbered.lines()) < 2_100


def test_buckets_of_several_epochs_say_how_many_steps_are_of_earlier_ones():
    one, two = steps(0, 1, epoch=3, step=10, count=4), steps(0, 2, epoch=4, step=0, count=6)
    both = merging.merge_steps(one, two)
    assert (both["epoch"], both["step"], both["count"], both["earlier"]) == (4, 0, 10, 4)
    more = merging.merge_steps(both, steps(0, 3, epoch=4, step=6, count=2))
    assert (more["step"], more["count"], more["earlier"]) == (0, 12, 4)
    later = merging.merge_steps(steps(0, 0, epoch=2, step=0, count=1), more)
    assert (later["step"], later["count"], later["earlier"]) == (0, 13, 5)


def test_what_is_merged_of_samples_commits_and_values():
    gpu = {"index": 0, "name": "g", "percent": 10.0, "memory": 100, "memory_total": 900}
    first = sample(0, 1, cpu=10.0, memory=100, gpus=[gpu], seq=5)
    second = sample(0, 2, cpu=40.0, memory=400, gpus=[{**gpu, "percent": 40.0, "memory": None}], count=2, seq=9)
    both = merging.merge(first, second)
    assert (both["cpu"], both["memory"], both["count"], both["first"], both["seq"]) == (30.0, 300, 3, 5, 9)
    assert both["gpus"] == [{**gpu, "percent": 30.0, "memory": None}]
    commits = {"kind": "commits", "rank": 0, "commits": 1, "staleness": 1.0, "staleness_max": 1, "seconds": 1.0}
    one, other = {**commits, "histogram": [0, 1]}, {**commits, "commits": 3, "staleness": 5.0, "histogram": [1, 1, 1]}
    both = merging.merge_commits(one, other)
    assert (both["commits"], both["staleness"], both["seconds"], both["histogram"]) == (4, 4.0, 2.0, [1, 2, 1])
    values = events.make("values", 0, metrics={"a": 1.0, "b": 1.0})
    assert merging.merge_values(values, {**values, "metrics": {"b": 2.0}})["metrics"] == {"a": 1.0, "b": 2.0}


def test_the_schema_says_which_kinds_are_merged():
    assert set(events.MERGED) == set(merging.MERGES) == set(bounded_log.OLD_EVENTS)
    for schema in events.json_schema()["oneOf"]:
        assert ("first" in schema["properties"]) == (schema["title"] in events.MERGED)
        assert "first" not in schema["required"]


@pytest.mark.parametrize(
    "damaged",
    [
        {"kind": None},
        {"time": None},
        {"rank": "a"},
        {"count": "a"},
        {"metrics": None},
        {"attempt": []},
        {"seconds": {}},
    ],
)
def test_damaged_events_of_a_stored_run_are_kept_as_they_are(small, damaged):
    log = BoundedLog()
    for second in range(2_000):
        event = steps(0, second) if second % 500 else {**steps(0, second), **damaged}
        log.append({**event, "seq": log.last + 1})
    found = list(log.events())
    assert len(found) < 500 and [event["seq"] for event in found] == sorted({event["seq"] for event in found})
    assert sum(event.items() >= damaged.items() for event in found) == 4
