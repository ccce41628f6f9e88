"""Snapshots of a run's history: a snapshot and the later events give the same history as all events."""

import json
from collections import deque
from unittest.mock import Mock
from zlib import crc32

import pytest
from support.bad_input import numbered
from support.fake_cluster import FakeCluster, epoch, state, steps, training
from support.page import FACTS, Page, assert_same
from support.stored import append, finished, stored
from support.synthetic import Synthetic

from ddl_magics.dashboard import snapshot
from ddl_magics.dashboard.history import History
from ddl_magics.dashboard.messages import Packer
from ddl_magics.dashboard.snapshot import Snapshot
from ddl_magics.runtime import events as ev
from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.session.session import Session
from ddl_magics.store import snapshots
from ddl_magics.store.snapshots import Snapshots


def shown(history):
    """What a page draws of it."""
    page = Page()
    page.take(Packer(history, FACTS).full(0.0, None))
    return page


def checked(text):
    """A damaged snapshot whose checksum is right."""
    data = text.partition("\n")[2] or text
    return f"{crc32(data.encode()):08x}\n{data}"


def synthetic():
    run = Synthetic(20, epochs=10, steps=300)
    return [*run.begin(), *run.train(), *run.end()]


def long(ranks=2, epochs=400):
    """A run whose lines are thinned out, with what each kind of event leaves behind."""
    yield from list(training())[:5]
    for number in range(epochs):
        for rank in range(ranks):
            yield steps(rank, number, loss=1 / (number + 1), accuracy=None)
            yield ev.make("sample", rank, cpu=50.0 + number % 7, memory=10**9, gpus=None)
        yield ev.make("log", number % ranks, stream="stderr", text=f"line {number}\nanother\n")
        yield ev.make("notice", ev.JOB, level="warning", message="slow")
        yield ev.make("commits", 1, commits=3, staleness=1.5, staleness_max=3)
        yield epoch(number, loss=1 / (number + 1), val_loss=2.0)


@pytest.mark.parametrize("events", [list(long()), synthetic()], ids=["long", "synthetic"])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_a_history_continues_from_its_snapshot(events, share):
    at = int(share * len(events))
    whole, begun = History(20), History(20)
    begun.feed(events[:at])
    again = snapshot.load(snapshot.dump(Snapshot(begun, at, 5.0)))
    assert (again.seq, again.last_seen) == (at, 5.0)
    again.history.feed(events[at:])
    whole.feed(events)
    assert_same(shown(again.history), shown(whole))
    assert snapshot.dump(again) == snapshot.dump(Snapshot(whole, at, 5.0)), "nothing that a page does not see either"


def test_a_snapshot_holds_its_bounds():
    history = snapshot.load(snapshot.dump(Snapshot(History(2)))).history
    history.feed(long())
    assert len(history.logs.newest(10**6)) == 3 * history.logs.limit
    assert all(isinstance(tail, deque) for tail in history.logs._tails.values())


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:-10],
        lambda text: text.replace('"seq":0', '"seq":8'),  # it would be a wrong chart
        lambda text: "",
        lambda text: "[]",
        lambda text: checked("[" * 10**6),
        lambda text: checked(text.replace('"version":"', '"version":"9')),
        lambda text: checked(text.replace('"peak"', '"another"')),
        lambda text: checked(text.replace('["Series"', '["Popen"')),
        lambda text: checked(json.dumps({**json.loads(text.partition("\n")[2]), "history": ["dict", []]})),
        lambda text: checked(text.replace('["Series",{', '["Series",[{').replace("}]", "}]]")),
    ],
)
def test_what_another_version_wrote_or_is_damaged_is_none(damage):
    history = History(2)
    history.feed(long(epochs=3))
    data = snapshot.dump(Snapshot(history))
    assert snapshot.load(data) is not None and snapshot.load(damage(data.decode()).encode()) is None


def test_a_long_run_has_a_snapshot_at_its_end_and_a_short_one_none(monkeypatch):
    monkeypatch.setattr(snapshots, "EVENTS", 20)
    run = Session(FakeCluster(training(5))).submit(RunSpec(cell="pass", workers=2), {}).wait(30)
    newest = snapshots.read(run._folder.path)
    assert newest.seq == len(run.events) > 20
    whole = History(2)
    whole.feed(run.events)
    assert_same(shown(newest.history), shown(whole))
    monkeypatch.setattr(snapshots, "EVENTS", 10**6)
    run = Session(FakeCluster()).submit(RunSpec(cell="pass", workers=2), {}).wait(30)
    assert snapshots.read(run._folder.path) is None


def test_a_kernel_that_takes_a_run_over_continues_from_the_snapshot(monkeypatch):
    monkeypatch.setattr(snapshots, "EVENTS", 5)
    folder, events = stored(), numbered(training(4))
    Snapshots(folder, 2).feed(events[:8])
    assert snapshots.read(folder.path).seq == 8
    next_kernel = Snapshots(folder, 2, last_seq=9)
    next_kernel.feed(events[:9])
    next_kernel.feed(events[9:])
    whole = History(2)
    whole.feed(events)
    assert_same(shown(snapshots.read(folder.path).history), shown(whole))
    Snapshots(folder, 2, last_seq=6).feed(events[:6])
    assert snapshots.read(folder.path).seq == 6, "events that were lost are not in it"


def test_events_that_were_merged_behind_a_snapshot_are_in_the_next_one_once(monkeypatch):
    monkeypatch.setattr(snapshots, "EVENTS", 5)
    folder, events = stored(), numbered(training(4))
    Snapshots(folder, 2).feed(events[:8])
    merged = [*events[:6], {**events[9], "first": events[6]["seq"]}, *events[10:]]
    Snapshots(folder, 2, last_seq=events[-1]["seq"]).feed(merged)
    whole = History(2)
    whole.feed(merged)
    assert_same(shown(snapshots.read(folder.path).history), shown(whole))


def test_passing_events_are_not_in_it(monkeypatch):
    monkeypatch.setattr(snapshots, "EVENTS", 2)
    folder, events = stored(), numbered([state(ev.RUNNING), state(ev.RUNNING)])
    Snapshots(folder, 2).feed([*events, ev.make("transfer", ev.JOB, name="model-0.keras", done=1, size=10**8)])
    assert snapshots.read(folder.path).history.fetching == ""


def test_with_a_full_disk_the_run_continues(monkeypatch):
    monkeypatch.setattr(snapshots, "EVENTS", 2)
    monkeypatch.setattr(snapshots, "write_atomically", Mock(side_effect=OSError(28, "No space left on device")))
    folder = finished()
    Snapshots(folder, 2).feed(numbered(training()))
    assert snapshots.read(folder.path) is None
    append(folder, [state(ev.FINISHED)])
