"""The routes of searches: what is listed and drawn of one that is followed, of one that is lost, of a damaged one."""

import asyncio
import json

import jsonschema
import pytest
from support.invented_search import StoredSearch
from support.stored import finished, kill_owner

from ddl_magics import store
from ddl_magics.dashboard.schema import DEFINITIONS, SEARCH_DEFINITIONS, reference
from ddl_magics.dashboard.static import SEARCH_TYPE
from ddl_magics.runtime import events as ev
from ddl_magics.server import search_views
from ddl_magics.server.search_views import SearchViews

SCHEMA = {**reference("SearchMessage"), "definitions": {**DEFINITIONS, **SEARCH_DEFINITIONS}}


async def view(ask, search, **query):
    status, answer, _ = await ask(f"searches/{search}/view", **query)
    if status == 200:
        jsonschema.validate(answer["message"], SCHEMA)
    return status, answer


async def test_a_search_is_listed_with_its_progress_and_its_runs_name_it(ask):
    search = StoredSearch(7, training=1)
    finished(name="other")
    _, answer, _ = await ask("runs")
    (row,) = answer["searches"]
    assert (row["name"], row["state"], row["live"], row["done"], row["planned"]) == ("tuned", ev.RUNNING, True, 7, 40)
    assert (row["objective"], row["best_trial"]) == ("val_accuracy", 5) and row["remaining"] > 0 and row["best"] > 0.9
    trials = {run["trial"]: run for run in answer["runs"] if run["parent"] == search.id}
    assert sorted(trials) == list(range(8)) and set(trials[0]["parameters"]) == {"lr", "units", "act"}
    assert [run["parent"] for run in answer["runs"] if run["name"] == "other"] == [None]
    _, second, _ = await ask("runs", limit=2, cursor=(await ask("runs", limit=2))[1]["next"])
    assert second["searches"] == []
    assert (await ask("runs", q="tuned"))[1]["searches"] and not (await ask("runs", q="other"))[1]["searches"]


async def test_the_block_of_a_notebook_says_how_the_search_is_and_that_its_kernel_is_gone(ask):
    search = StoredSearch(7, training=1)

    async def block():
        status, answer, _ = await ask(f"searches/{search.id}/block")
        return status, answer.get("data")

    _, data = await block()
    assert data[SEARCH_TYPE] == {"id": search.id, "state": ev.RUNNING}
    assert data["text/plain"].startswith("tuned RUNNING  7 of 40 trials") and "tuned RUNNING" in data["text/html"]
    kill_owner(search.folder)
    _, data = await block()
    assert data[SEARCH_TYPE]["state"] == ev.LOST and data["text/plain"].startswith("tuned LOST  7 of 40 trials")
    assert data["text/plain"].endswith("\n\nits kernel is gone: %ddl attach tuned continues it")
    search.folder.view_path.write_text("{}")
    assert (await block())[0] == 409


async def test_the_row_of_a_trial_says_what_its_search_does(ask):
    search = StoredSearch(5, training=1)
    search.run(1).update({"state": ev.STOPPED, "progress": {"epoch": 4, "epochs": 9, "metrics": {"val_accuracy": 1.0}}})
    _, answer, _ = await ask("runs")
    rows = {run["trial"]: run for run in answer["runs"]}
    pruned, training = rows[1], rows[5]
    (shown,) = [trial for trial in search.folder.view()["trials"] if trial["number"] == 1]
    assert (pruned["trial_state"], pruned["trial_value"], pruned["trial_reason"]) == (
        "pruned",
        shown["value"],
        shown["reason"],
    )
    assert pruned["sparkline"] == pytest.approx([value for _, value in shown["curve"]], rel=1e-4)
    assert (rows[2]["trial_state"], training["trial_state"]) == ("finished", None) and training["trial_value"] > 0
    search.show(6)
    _, changes, _ = await ask("runs", since=answer["version"])
    assert [(run["trial"], run["trial_state"]) for run in changes["runs"]] == [(5, "finished")]
    view = search.folder.view()
    damaged = [{**trial, "state": 7, "value": "high", "reason": None, "curve": [1, [2]]} for trial in view["trials"]]
    search.folder.write_view({**view, "trials": damaged})
    _, answer, _ = await ask("runs")
    values = {(row["trial_state"], row["trial_value"], row["trial_reason"]) for row in answer["runs"]}
    assert values == {(None, None, "")}


async def test_who_asks_again_gets_the_searches_that_changed(ask):
    kept, changed = StoredSearch(1, name="kept"), StoredSearch(1, name="changed")
    version = (await ask("runs"))[1]["version"]
    assert (await ask("runs", since=version))[0] == 204
    changed.show(2, 1)
    _, answer, _ = await ask("runs", since=version)
    assert [row["name"] for row in answer["searches"]] == ["changed"]
    kill_owner(kept.folder)
    _, answer, _ = await ask("runs", since=answer["version"])
    assert [(row["name"], row["state"], row["live"]) for row in answer["searches"]] == [("kept", ev.LOST, False)]
    changed.show(3, state=ev.FINISHED)
    (trial,) = [run for run in (await ask("runs"))[1]["runs"] if run["parent"] == changed.id and run["live"]]
    store.RunFolder(store.runs_folder() / trial["id"]).update({"state": ev.FINISHED})
    assert (await ask(f"searches/{changed.id}", "DELETE"))[0] == 204
    _, answer, _ = await ask("runs", since=answer["version"])
    assert changed.id in answer["removed"] and len(answer["removed"]) == 4


