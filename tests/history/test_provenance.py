"""What a run ran with: kept beside it, read back whatever the file has become, without secrets."""

import gzip
import json
import os
import re
import subprocess
import zlib
from importlib import metadata
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
from hypothesis import strategies as st
from support.bad_input import STRANGE_EVENTS, each, numbered, tried
from support.fake_cluster import FakeCluster, state, training
from support.stored import finished
from support.until import until

from ddl_magics.history import git, notebook_copy, provenance
from ddl_magics.history.description import described
from ddl_magics.history.keeper import Keeper, in_ranges
from ddl_magics.options.parsing import parse
from ddl_magics.options.redaction import masked_source
from ddl_magics.runtime import events as ev
from ddl_magics.runtime.provenance import frames, packages, values
from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.session.session import Session


@pytest.fixture(autouse=True)
def folder(data_dir, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def in_git(folder, *arguments):
    identity = ("-c", "user.name=me", "-c", "user.email=me@host")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


def repository(folder):
    in_git(folder, "init", "-b", "main")
    (folder / "train.py").write_text("rate = 1\n")
    in_git(folder, "add", "train.py")
    in_git(folder, "commit", "-m", "first")
    in_git(folder, "remote", "add", "origin", "https://me:hidden@host/repo.git")


def environment(rank, **fields):
    return ev.make("environment", rank, **fields)


def of_driver():
    told = {
        "python": "3.11.7",
        "platform": "Linux",
        "host": "driver",
        "packages": {"numpy": "2.4.6", "tensorflow": "2"},
    }
    spark = {"version": "3.5.9", "master": "yarn", "settings": {"spark.executor.cores": "2"}}
    return environment(ev.JOB, **told, spark=spark, sent={"x": {"type": "int", "sha256": "1f"}})


def test_a_run_keeps_packages_settings_git_notebook_and_values(folder, monkeypatch):
    repository(folder)
    (folder / "train.py").write_text("rate = 2\n")
    (folder / "new.py").write_text("")
    cells = [{"cell_type": "code", "id": "a", "source": ["x = 1\n", "x"], "outputs": [{"data": "long"}]}]
    (folder / "digits.ipynb").write_text(json.dumps({"cells": cells}))
    monkeypatch.setenv("JPY_SESSION_NAME", str(folder / "digits.ipynb"))
    rest = list(training())
    ranks = [environment(rank, like=-1, packages={}) for rank in (0, 1)]
    script = [of_driver(), *rest[:2], *ranks, *rest[2:]]
    run = Session(FakeCluster(script)).submit(parse("--name digits"), {}).wait(10)
    until(lambda: run.provenance.ranks and run.provenance.kernel, 10)
    kept = run.provenance
    assert kept.kernel["packages"]["numpy"] == np.__version__ and kept.kernel["host"]
    assert kept.packages == {"numpy": "2.4.6", "tensorflow": "2"}
    assert [(group["ranks"], group["host"]) for group in kept.ranks] == [("0", "host0"), ("1", "host1")]
    assert kept.spark["settings"] == {"spark.executor.cores": "2"} and kept.sent["x"]["sha256"] == "1f"
    assert (kept.git["branch"], kept.git["changed"], kept.git["untracked"]) == (
        "main",
        True,
        ["digits.ipynb", "new.py"],
    )
    assert "-rate = 1\n+rate = 2" in kept.git["diff"] and kept.git["remote"] == "https://host/repo.git"
    assert kept.notebook["cells"] == [{"type": "code", "id": "a", "source": "x = 1\nx"}]
    titles = [section.title for section in described(kept)]
    assert titles[:3] == ["Code", "Notebook", "Variables of the cell"] and "Packages of the cluster" in titles
    size = (run._folder.path / provenance.NAME).stat().st_size
    assert size < 20_000


def test_without_provenance_nothing_is_kept():
    cluster = FakeCluster([of_driver(), *training()])
    run = Session(cluster).submit(parse("--name digits --no-provenance"), {}).wait(10)
    assert cluster.launched[run.id].to_record()["provenance"] is False
    assert not run.provenance and not (run._folder.path / provenance.NAME).exists()


def test_without_git_or_a_notebook_their_parts_are_empty(folder, monkeypatch):
    assert git.state(folder) == {} and git.state(folder / "none") == {}
    monkeypatch.setenv("PATH", str(folder))
    assert git.state(folder) == {}
    assert notebook_copy.copy("", str(folder)) == {}
    assert notebook_copy.copy("none.ipynb", str(folder)) == {"path": "none.ipynb"}
    (folder / "bad.ipynb").write_text('{"cells": [1]}')
    assert notebook_copy.copy("bad.ipynb", str(folder)) == {"path": "bad.ipynb"}


def test_git_executes_nothing_that_the_repository_configures(folder):
    repository(folder)
    (folder / "train.py").write_text("rate = 2\n")
    told = folder / "told"
    for key in ("core.fsmonitor", "diff.external", "diff.py.textconv"):
        in_git(folder, "config", key, f"touch {told}; cat")
    (folder / ".gitattributes").write_text("*.py diff=py\n")
    assert "+rate = 2" in git.state(folder)["diff"]
    assert not told.exists()


def test_long_differences_and_notebooks_are_cut(folder, monkeypatch):
    repository(folder)
    monkeypatch.setattr(git, "MAX_CHARACTERS", 200)
    monkeypatch.setattr(notebook_copy, "MAX_CHARACTERS", 10)
    (folder / "train.py").write_text("rate = 2\n" * 1000)
    found = git.state(folder)
    assert found["cut"] and len(found["diff"]) <= 200
    cells = [{"cell_type": "code", "source": source} for source in ("12345678", "90123")]
    (folder / "a.ipynb").write_text(json.dumps({"cells": cells}))
    found = notebook_copy.copy("a.ipynb", str(folder))
    assert found["cut"] and [cell["source"] for cell in found["cells"]] == ["12345678"]


@pytest.mark.parametrize(
    "line",
    [
        'password = "hidden"',
        "api_key: hidden",
        "+AWS_SECRET_ACCESS_KEY=hidden/hidden",
        "login(token='hid\\'den', user='hidden')",
        'url = "postgresql://me:hidden@host/db"',
        "key = 'sk-hiddenhiddenhiddenhidden'",
        "push = 'ghp_hidden890123456789012345'",
        "DB_PASS=hidden",
        'os.environ["PGPASS"] = "hidden"',
        'requests.get(url, auth=("me", "hidden"))',
        '{"username": "me", "key": "' + "0123456789abcdef" * 2 + '", "x": "hidden"}',
        "!hf login --token hidden",
        "-----BEGIN RSA PRIVATE KEY-----\nhidden\nhidden\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\nhidden",
    ],
)
def test_secrets_in_sources_are_masked(line):
    assert "hidden" not in masked_source(f"a = 1\n{line}\n") and "***" in masked_source(line)


def test_other_lines_stay():
    for text in ("if x: pass\n", "compass: 3\n", "sort_key = 1\n", "def bypass(x):\n", "--key-frames 3\n"):
        assert masked_source(text) == text
    for text in ("rate = 0.1\n", "tokenizer.fit(texts)\n", '+    layers.Dense(10, "relu")\n', "a\r\nb"):
        assert masked_source(text) == text


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is damaged"),
        (b"no gzip", "is damaged"),
        (gzip.compress(b"no json"), "is damaged"),
        (gzip.compress(b"[" * 100_000), "is damaged"),
        (gzip.compress(b'{"format": 1}')[:-4], "is damaged"),
        (gzip.compress(b"[1]"), "is of another version"),
        (gzip.compress(b'{"format": 99}'), "is of another version"),
        (zlib.compress(b'{"format": 1}'), "is damaged"),
        (gzip.compress(b" " * (provenance.MAX_BYTES + 1)), "is damaged"),
    ],
    ids=range(9),
)
def test_a_damaged_or_foreign_file_is_a_line(content, problem):
    run = finished()
    (run.path / provenance.NAME).write_bytes(content)
    kept = provenance.read(run.path)
    assert problem in kept.problem and "\n" not in kept.problem and not kept
    assert [section.title for section in described(kept)] == ["Provenance"]


