"""The route that a page draws a run from: the widget's messages, in bounded parts, and nobody is forgotten for ever."""

import asyncio
import base64
import json

import numpy as np
import pytest
from support.fake_cluster import epoch, state, steps, training
from support.page import FACTS, Page, assert_same
from support.stored import append, finished, kill_owner, long, stored
from support.synthetic import Synthetic

from ddl_magics.dashboard.history import History
from ddl_magics.dashboard.messages import Packed, Packer
from ddl_magics.dashboard.static import RUN_TYPE
from ddl_magics.dashboard.workers import COLUMNS
from ddl_magics.runtime import events as ev
from ddl_magics.server import run_reader, view_service
from ddl_magics.store.snapshots import Snapshots

#: The widget's budgets; base64 makes a third more of the part that is binary.
OPEN_BYTES = 500_000
UPDATE_BYTES = 27_000


def packed(view):
    """The answer as what the packer made."""
    return Packed(view["message"], [base64.b64decode(buffer) for buffer in view["buffers"]], view["more"])


def page_of(events, workers=2):
    """What a page shows that got all of the events in one message."""
    history, page = History(workers), Page()
    history.feed(events)
    heard = max(event["time"] for event in events)
    page.take(Packer(history, FACTS).full(0.0, heard))
    return page


@pytest.fixture
def look(ask):
    """`await look(folder, view, **query)`: the next answer for a page that has had `view`; None where there is none."""

    async def ask_on(folder, view=None, **query):
        known = {} if view is None else {"page": view["page"], "n": view["message"]["n"]}
        code, answer, response = await ask(f"runs/{folder.path.name}/view", **{**known, **query})
        assert code in (200, 204), answer
        assert len(response.body or b"") < (OPEN_BYTES if code == 200 and answer["message"]["full"] else UPDATE_BYTES)
        return answer if code == 200 else None

    return ask_on


async def test_a_page_gets_everything_and_then_what_changed(look):
    events = list(training(4))
    folder, page = stored(events=events[:8]), Page()
    view = await look(folder)
    assert view["message"]["full"] and not view["more"] and view["behind"] == 0
    page.take(packed(view))
    for part in (events[8:11], events[11:-1], events[-1:]):
        assert await look(folder, view) is None, "nothing new"
        append(folder, part)
        view = await look(folder, view)
        assert not view["message"]["full"]
        page.take(packed(view))
    assert_same(page, page_of(list(folder.events())))
    folder.update({"state": ev.FINISHED})
    assert await look(folder, view) is None


async def test_who_waits_is_told_when_something_happens(look):
    folder = stored(events=list(training())[:7])
    view = await look(folder)
    waiting = asyncio.create_task(look(folder, view, wait=20))
    await asyncio.sleep(0.3)
    assert not waiting.done()
    append(folder, [steps(rank, 0, step=10, loss=0.25 + rank / 2) for rank in (0, 1)])
    view = await asyncio.wait_for(waiting, 5)
    assert view["message"]["latest"] == {"loss": 0.5}, "the job's"
    waiting = asyncio.create_task(look(folder, view, wait=20))
    await asyncio.sleep(0.3)
    kill_owner(folder)
    view = await asyncio.wait_for(waiting, 5)
    assert view["message"]["state"]["state"] == ev.LOST, "though its file has not changed"
    assert await asyncio.wait_for(look(folder, view, wait=20), 5) is None, "what is over is not waited for"


async def test_nobody_waits_in_vain_for_a_run_that_is_removed(ask, look):
    folder = stored(events=list(training())[:7])
    view = await look(folder)
    query = {"page": view["page"], "n": view["message"]["n"], "wait": 20}
    waiting = asyncio.create_task(ask(f"runs/{folder.path.name}/view", **query))
    await asyncio.sleep(0.3)
    folder.remove()
    assert (await asyncio.wait_for(waiting, 5))[0] == 404


