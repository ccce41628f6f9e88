"""Stored runs with every file cut off and overwritten anywhere: the list stays, and the run is read or marked."""

import json
import random

import pytest
from IPython.core.error import UsageError
from support.bad_input import JSON, each, tried
from support.fake_cluster import state, training
from support.stored import finished, stored

from ddl_magics import store
from ddl_magics.dashboard.static import static_bundle
from ddl_magics.runs import Run, attaching, run_text
from ddl_magics.runtime import events as ev
from ddl_magics.server.listing import Listing
from ddl_magics.server.view_service import ViewService
from ddl_magics.store import cleaning, snapshots

FILES = ("run.json", "owner.json", "labels.json", "events.jsonl", "history.json")


@pytest.fixture(autouse=True)
def folder(data_dir, monkeypatch):
    monkeypatch.setattr(snapshots, "EVENTS", 8)


@pytest.fixture
def damaged():
    """A run with all files that a run can have, and another one beside it."""
    finished(name="whole")
    failure = {"rank": 1, "host": "h", "kind": "error", "message": "no", "traceback": "Traceback"}
    folder = stored(ev.FAILED, [*list(training())[:-1], state(ev.FAILED, "no", failure=failure)], created=5.0)
    folder.update({"ended": 9.0, "failure": failure, "progress": {"epoch": 2, "epochs": 2, "metrics": {"loss": 0.5}}})
    folder.label(["good"], "the title")
    snapshots.Snapshots(folder, 2).feed(list(folder.events()))
    assert all((folder.path / name).exists() for name in FILES)
    return folder


def read_all(folder):
    """What a person and a server do with the store; returns the run's record, or None where it is unreadable."""
    table = run_text.runs_table(store.list_runs())
    assert "whole" in table
    listing = Listing()
    rows = {row["id"]: row for row in listing.page(10, None, False, "").runs}
    assert len(rows) == 2 and json.dumps(list(rows.values()))
    cleaning.choose(cleaning.stored_runs(), cleaning.Policy(keep=1.0), 1e9)
    record = folder.record()
    if record is None:
        assert rows[folder.path.name]["problem"], "it is listed as unreadable"
        return None
    run = Run.stored(record)
    run_text.describe(run).encode()
    repr(run), run.history, run.histories, run.files, run.pictures, run.logs().encode(), run.metrics, run.workers
    static_bundle({"id": run.id}, run.events)
    service = ViewService()
    view = service.update(record, "", 0)
    while view["more"]:
        view = service.update(record, view["page"], view["message"]["n"])
    json.dumps(view)
    service.replay(record)
    with pytest.raises(UsageError):
        attaching.find_stored(record, lambda address: None)
    return record


@pytest.mark.parametrize("name", FILES)
@tried(150, 1)
def test_a_file_that_ends_anywhere(damaged, name, count):
    """At every 100th byte in the usual test, as far as `count` goes; at every byte, slowly."""
    path = damaged.path / name
    content = path.read_bytes()
    step = max(100, len(content) // 12) if count == 150 else 7
    for length in range(0, len(content), step):
        path.write_bytes(content[:length])
        read_all(damaged)


@pytest.mark.parametrize("name", FILES)
@tried(8, 500)
def test_random_bytes_in_a_file(damaged, name, count):
    path, chance = damaged.path / name, random.Random(name)
    content = path.read_bytes()
    for number in range(count):
        data = bytearray(content)
        at, length = chance.randrange(len(data)), chance.choice((1, 1, 2, 50))
        data[at : at + length] = (
            chance.randbytes(length) if number % 2 else chance.choices(b'0919eE.-",:{}[]', k=length)
        )
        path.write_bytes(data)
        try:
            read_all(damaged)
        except BaseException as error:
            raise AssertionError(
                f"{name} at {at}: {bytes(data[at : at + length])!r} in {bytes(data[at - 30 : at + 60])}"
            ) from error


@tried(40, 1000)
def test_fields_of_other_types(damaged, count):
    """A `run.json` as a later version, or nobody, would write it."""
    content = json.loads((damaged.path / "run.json").read_text())
    chance = random.Random(1)

    def check(value):
        changed = json.loads(json.dumps(content))
        where = chance.choice(
            [changed, changed["spec"], changed["progress"], changed["failure"], changed["environment"]]
        )
        name = chance.choice([*where, "later"])
        where[name] = value
        (damaged.path / "run.json").write_text(json.dumps(changed))
        (damaged.path / "labels.json").write_text(json.dumps({"labels": value, "title": value}))
        (damaged.path / "owner.json").write_text(json.dumps({"pid": value, "heartbeat": value, "host": value}))
        try:
            read_all(damaged)
        except BaseException as error:
            raise AssertionError(f"{name} is {ascii(value)[:300]}") from error

    each(JSON, count, check)
