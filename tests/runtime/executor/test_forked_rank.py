"""A rank that another process has forked, and what that process takes on; neither is started here."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from support.until import until

from ddl_magics.options.parsing import parse
from ddl_magics.runtime import package, scratch
from ddl_magics.runtime.executor import prewarmed, prewarmed_process, startup, worker
from ddl_magics.runtime.executor.forked_rank import ForkedRank
from ddl_magics.runtime.rank.config import RankConfig
from ddl_magics.runtime.transport import messages, wire
from ddl_magics.runtime.transport.credentials import Credentials


@pytest.fixture
def forked():
    """(a rank, the channel of the process that has forked it)."""
    ours, theirs = (wire.Channel(end, wire.Identity("rank", -1, 0)) for end in socket.socketpair())
    yield ForkedRank(7, None, None, ours), theirs
    ours.close()
    theirs.close()


def test_its_status_comes_from_the_process_that_has_forked_it(forked):
    rank, forking = forked
    with pytest.raises(subprocess.TimeoutExpired):
        rank.wait(0.05)
    forking.send_json(messages.FORK_ENDED, {"status": -signal.SIGTERM})
    assert rank.wait(5) == rank.wait() == rank.returncode == -signal.SIGTERM
    rank.release()
    assert forking.recv()[0] == messages.FORK_ENDED


def test_it_was_killed_where_that_process_is_gone(forked):
    rank, forking = forked
    forking.close()
    assert rank.wait(5) == -signal.SIGKILL


def test_of_two_that_wait_each_keeps_its_time(forked):
    rank, forking = forked
    told = []
    waiting = [threading.Thread(target=lambda: told.append(rank.wait())) for _ in range(2)]
    for thread in waiting:
        thread.start()
    until(rank._waiting.locked, 5)
    with pytest.raises(subprocess.TimeoutExpired):
        rank.wait(0.05)
    forking.send_json(messages.FORK_ENDED, {"status": 3})
    for thread in waiting:
        thread.join(5)
    assert told == [3, 3]


def test_a_fork_works_in_its_folder_with_its_variables_and_random_numbers_of_its_own(tmp_path, monkeypatch):
    for folder in ("home", "notebook"):
        (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "home"), "last"])
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    monkeypatch.setenv("GONE", "1")
    monkeypatch.setenv("THERE", "old")
    claim = {"folder": str(tmp_path / "notebook"), "variables": {"THERE": "new", "GONE": None, "NEVER": None}}
    numbers = []
    for _ in range(2):
        np.random.seed(1)
        prewarmed_process._become(claim, str(tmp_path / "home"))
        numbers.append(np.random.random())
    assert os.getcwd() == str(tmp_path / "notebook") and sys.path == [str(tmp_path / "notebook"), "last"]
    assert (os.environ["THERE"], os.environ.get("GONE")) == ("new", None)
    assert tempfile.gettempdir() != "/nowhere"
    assert numbers[0] != numbers[1]
    monkeypatch.setattr(sys, "path", ["first"])
    prewarmed_process._become(claim, str(tmp_path / "home"))
    assert sys.path == ["first"]


def test_where_the_disk_is_full_none_is_prewarmed(tmp_path, monkeypatch):
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    monkeypatch.setattr(scratch, "make", lambda name: str(tmp_path / name))
    removed = []
    monkeypatch.setattr(scratch, "remove", removed.append)

    def full(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr(package, "unpack", full)
    prewarmed.start(None, None, b"", {})
    assert prewarmed._prewarmed is None and removed == [str(tmp_path / "prewarmed")]


@pytest.mark.parametrize(
    ("line", "manifest", "listens"),
    [
        ("--workers 2", None, True),
        ("--workers 1", None, False),
        ("--workers 2 --strategy ps", None, False),
        ("--workers 2 --strategy ps", {}, True),  # for all rows of --data
        ("--workers 1 --strategy ps", {}, False),
    ],
)
def test_a_rank_listens_only_where_others_come(monkeypatch, line, manifest, listens):
    sent = []
    spec = parse(line)
    config = RankConfig(spec, Credentials("run", b"secret" * 6), ("", 0), "3.5", 1, manifest=manifest)
    rank = worker._Worker(config, SimpleNamespace(send_json=lambda kind, value: sent.append((kind, value))))
    monkeypatch.setattr(rank, "_listen", lambda: None)
    rank._peers_known.set()
    listener = rank._meet()
    (address,) = [value["address"] for kind, value in sent if kind == messages.RANK_READY]
    assert (listener is not None) == listens == (address is not None)
    if listener is not None:
        listener.close()


@pytest.mark.parametrize(
    ("in_cell", "fitting", "aborts"), [(True, False, True), (True, True, False), (False, False, False)]
)
def test_what_tensorflow_waits_for_is_ended_unless_the_cell_was_interrupted(in_cell, fitting, aborts):
    aborted, asked = threading.Event(), threading.Event()

    class Stop:
        @property
        def in_cell(self):
            asked.set()
            return in_cell

    stop = Stop()
    stop.fitting = fitting
    startup._abort_later(SimpleNamespace(stop=stop), SimpleNamespace(STOP_SECONDS=0.01, abort=aborted.set))
    assert asked.wait(5) and aborted.wait(5 if aborts else 0.05) == aborts