async def test_of_many_who_wait_those_above_a_bound_are_answered_at_once(look, monkeypatch):
    monkeypatch.setattr("ddl_magics.server.base.MAX_WAITING", 1)
    folder = stored(events=list(training())[:7])
    one, other = await look(folder), await look(folder)
    waiting = asyncio.create_task(look(folder, one, wait=20))
    await asyncio.sleep(0.3)
    assert await asyncio.wait_for(look(folder, other, wait=20), 5) is None and not waiting.done()
    append(folder, [steps(0, 0, loss=1.0)])
    assert await asyncio.wait_for(waiting, 5)


async def test_a_page_that_missed_an_answer_gets_everything(look):
    folder = finished()
    first = await look(folder)
    for n in (0, first["message"]["n"] - 1, first["message"]["n"] + 1, 2**53 - 1):
        again = await look(folder, first, n=n)
        assert again["message"]["full"] and again["page"] != first["page"], n
    other = finished(epochs=3)
    stray = await look(other, first)
    assert stray["message"]["full"] and stray["message"]["run"]["id"] == other.path.name, "a page is of one run"
    assert await look(folder, first) is None, "and the page itself goes on"


async def test_pages_and_runs_that_are_forgotten_get_everything(look, monkeypatch):
    monkeypatch.setattr(view_service, "MAX_PAGES", 2)
    monkeypatch.setattr(view_service, "MAX_READERS", 1)
    folder = finished()
    views = [await look(folder) for _ in range(3)]
    assert await look(folder, views[2]) is None
    assert (await look(folder, views[0]))["message"]["full"]
    kept = await look(folder)
    assert await look(folder, kept) is None
    await look(finished(epochs=3))
    again = await look(folder, kept)
    assert again["message"]["full"] and again["message"]["state"]["state"] == ev.FINISHED


async def test_a_run_that_is_attached_again_is_no_longer_lost(look):
    folder = stored(events=list(training())[:7])
    kill_owner(folder)
    view, page = await look(folder), Page()
    page.take(packed(view))
    assert page.parts["state"]["state"] == ev.LOST
    folder.take_over()
    append(folder, [state(ev.RUNNING, "attached again"), epoch(0, loss=0.5)])
    view = await look(folder, view)
    page.take(packed(view))
    assert page.parts["state"]["state"] == ev.RUNNING and page.parts["latest"] == {"loss": 0.5}


async def test_each_of_two_pages_is_told_what_the_other_ones_request_has_read(look):
    folder = stored(events=list(training())[:8])
    views = [await look(folder), await look(folder)]
    append(folder, [steps(0, 0, step=10, loss=0.5)])
    views = [await look(folder, view, wait=5) for view in views]
    assert [list(view["message"]["latest"]) for view in views] == [["loss"]] * 2
    kill_owner(folder)
    views = [await look(folder, view, wait=5) for view in views]
    assert [view["message"]["state"]["state"] for view in views] == [ev.LOST] * 2
    assert [await look(folder, view) for view in views] == [None, None]


async def test_a_long_run_is_read_from_its_snapshot_on(look, monkeypatch):
    monkeypatch.setattr(view_service, "READ_SECONDS", 0.0)
    folder, page = long(workers=16, steps=10**6, bucket=1000), Page()
    assert (await look(folder))["more"], "without one it is read in parts"
    again = long(workers=16, steps=10**6, bucket=1000)
    Snapshots(again, 16).feed(list(again.events())[:-1000])
    view = await look(again)
    assert view["behind"] == 0 and not view["more"]
    page.take(packed(view))
    assert_same(page, page_of(list(again.events()), workers=16))


