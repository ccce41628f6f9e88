"""The driver's log of events: ordered numbers, merged buckets that lose no step, bounded replies and memory."""

import json

import pytest

from ddl_magics.runtime import events, merging
from ddl_magics.runtime.driver import event_log


def bucket(rank, step, count, seconds=0.25, epoch=0, loss=1.0):
    return events.make(
        "steps", rank, fit=0, epoch=epoch, step=step, count=count, rows=count * 8, seconds=seconds, compute=0.2,
        wait=0.05, metrics={"loss": loss},
    )  # fmt: skip


def read_all(log, limit=60_000):
    found, after, more = [], 0, True
    while more:
        chosen, after, more = log.read(after, limit)
        found += map(json.loads, chosen)
    return found


def test_numbers_have_no_gaps_and_a_reader_may_come_back():
    log = event_log.EventLog("r")
    for rank in range(3):
        log.append(events.make("log", rank, stream="stdout", text="x\n"))
    first, last, _ = log.read(0, 60_000)
    assert last == 3
    log.append(events.make("log", 0, stream="stdout", text="y\n"))
    second, _, more = log.read(3, 60_000)
    assert [json.loads(e)["seq"] for e in first + second] == [1, 2, 3, 4] and not more
    assert log.read(0, 60_000)[0] == first + second


def test_buckets_that_nobody_has_read_are_merged_and_no_step_is_lost():
    log = event_log.EventLog("r")
    for i in range(10_000):
        log.append(bucket(i % 2, i // 2 * 5, 5, seconds=0.1, loss=float(i)))
    found = read_all(log)
    assert len(found) <= 2 * (10_000 / 2) * 0.1 / (event_log.BUCKET_SECONDS - 0.1) + 2
    for rank in (0, 1):
        mine = [e for e in found if e["rank"] == rank]
        assert sum(e["count"] for e in mine) == 25_000
        assert sum(e["rows"] for e in mine) == 200_000
        assert [e["step"] for e in mine] == sorted({e["step"] for e in mine})
    assert found[-1]["metrics"]["loss"] == 9999.0


def test_what_a_bucket_may_say_is_added_up_too():
    first, second = bucket(0, 0, 5), dict(bucket(0, 5, 5), copy=0.25, wire=0.5)
    merged = merging.merge_steps(first, second)
    assert (merged["count"], merged["copy"], merged["wire"]) == (10, 0.25, 0.5)
    assert merging.merge_steps(merged, second)["wire"] == 1.0
    assert "copy" not in merging.merge_steps(first, bucket(0, 5, 5))


def test_buckets_of_two_epochs_stay_apart():
    log = event_log.EventLog("r")
    log.append(bucket(0, 0, 5))
    log.append(bucket(0, 0, 5, epoch=1))
    assert [e["epoch"] for e in read_all(log)] == [0, 1]


def test_a_reply_is_bounded():
    log = event_log.EventLog("r")
    for _ in range(200):
        log.append(events.make("log", 0, stream="stdout", text="x" * 1000))
    chosen, _, more = log.read(0, 60_000)
    assert more and sum(len(text) + 2 for text in chosen) <= 60_000
    assert len(read_all(log)) == 200


@pytest.mark.parametrize("text", ["a line\n" * 5000, "x" * 35_000, "x" * 35_000 + "\na line\n", "short"])
def test_all_that_a_rank_prints_at_once_arrives_in_events_of_bounded_size(text):
    log = event_log.EventLog("r")
    log.append(events.make("log", 0, stream="stdout", text=text))
    parts = [event["text"] for event in read_all(log)]
    assert "".join(parts) == text and max(map(len, parts)) <= event_log.MAX_TEXT_CHARACTERS
    assert all(part.endswith("\n") for part in parts) or "x" in text or len(parts) == 1
