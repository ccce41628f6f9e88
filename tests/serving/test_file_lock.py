"""Locks between processes, here between two files of one process."""

import fcntl
import threading
import time

import pytest

from ddl_magics.errors import CannotServe
from ddl_magics.serving import file_lock
from ddl_magics.serving.file_lock import locked


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(file_lock, "RETRY_SECONDS", 0.01)


def test_one_has_the_lock_and_another_says_once_that_it_waits_and_gives_up(tmp_path):
    said = []
    with locked(tmp_path / "lock", 10, "starting a server", said.append):
        assert said == []
        with (
            pytest.raises(CannotServe, match=r"another process is still starting a server after 0 s: end it, or try"),
            locked(tmp_path / "lock", 0.1, "starting a server", said.append),
        ):
            pass
    assert said == ["another process is starting a server: waiting for it"]
    with locked(tmp_path / "lock", 0, "starting a server", said.append):
        assert len(said) == 1


def test_who_waits_gets_it_when_it_is_free(tmp_path):
    free, waiting = threading.Event(), threading.Event()

    def hold():
        with locked(tmp_path / "lock", 0, "x", print):
            free.set()
            assert waiting.wait(10)
            time.sleep(0.05)

    holder = threading.Thread(target=hold)
    holder.start()
    assert free.wait(10)
    with locked(tmp_path / "lock", 30, "x", lambda line: waiting.set()):
        assert waiting.is_set()
    holder.join()


def test_a_file_system_without_locks_gives_none(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError("no locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with locked(tmp_path / "lock", 0, "x", print):
        pass