async def test_a_page_gets_everything_once_and_then_what_has_changed(ask):
    search = StoredSearch(5, training=2)
    status, first = await view(ask, search.id)
    message = first["message"]
    assert status == 200 and first["live"] and message["full"] and len(message["trials"]) == 7
    assert message["info"]["metric"] == "val_accuracy" and message["state"]["front"]
    assert (await view(ask, search.id, version=first["version"]))[0] == 204
    waiting = asyncio.ensure_future(view(ask, search.id, version=first["version"], wait=30))
    await asyncio.sleep(0.1)
    search.show(6, training=1)
    _, second = await asyncio.wait_for(waiting, 15)
    assert [trial["number"] for trial in second["message"]["trials"]] == [5] and not second["message"]["full"]
    assert "info" not in second["message"]
    search.show(7, state=ev.FINISHED)
    _, last = await view(ask, search.id, version=second["version"])
    assert (last["live"], last["message"]["state"]["state"]) == (False, ev.FINISHED)
    for version in ("x", "-", "a-b-c", first["version"].replace("-", "0-", 1)):
        assert (await view(ask, search.id, version=version))[1]["message"]["full"]


def test_views_of_the_last_searches_are_kept(jupyter_data_dir, monkeypatch):
    read = []
    monkeypatch.setattr(search_views, "stored_view", lambda folder: read.append(folder.path.name))
    monkeypatch.setattr(search_views, "MAX_VIEWS", 2)
    searches, views = [StoredSearch(1, name=name) for name in "abc"], SearchViews()
    for index in (0, 1, 0, 1, 2, 1, 2, 0):
        with pytest.raises(LookupError):
            views.update(searches[index].folder.record(), "")
    assert read == [searches[index].id for index in (0, 1, 2, 0)]


async def test_a_search_whose_kernel_is_gone_is_lost_and_nobody_follows_its_trials(ask):
    search = StoredSearch(2, training=1)
    version = (await view(ask, search.id))[1]["version"]
    kill_owner(search.folder)
    _, answer = await view(ask, search.id, version=version)
    state, trials = answer["message"]["state"], {trial["number"]: trial for trial in answer["message"]["trials"]}
    assert (state["state"], state["left"], trials[2]["state"]) == (ev.LOST, None, "waiting")
    assert "%ddl attach tuned" in state["message"] and not answer["live"]
    assert (await view(ask, search.id, version=answer["version"], wait=10))[0] == 204
    _, answer, _ = await ask(f"searches/{search.id}/stop", "POST")
    assert answer["outcome"] == "runs" and "%ddl attach tuned" in answer["how"]


async def test_an_end_that_its_view_does_not_have_is_that_of_its_record(ask):
    """The disk was full when the view should have been written."""
    search = StoredSearch(2, training=1)
    search.folder.update({"state": ev.FAILED, "message": "no trial could be started", "ended": 1e9})
    _, answer = await view(ask, search.id)
    state = answer["message"]["state"]
    assert (state["state"], state["message"], state["left"]) == (ev.FAILED, "no trial could be started", None)


async def test_a_search_is_stopped_by_its_kernel_and_deleted_when_nothing_of_it_runs(ask):
    search = StoredSearch(1, training=1)
    kept = finished(name="kept")
    status, answer, _ = await ask(f"searches/{search.id}", "DELETE")
    assert status == 409 and "stop it first" in answer["message"]
    _, answer, _ = await ask(f"searches/{search.id}/stop", "POST")
    assert answer["outcome"] == "asked" and search.folder.requested("stop")
    search.show(2, state=ev.STOPPED)
    _, answer, _ = await ask(f"searches/{search.id}/stop", "POST")
    assert answer["outcome"] == "ended"
    status, answer, _ = await ask(f"searches/{search.id}", "DELETE")
    assert status == 409 and "tuned_1 is RUNNING" in answer["message"]
    for run in store.list_runs():
        store.RunFolder(run.folder).update({"state": ev.FINISHED})
    assert (await ask(f"searches/{search.id}", "DELETE"))[0] == 204
    assert [run.id for run in store.list_runs()] == [kept.path.name] and not store.list_searches()


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:50],
        lambda text: "",
        lambda text: "[1]",
        lambda text: json.dumps({**json.loads(text), "trials": [1]}),
        lambda text: json.dumps({**json.loads(text), "trials": [{"n": "1"}]}),
        lambda text: json.dumps({**json.loads(text), "state": None}),
        lambda text: json.dumps({**json.loads(text), "state": {"state": []}}),
    ],
)
async def test_a_damaged_view_is_told_and_the_list_stays(ask, damage):
    search = StoredSearch(2)
    path = search.folder.view_path
    path.write_text(damage(path.read_text()))
    status, answer = await view(ask, search.id)
    assert status == 409 and "cannot be read" in answer["message"]
    assert len((await ask("runs"))[1]["searches"]) == 1


async def test_a_search_that_cannot_be_read_is_not_listed_and_its_runs_are(ask):
    search = StoredSearch(1)
    (search.folder.path / "search.json").write_text("{")
    _, answer, _ = await ask("runs")
    assert answer["searches"] == [] and len(answer["runs"]) == 1
    assert (await view(ask, search.id))[0] == 404
    for path in ("..%2F..", "nothing", "."):
        assert (await ask(f"searches/{path}/view"))[0] == 404
