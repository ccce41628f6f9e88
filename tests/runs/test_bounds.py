"""A run that does not end, in simulated time: memory and disk stay bounded, and every view shows what happened."""

import dataclasses
import json
import os
import threading

import pytest
from support.endless import EndlessRun, size_of
from support.fake_cluster import FakeCluster, state

from ddl_magics import store
from ddl_magics.options.parsing import parse
from ddl_magics.runs import Run, folder_writer, tables
from ddl_magics.runtime import bounded_log, merging
from ddl_magics.runtime import events as ev
from ddl_magics.server import logs
from ddl_magics.session.session import Session
from ddl_magics.store import RunFolder, owner

#: An hour of a run is 20 s of a processor, which others may need more.
pytestmark = pytest.mark.timeout(600)

TAIL = 400


@pytest.fixture(autouse=True)
def small(data_dir, monkeypatch):
    """A short day is as a month, with small budgets."""
    monkeypatch.setattr(bounded_log, "TAIL_EVENTS", TAIL)
    monkeypatch.setattr(bounded_log, "OLD_EVENTS", dict.fromkeys(merging.MERGES, 500))
    monkeypatch.setattr(folder_writer, "REWRITE_BYTES", 400_000)
    monkeypatch.setattr("ddl_magics.store.snapshots.EVENTS", TAIL // 2)
    # The run's time is simulated: a thread in real time would replace files while the test counts their bytes.
    monkeypatch.setattr(owner, "HEARTBEAT_SECONDS", threading.TIMEOUT_MAX)


@pytest.mark.parametrize("watched", [False, True])
def test_nothing_grows_with_the_time_that_a_run_takes(watched):
    run = EndlessRun(workers=4, every=1, epoch_seconds=60, watched=watched)
    run.advance(600)
    early = run.held()
    run.advance(3_000)
    late = run.held()
    epochs = 50 * 2 * 700 * (3 if watched else 1)  # what is kept: an epoch and a line of output a minute
    for who, size in late.items():
        assert size < 1.5 * early[who] + epochs, (who, early, late)
    assert late["driver"] < 3_000_000 and late.get("disk", 0) < 1_500_000 and run.reported > 28_000
    if watched:
        assert len(run.recorder.timeline.events()) < 2 * TAIL + 2 * 500 + 300


@pytest.fixture
def replaced(monkeypatch):
    """One entry each time that a file of events is replaced."""
    found, rewrite = [], RunFolder.rewrite
    monkeypatch.setattr(RunFolder, "rewrite", lambda folder, lines: found.append(rewrite(folder, lines)))
    return found


def test_no_step_and_no_epoch_is_lost_in_any_view(replaced):
    """The log is read on after its file was replaced, and the run that is taken over goes on with what was merged."""
    run = EndlessRun(workers=4, every=1, epoch_seconds=60, watched=True)
    path, offset, lines = run.folder.path / "events.jsonl", 0, []
    for _ in range(8):
        run.advance(120)
        more = True
        while more:
            page = logs.page(path, 0, offset)
            lines += page["lines"]
            offset, more = page["offset"], page["more"]
    assert [line[3] for line in lines if line[2] == "out"] == [f"epoch {n} has ended" for n in range(16)]
    assert replaced
    tail = logs.page(path, 0, 0, tail=True)
    assert tail["lines"][-1][3] == "epoch 15 has ended" and tail["offset"] == offset

    answers = run.look()
    series = run.history.series["metric:loss"]
    assert series.x[-1] == 9_600 and sum(series.counts) == 9_600
    assert {worker.steps for worker in run.history.workers.values()} == {9_600}
    assert answers[-1]["behind"] == 0 and answers[-1]["damaged"] == 0
    [reader] = run.views._readers.values()
    assert {worker.steps for worker in reader.history.workers.values()} == {9_600}
    assert reader.history.latest == run.history.latest
    stored = Run.stored(store.find_run("endless"))
    assert len(stored.history["loss"]) == len(stored.history["val_loss"]) == 16
    assert sum(e["count"] for e in stored.events if e["kind"] == "steps" and e["rank"] == 2) == 9_600
    assert stored.logs(0) == "".join(f"epoch {n} has ended\n" for n in range(16))
    rows = [row for row in tables.metric_rows(stored.events) if row[4] == "loss" and row[3] is not None]
    assert all(0 <= row[3] < 600 for row in rows) and [row[0] for row in rows] == sorted(row[0] for row in rows)
    assert stored.figure().data[0].x[-1] == pytest.approx(16, abs=1)

    events = run.folder.take_over()
    assert any("first" in event for event in events)
    # The driver's numbers and the notebook's are the same here: no event is the notebook's own.
    texts, _, _ = run.log.read(events[-1]["seq"], 10**9)
    assert texts == [] and events[-1]["seq"] == run.log._numbered.last
    again, _, _ = run.log.read(0, 10**9)
    assert sum(json.loads(text).get("count", 0) for text in again if '"kind":"steps"' in text) == 4 * 9_600


@pytest.mark.parametrize("inode", ["another", "the_same"])
def test_a_page_that_was_closed_for_long_shows_every_step_once(inode, tmp_path):
    run = EndlessRun(workers=4, every=1, epoch_seconds=60, watched=True)
    run.advance(100)
    run.look()
    events, first = run.folder.path / "events.jsonl", tmp_path / "first"
    os.link(events, first)
    run.advance(300)  # the page's last event has been merged with later ones since
    if inode == "the_same":  # as a file system gives it again
        first.write_bytes(events.read_bytes())
        first.replace(events)
    answers = run.look()
    [reader] = run.views._readers.values()
    assert answers[0]["message"]["full"] and reader.damaged == 0
    assert {worker.steps for worker in reader.history.workers.values()} == {4_000}


def test_a_page_that_watches_gets_updates_when_the_file_is_replaced(replaced):
    run = EndlessRun(workers=4, every=1, epoch_seconds=60, watched=True)
    run.advance(10)
    run.look()
    answers = []
    for _ in range(30):
        run.advance(20)
        answers += run.look()
    assert len(replaced) > 1 and not any(answer["message"]["full"] for answer in answers)


@pytest.mark.slow
@pytest.mark.parametrize(("calls", "notices"), [(400, []), (3_000, ["warning"])])
def test_a_history_that_was_thinned_out_says_so(calls, notices):
    logged = [ev.make("values", 0, metrics={"loss": float(n)}, step=None) for n in range(calls)]
    script = [state(ev.RUNNING), ev.make("fit", 0, fit=0, model="m", epochs=0, steps=None), *logged]
    spec = dataclasses.replace(parse("--workers 2 --name digits"), cell="loop()")
    run = Session(FakeCluster([*script, state(ev.FINISHED)])).submit(spec, {}).wait(30)
    assert run.history["loss"][-1] == calls - 1 and (len(run.history["loss"]) == calls) == (not notices)
    said = [event for event in run.events if event["kind"] == "notice"]
    assert [event["level"] for event in said] == notices
    assert all(event["message"].startswith("ddl.log was called more than 65,536 times: run.hist") for event in said)


def test_a_long_view_in_text_forgets_epochs():
    from ddl_magics.dashboard.text import TextProgress

    view, run = TextProgress("digits"), EndlessRun(workers=4, every=1, epoch_seconds=10, watched=False)
    sizes = []
    for _ in range(2):
        run.advance(1_000)
        view.feed(run.log.all_events())
        sizes.append(size_of(view))
    assert sizes[1] < 1.5 * sizes[0]