async def test_a_long_run_of_many_workers_comes_in_bounded_parts_and_whole(ask, look):
    folder, page = long(workers=256, steps=10**6, bucket=5000), Page()
    _, listed, response = await ask("runs")
    assert len(response.body) < 2000 and listed["runs"][0]["loss"] == pytest.approx(0.02, rel=0.02)
    view, answers = await look(folder), 0
    page.take(packed(view))
    while view["more"]:
        view, answers = await look(folder, view), answers + 1
        page.take(packed(view))
        assert answers < 1000
    assert view["behind"] == 0 and sorted(page.rows) == sorted(page.workers) == list(range(256))
    assert_same(page, page_of(list(folder.events()), workers=256))
    assert page.series["metric:loss"][-1][0] == 10**6
    assert np.isfinite([point for points in page.series.values() for point in points]).all()
    append(folder, [steps(rank, 0, step=10**6, seconds=1 + rank, loss=0.5) for rank in range(256)])
    view = await look(folder, view)
    assert view["more"], "so many rows do not fit into an update"
    while view["more"]:
        page.take(packed(view))
        view = await look(folder, view)
    page.take(packed(view))
    assert_same(page, page_of(list(folder.events()), workers=256))
    assert await look(folder, view) is None
    assert (await look(folder))["message"]["full"], "to another page, all of it within the bound"


async def test_a_replay_has_the_workers_at_moments_once_all_is_read(ask, monkeypatch):
    folder = stored(ev.FINISHED, training(4), created=0.0)
    _, answer, _ = await ask(f"runs/{folder.path.name}/replay")
    assert answer == {"frames": [], "behind": 0}, "all in one moment"
    run = Synthetic(3, epochs=2, steps=100, step_seconds=0.1)
    folder = stored(ev.FINISHED, [*run.begin(), *run.train(), *run.end()], workers=3)
    monkeypatch.setattr(view_service, "CATCH_UP_SECONDS", 0.0)
    monkeypatch.setattr(run_reader, "BATCH_BYTES", 10_000)
    behind = []
    while not answer["frames"]:
        _, answer, _ = await ask(f"runs/{folder.path.name}/replay")
        behind.append(answer["behind"])
    assert behind == sorted(behind, reverse=True) and behind[0] > 0.5 and behind[-1] == 0
    seconds = [moment["seconds"] for moment in answer["frames"]]
    assert seconds == sorted(seconds) and seconds[-1] > 15
    assert len(base64.b64decode(answer["frames"][-1]["rows"])) == 3 * 4 * len(COLUMNS)


async def test_the_block_of_a_notebook_has_the_end_once_all_is_read(ask, monkeypatch):
    route = f"runs/{finished().path.name}/block"
    with monkeypatch.context() as patch:
        patch.setattr(run_reader.RunReader, "behind", 0.5)
        assert (await ask(route))[1] == {"data": None, "behind": 0.5}
    _, answer, _ = await ask(route)
    assert answer["behind"] == 0 and answer["data"][RUN_TYPE]["state"] == ev.FINISHED
    assert "FINISHED</b>" in answer["data"]["text/html"], "as a page shows it"


async def test_the_end_of_a_run_whose_last_events_are_gone_comes_from_the_store(look):
    """Else its page would ask again and again, at once."""
    folder = finished()
    path = folder.path / "events.jsonl"
    path.write_bytes(path.read_bytes()[:-150])
    view = await look(folder)
    state = view["message"]["state"]
    assert (state["state"], state["message"]) == (ev.FINISHED, "the end of its events is missing")
    assert view["damaged"] >= 1
    assert await look(folder, view) is None


def test_a_history_that_begins_again_ends_only_once_all_of_it_is_read():
    """The owner has put one event in the place of several, of which some were read."""
    folder = finished()
    path = folder.path / "events.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:5]))
    reader = run_reader.RunReader(folder.record())
    reader.read_more(10)
    path.write_text("".join([lines[0], json.dumps({**json.loads(lines[7]), "first": 3}) + "\n", *lines[8:]]))
    reader.read_more(10)
    reader.mark_over(folder.record())
    assert reader.behind == 1 and not reader.history.over
    reader.read_more(10)
    assert reader.behind == 0 and reader.history.over and reader.damaged == 0