def test_parts_of_other_types_are_left_out():
    run = finished()
    wrong = {name: [1, {"a": 1}, None] for name in (*provenance.SECTIONS, "ranks")} | {
        "kernel": {"packages": {"a": 1, "b": "2", "c": "1\n--extra-index-url http://stranger", "d @ file:///e": "1"}}
    }
    wrong |= {"sent": {"x": {"shape": [1, "a"], "sha256": 7, "type": "int"}}, "git": {"commit": 7}}
    provenance.write(run.path, wrong)
    kept = provenance.read(run.path)
    assert kept.kernel["packages"] == {"b": "2"}, "what would be no line of a requirements.txt is left out, too"
    assert kept.sent == {"x": {"type": "int"}} and kept.git == {}
    described(kept)


def test_a_text_in_the_place_of_a_number_or_a_list_is_left_out():
    run = finished()
    names = ("bytes", "length", "rows", "validation_rows", "files", "shape", "sampled", "columns", "sources")
    wrong = {"type": "int", **dict.fromkeys(names, "9")}
    notebook = {"path": "a.ipynb", "saved": "9", "cells": []}
    provenance.write(run.path, {"sent": {"x": wrong}, "data": wrong, "notebook": notebook})
    kept = provenance.read(run.path)
    assert kept.sent == {"x": {"type": "int"}} and kept.data == {"type": "int"} and "saved" not in kept.notebook
    described(kept)


