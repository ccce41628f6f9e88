"""A checkpoint has one monitor: the second is refused, and what a killed one had is free."""

import os
import signal
import subprocess
import sys

import pytest

from ddl_magics.runtime.driver import monitor_lock
from ddl_magics.runtime.driver.monitor_lock import CheckpointInUse, CheckpointLock

PROGRAM = """
import os, sys, time, types
from ddl_magics.runtime.driver.monitor_lock import CheckpointLock
lock = CheckpointLock(types.SimpleNamespace(local_path=sys.argv[1]), "r")
child = os.fork()
if child:
    print(child, flush=True)
time.sleep(60)
"""


class Here:
    """A folder of this machine."""

    def __init__(self, path):
        self.local_path = str(path)

    def inside(self, name):
        return f"file:{self.local_path}/{name}"


class Storage:
    """A folder of another storage, with its own clock."""

    local_path = None

    def __init__(self):
        self.clock, self.files = 1000.0, {"counts-1.json": 1.0}

    def inside(self, name):
        return f"hdfs://host/watch/{name}"

    def touch(self, name):
        self.files[name] = self.clock

    def delete(self, name):
        self.files.pop(name, None)

    def times(self, prefix):
        return {name: touched for name, touched in self.files.items() if name.startswith(prefix)}


def test_the_second_monitor_of_a_process_is_refused_in_one_line(tmp_path):
    first = CheckpointLock(Here(tmp_path / "watch"), "a")
    message = r"^another monitor has the checkpoint file:.*/watch: stop that one first, or name .* --checkpoint$"
    with pytest.raises(CheckpointInUse, match=message):
        CheckpointLock(Here(tmp_path / "watch"), "b")
    (tmp_path / "link").symlink_to(tmp_path / "watch")
    with pytest.raises(CheckpointInUse):
        CheckpointLock(Here(tmp_path / "link"), "b")
    CheckpointLock(Here(tmp_path / "another"), "b").release()
    first.renew()
    first.release()
    CheckpointLock(Here(tmp_path / "watch"), "b").release()
    first.release()


def test_the_lock_ends_with_its_process_though_a_child_of_it_lives(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    child = int(process.stdout.readline())
    try:
        with pytest.raises(CheckpointInUse):
            CheckpointLock(Here(tmp_path), "b")
        process.kill()
        process.wait()
        CheckpointLock(Here(tmp_path), "b").release()
    finally:
        os.kill(child, signal.SIGKILL)
        process.stdout.close()


def test_on_another_storage_the_older_of_two_files_holds_until_it_is_silent(monkeypatch):
    storage = Storage()
    first = CheckpointLock(storage, "b")
    storage.clock += 1
    with pytest.raises(CheckpointInUse, match="hdfs://host/watch"):
        CheckpointLock(storage, "a")
    assert storage.times("owner-") == {"owner-b": 1000.0}, "what was refused leaves nothing"
    monkeypatch.setattr(monitor_lock, "TOUCH_SECONDS", 0.0)
    storage.clock += 59
    first.renew()
    assert storage.times("owner-") == {"owner-b": 1060.0}
    storage.clock += 61
    second = CheckpointLock(storage, "a")
    assert storage.times("owner-") == {"owner-a": 1121.0}
    with pytest.raises(RuntimeError, match="another monitor has taken the checkpoint"):
        first.renew()
    second.release()
    assert storage.files == {"counts-1.json": 1.0}
