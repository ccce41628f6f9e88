"""Searches on disk: what is written, who owns it, and which trials are theirs."""

import json
import time

import pytest
from support.stored import claim, dead_process, kill_owner, stored

from ddl_magics import store
from ddl_magics.options.parsing import parse
from ddl_magics.runtime import events as ev
from ddl_magics.store.search_folder import SearchFolder, find_search, list_searches

pytestmark = pytest.mark.usefixtures("data_dir")

SPEC = parse("--trials 4 --objective val_loss:min,size:max").to_record()


def search(number=1, name="rates", state=ev.RUNNING, created=None, **spec):
    run = f"20261121-{number:06}-bbbbbb"
    return SearchFolder.create(
        {
            "created": time.time() if created is None else created,
            "spec": {**SPEC, "run": run, "name": name, **spec},
            "cluster": "this machine",
            "notebook": "a.ipynb",
            "state": state,
        }
    )


def change(folder, **fields):
    file = folder.path / "search.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))


def test_a_search_reads_back_without_its_secrets():
    folder = search(conf={"spark.ssl.keyPassword": "hidden"})
    folder.update({"progress": {"done": 2, "best": 0.5, "note": "text"}, "message": "2 of 4"})
    record = folder.record()
    assert (record.id, record.name, record.state, record.metric) == (folder.path.name, "rates", ev.RUNNING, "val_loss")
    assert (record.progress, record.message, record.over) == ({"done": 2, "best": 0.5}, "2 of 4", False)
    assert not record.imported and record.folder == folder.path
    assert "hidden" not in (folder.path / "search.json").read_text()
    assert (folder.path.stat().st_mode & 0o777, folder.journal.name) == (0o700, "study.journal")


@pytest.mark.parametrize(
    "fields",
    [
        {"format": 2},
        {"state": "SLEEPING"},
        {"created": None},
        {"created": -1},
        {"spec": {**SPEC, "run": "20261121-000002-bbbbbb"}},
        {"spec": {**SPEC, "run": "20261121-000001-bbbbbb", "trials": None}},
        {"spec": {**SPEC, "run": "20261121-000001-bbbbbb", "objective": None}},
        {"spec": 3},
        {"driver_address": 3},
    ],
)
def test_what_is_no_search_of_this_version_is_left_out(fields):
    folder = search()
    change(folder, **fields)
    assert folder.record() is None and list_searches() == []


def test_damaged_fields_that_a_list_does_not_need_are_left_out():
    folder = search()
    change(folder, progress=[1], ended="x", imported="yes")
    record = folder.record()
    assert (record.progress, record.ended, record.imported) == ({}, None, False)


def test_the_view_is_replaced_and_a_damaged_one_is_empty():
    folder = search()
    assert folder.view() == {}
    folder.write_view({"a": 1})
    folder.write_view({"b": 2})
    assert folder.view() == {"b": 2} and folder.view_path.read_text() == '{"b":2}'
    folder.view_path.write_text("{")
    assert folder.view() == {}


def test_a_search_whose_owner_died_reads_lost_and_can_be_taken_over():
    folder = search()
    claim(folder, heartbeat=7.0, **dead_process())
    assert (folder.record().state, folder.record().ended) == (ev.LOST, 7.0)
    folder.request("stop")
    folder.update({"message": "failed", "ended": 5.0})
    folder.take_over()
    record = folder.record()
    assert (record.state, record.message, record.ended) == (ev.RUNNING, "", None)
    assert folder.has_live_owner() and not folder.requested("stop")


def test_a_search_that_ended_is_never_lost():
    folder = search(state=ev.FINISHED)
    claim(folder, **dead_process())
    assert folder.record().state == ev.FINISHED


def test_a_search_that_failed_is_taken_over_and_one_that_another_process_follows_is_not():
    folder = search(state=ev.FAILED)
    folder.take_over()
    folder.take_over()  # it is this process'
    claim(folder, pid=1, start=store.owner.started(1))
    with pytest.raises(store.RunInUse, match=f"search {folder.path.name} is followed by another process"):
        folder.take_over()
    change(folder, format=2)
    with pytest.raises(store.RunInUse):
        folder.take_over()


def test_the_runs_of_a_trial_come_oldest_first_and_others_are_not_among_them():
    folder = search()
    trials = {"parent": folder.path.name}
    first, again = (stored(ev.FINISHED, created=at, trial=0, **trials) for at in (1.0, 2.0))
    other = stored(ev.FINISHED, created=3.0, trial=1, **trials)
    stored(ev.FINISHED, parent="another", trial=0)
    stored(ev.FINISHED, parent=folder.path.name)
    runs = {trial: [run.id for run in runs] for trial, runs in folder.runs().items()}
    assert runs == {0: [first.path.name, again.path.name], 1: [other.path.name]}


def test_a_search_is_discarded_with_its_trials_when_all_have_ended():
    folder = search()
    trial = stored(parent=folder.path.name, trial=0)
    with pytest.raises(store.RunInUse, match=f"search {folder.path.name} is RUNNING"):
        folder.discard()
    folder.update({"state": ev.FINISHED})
    with pytest.raises(store.RunInUse, match="its run digits is RUNNING"):
        folder.discard()
    trial.update({"state": ev.FINISHED})
    kept = stored(ev.FINISHED)
    folder.discard()
    assert [path.name for path in store.runs_folder().iterdir()] == [kept.path.name] and not folder.path.exists()


def test_searches_are_listed_newest_first_and_found_by_id_or_as_the_newest_of_a_name():
    assert list_searches() == [] and find_search("rates") is None
    old, new = search(1, created=10.0), search(2, created=20.0)
    search(3, "other", created=15.0)
    (new.path.parent / "notes").mkdir()
    assert [record.created for record in list_searches()] == [20.0, 15.0, 10.0]
    assert find_search("rates").id == new.path.name and find_search(old.path.name).id == old.path.name
    run = stored(name="rates", created=20.0)
    assert find_search("rates").id == new.path.name, "the run is not newer"
    run.update({"created": 21.0})
    assert find_search("rates") is None and find_search(new.path.name).id == new.path.name


def test_of_a_search_whose_kernel_is_gone_nothing_is_alive():
    folder = search()
    kill_owner(folder)
    assert not folder.has_live_owner()
