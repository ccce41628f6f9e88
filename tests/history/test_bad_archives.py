"""Archives of strangers by the thousand: `%ddl import` takes all of one or nothing, and what it took can be read."""

import contextlib
import hashlib
import io
import json
import shutil
import zipfile

import numpy as np
import pytest
from IPython.core.error import UsageError
from support import strangers
from support.fake_cluster import state, training
from support.invented_search import StoredSearch
from support.stored import stored

from ddl_magics import store
from ddl_magics.__main__ import main
from ddl_magics.clusters.choice import Choice
from ddl_magics.commands import transfer
from ddl_magics.commands.kernel import Kernel
from ddl_magics.errors import DistributedCellError, InOneLine
from ddl_magics.history import bundle, provenance
from ddl_magics.runs import Run, run_text
from ddl_magics.runtime import events as ev
from ddl_magics.runtime.variables.left import FILE as VARIABLES
from ddl_magics.runtime.variables.left import INDEX
from ddl_magics.search import Search
from ddl_magics.search.plan import objectives
from ddl_magics.server.listing import Listing
from ddl_magics.server.search_views import SearchViews
from ddl_magics.server.view_service import ViewService
from ddl_magics.session.session import Session
from ddl_magics.store import files


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """`machine(name)`: the store of another machine, whose folder is returned; nothing of it waits for a disk."""
    for name in ("synchronize", "synchronize_folder", "synchronize_tree"):
        monkeypatch.setattr(files, name, lambda *_: None)
        if hasattr(bundle, name):
            monkeypatch.setattr(bundle, name, lambda *_: None)

    def switch(name):
        monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / name))
        return tmp_path / name

    return switch


def a_run():
    failure = {"rank": 1, "host": "h", "kind": "error", "message": "no", "traceback": "Traceback"}
    folder = stored(ev.FAILED, [*list(training())[:-1], state(ev.FAILED, "no", failure=failure)], created=5.0)
    folder.update({"ended": 9.0, "failure": failure, "progress": {"epoch": 2, "epochs": 2, "metrics": {"loss": 0.5}}})
    folder.label(["good"], "the title", "a note")
    folder.file("model-0.keras").write_bytes(b"model" * 100)
    git = {"commit": "abc", "changed": True, "diff": "+x", "untracked": ["a.py"]}
    sent = {"x": {"type": "ndarray", "shape": [3, 2], "bytes": 24, "hash": "0"}}
    cells = {"path": "a.ipynb", "saved": 5.0, "cells": [{"type": "code", "source": "x", "id": "1"}]}
    packages = {"python": "3.11", "packages": {"keras": "3.15.1"}}
    about = {"kernel": packages, "driver": packages, "ranks": [{"ranks": "0-1", "host": "h", "cores": 2}]}
    provenance.write(folder.path, {**about, "git": git, "sent": sent, "notebook": cells, "spark": {"version": "3"}})
    return folder


def a_finished_run():
    """With variables and a result, which no run that failed has."""
    index = {"values": {"x": 1, "y": {"object": 0}}, "changed": {}, "trained": {}, "absent": {"z": "it is too large"}}
    index |= {"of_keras": {}, "deleted": [], "defined": ["f"], "objects": [{"array": 0}], "streams": {}}
    artifact = ev.make("artifact", 0, name=VARIABLES, size=1, sha256="0")
    result = ev.make("result", 0, value=None, encoding="json", artifact="result.json")
    np.save(array := io.BytesIO(), np.float32([[1.0, 2.0]]))
    folder = stored(ev.FINISHED, [*list(training())[:-1], artifact, result, state(ev.FINISHED)], name="ended")
    with zipfile.ZipFile(folder.file(VARIABLES), "w") as archive:
        archive.writestr(INDEX, json.dumps(index))
        archive.writestr("0.npy", array.getvalue())
    folder.file("result.json").write_text('{"loss": [1.0, 2.0]}')
    return folder


def a_search():
    search = StoredSearch(ended=4, runs=2, planned=6)
    search.show(4, state=ev.FINISHED)
    _, study, ranges = search.study()
    for number in range(4):
        trial = study.ask(ranges)
        trial.set_user_attr("run", [search.run(number % 2).path.name])
        trial.report(0.5, 1)
        trial.report(0.6, 2)
        study.tell(trial, 0.6)
    return search.folder


@pytest.fixture
def archive(machine, tmp_path):
    """The files of an archive, name -> content, of a run and a search with two trials."""
    machine("theirs")
    search = a_search()
    runs = [
        a_run().record(),
        a_finished_run().record(),
        *(trial for trials in search.runs().values() for trial in trials),
    ]
    bundle.write(tmp_path / "theirs.zip", runs, search.record())
    with zipfile.ZipFile(tmp_path / "theirs.zip") as source:
        return {name: source.read(name) for name in source.namelist() if name != bundle.MANIFEST}


def manifest(entries):
    return {
        "format": 1,
        "ddl_magics": "1",
        "files": {
            name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in entries.items()
        },
    }