@tried(30, 3000)
def test_no_event_stops_the_keeper(count):
    run = finished()

    def feed(events):
        Keeper(RunSpec(run=run.path.name), run, attached=True).feed(numbered([*events, state(ev.RUNNING)]))
        described(provenance.read(run.path))

    each(st.lists(STRANGE_EVENTS.filter(ev.is_sound), max_size=12), count, feed)
    assert (run.path / provenance.NAME).exists()


def test_a_full_disk_costs_the_file_alone(monkeypatch):
    monkeypatch.setattr(provenance, "write_atomically", Mock(side_effect=OSError(28, "No space left on device")))
    run = Session(FakeCluster([of_driver(), *training()])).submit(parse("--name digits"), {}).wait(10)
    assert run.state == ev.FINISHED and not run.provenance


def test_packages_are_those_of_the_folders(folder):
    for name in ("foo_bar-1.0.dist-info", "baz-2.0-py3.11.egg-info", "foo.bar-3.0.dist-info", "x.dist-info", "y-1"):
        (folder / name).mkdir()
    assert packages.installed([str(folder), "/none"]) == {"foo-bar": "3.0", "baz": "2.0"}
    names = (re.sub(r"[-_.]+", "-", found.name).lower() for found in metadata.distributions())
    assert set(names) <= set(packages.installed()), "as Python's own importlib.metadata, which reads every one"
    assert packages.installed()["numpy"] == metadata.version("numpy")


def test_ranks_tell_what_differs_alone():
    distinct = packages.Distinct({"a": "1", "b": "2"})
    assert distinct.add(0, {"a": "1", "b": "2"}) == (-1, {})
    assert distinct.add(1, {"a": "1", "c": "3"}) == (-1, {"c": "3", "b": None})
    assert distinct.add(2, {"a": "1", "c": "3"}) == (1, {})
    assert packages.merged({"a": "1", "b": "2"}, {"c": "3", "b": None}) == {"a": "1", "c": "3"}
    assert in_ranges([0, 1, 2, 5]) == "0-2, 5"


def test_fingerprints_tell_equal_values_from_others(monkeypatch):
    def f():
        return 1

    def g():
        return 2

    same = [
        (np.arange(6.0), np.arange(6.0)),
        (np.arange(6).reshape(2, 3).T, np.ascontiguousarray(np.arange(6).reshape(2, 3).T)),
        ({"a": [1, 2.5, "x"]}, {"a": [1, 2.5, "x"]}),
        ({3, 1, 2}, {1, 2, 3}),
        (pd.DataFrame({"a": [1, 2]}), pd.DataFrame({"a": [1, 2]})),
        (f, f),
    ]
    others = [
        (np.arange(6.0), np.arange(6)),
        (np.arange(6.0), np.arange(6.0).reshape(2, 3)),
        ([1, 2], [2, 1]),
        ([1, 2], (1, 2)),
        (["ab", "c"], ["a", "bc"]),
        (1, 1.0),
        (pd.DataFrame({"a": [1, 2]}), pd.DataFrame({"b": [1, 2]})),
        (f, g),
    ]
    for one, other in same:
        assert values.fingerprint(one) == values.fingerprint(other) and "sha256" in values.fingerprint(one)
    for one, other in others:
        assert values.fingerprint(one) != values.fingerprint(other)
    monkeypatch.setattr(values, "WHOLE_BYTES", 1 << 20)
    large = np.zeros(1 << 22, np.uint8)
    before = values.fingerprint(large)
    large[-1] = 1
    assert before["sampled"] and values.fingerprint(large) != before
    turned = np.zeros((1 << 11, 1 << 11), np.uint8).T
    assert values.fingerprint(turned)["sampled"]
    assert "sha256" not in values.fingerprint(object()) and values.fingerprint(os)["type"] == "module"
    assert "os" not in values.fingerprints({"os": os, "x": 1})
    assert values.fingerprints({"api_token": "1234"}) == {"api_token": {"type": "str"}}, "a hash of it could be guessed"


def test_plans_of_other_sessions_are_the_same():
    one = "Project [a#12L, b#13]\n+- LogicalRDD [a#12L, b#13], false RDD[4]"
    other = "Project [a#7L, b#9]\n+- LogicalRDD [a#7L, b#9], false RDD[8]"
    assert frames.normalized(one) == frames.normalized(other)
    assert frames.normalized(one) != frames.normalized(one.replace("b#13", "c#13"))