def in_transit(entries, chance):
    """The zip as it may be damaged, or made: its bytes, its entries, its list."""
    whole = {**entries, bundle.MANIFEST: json.dumps(manifest(entries)).encode()}
    if chance.randrange(3) == 0:
        whole[bundle.MANIFEST] = strangers.json_file(manifest(entries), chance)
    return strangers.zip_file(whole, chance)


def as_made(entries, chance):
    """A zip with a right list, of files whose contents nobody here would write."""
    import gzip

    entries = dict(entries)
    for name in chance.sample(sorted(entries), chance.choice((1, 1, 2, 4))):
        data = entries[name]
        if name.endswith((".jsonl", ".journal")):
            entries[name] = strangers.lines_file([json.loads(line) for line in data.splitlines()], chance)
        elif name.endswith(".gz"):
            changed = strangers.json_file(json.loads(gzip.decompress(data)), chance)
            packed = gzip.compress(changed, 1)
            entries[name] = packed if chance.randrange(4) else strangers.bytes_of(packed, chance)
        elif name.endswith(".json"):
            entries[name] = strangers.json_file(json.loads(data), chance)
        else:
            entries[name] = strangers.bytes_of(data, chance)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as target:
        for name, data in {**entries, bundle.MANIFEST: json.dumps(manifest(entries)).encode()}.items():
            target.writestr(name, data)
    return buffer.getvalue()


def terminal(*words):
    """What a command of the terminal prints; an error of it is one line."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(list(words))
    for text in (out.getvalue(), err.getvalue()):
        strangers.for_a_terminal(text)
    if status:
        strangers.in_one_line(err.getvalue().rstrip("\n"))


def read_run(record):
    """What a person, a notebook and the panel's server do with a run that was imported."""
    assert record.imported and record.driver_address == {}
    run = Run.stored(record)
    strangers.for_a_terminal(run_text.describe(run))
    repr(run), run.history, run.histories, run.files, run.pictures, run.metrics, run.workers, run.tags, run.note
    run.logs().encode(), run.provenance, run.attachable
    for read in (lambda: run.result, lambda: [run.variables[name] for name in run.variables]):
        try:
            read()
        except DistributedCellError:
            pass
        except (InOneLine, ValueError) as error:
            strangers.in_one_line(str(error), 900)
    service = ViewService()
    view = service.update(record, "", 0)
    while view["more"]:
        view = service.update(record, view["page"], view["message"]["n"])
    json.dumps(view)


def read_search(record):
    assert record.imported
    search = Search.stored(record)
    try:
        strangers.for_a_terminal(str(search))
        search.trials, search.front, search.view.best, objectives(search.spec)
    except (InOneLine, UsageError) as error:
        strangers.in_one_line(str(error))
    with contextlib.suppress(LookupError):
        json.dumps(SearchViews().update(record, ""))


def look_at(imported, commands):
    records = store.list_runs()
    assert {record.id for record in records} == set(imported.runs)
    strangers.for_a_terminal(run_text.runs_table(records))
    json.dumps(list(Listing().page(10, None, False, "").runs))
    for record in records:
        read_run(record)
    for record in store.list_searches():
        read_search(record)
    for words in commands:
        terminal(*words)


@pytest.fixture
def tried_archive(machine, tmp_path):
    """`tried_archive(data)`: import it into an empty store, and look at all that it has brought."""
    mine, path, outside = machine("mine"), tmp_path / "bad.zip", tmp_path / "outside"
    outside.mkdir()
    kernel = Kernel(Session(None, Choice(None).cluster), choice=Choice(None), end_run=None)
    before = strangers.tree(tmp_path / "theirs")

    def read(data):
        path.write_bytes(data)
        machine("mine")
        try:
            try:
                strangers.for_a_terminal(str(transfer.import_(kernel, str(path))))
            except InOneLine as error:
                strangers.in_one_line(str(error), most=700 + len(str(tmp_path)))
                assert not [*mine.glob("ddl_magics/*/*")], "nothing, not even a part"
                return "refused"
            runs = [folder.name for folder in store.runs_folder().iterdir()]
            assert not [name for name in runs if name.startswith(".")]
            one = min(runs)
            commands = [("runs",), ("show", one), ("logs", one)] if data[-1] % 8 == 0 or len(data) % 8 == 0 else ()
            look_at(bundle.Imported(tuple(runs), ()), commands)
            return "imported"
        finally:
            shutil.rmtree(mine, ignore_errors=True)

    yield read
    assert strangers.tree(tmp_path / "theirs") == before and not [*outside.iterdir()]


@strangers.tried(15, 2000)
def test_an_archive_that_was_damaged_or_forged(archive, tried_archive, tmp_path, count):
    watch = strangers.Watch("archives", tmp_path / "mine", tmp_path / "bad.zip")
    watch.each(count, lambda chance: in_transit(archive, chance), tried_archive)


@strangers.tried(8, 1500)
def test_an_archive_with_contents_that_nobody_here_would_write(archive, tried_archive, tmp_path, count):
    watch = strangers.Watch("contents of archives", tmp_path / "mine", tmp_path / "bad.zip")
    watch.each(count, lambda chance: as_made(archive, chance), tried_archive)
