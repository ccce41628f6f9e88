"""Where a run's secret is: in the memory of its processes, and nowhere else that others can look into."""

import base64
import contextlib
import os
import tempfile
from pathlib import Path

import pytest
from support import launch, trainings

from ddl_magics import store

SECRET = os.urandom(32)
#: Of a file that is looked into: a larger one has rows.
MOST_BYTES = 50_000_000


def _written(pids, folders):
    """(what these processes show of themselves to others, what is in these folders)."""
    for pid in pids:
        for name in ("cmdline", "environ"):
            yield f"{name} of {pid}", Path(f"/proc/{pid}/{name}").read_bytes()
    for folder in folders:
        for path in Path(folder).rglob("*"):
            with contextlib.suppress(OSError):  # another process' file that is gone
                if path.is_file() and not path.is_symlink() and path.stat().st_size < MOST_BYTES:
                    yield str(path), path.read_bytes()


def _addresses(pids):
    """The addresses on which these processes listen, as /proc has them."""
    inodes = {}
    for table in ("tcp", "tcp6"):
        for fields in map(str.split, Path(f"/proc/net/{table}").read_text().splitlines()[1:]):
            if fields[3] == "0A":
                inodes[f"socket:[{fields[9]}]"] = fields[1].rpartition(":")[0]
    links = [os.readlink(link) for pid in pids for link in Path(f"/proc/{pid}/fd").iterdir() if link.exists()]
    return {inodes[link] for link in links if link in inodes}


@pytest.mark.parametrize("strategy", ["allreduce", "ps"])
def test_the_secret_is_in_no_event_file_command_line_or_environment_and_ports_are_on_loopback(
    rank_pool, our_processes, strategy, monkeypatch, tmp_path
):
    network = launch.load_driver().__package__ + ".driver_network"
    monkeypatch.setattr(f"{network}.secrets.token_bytes", lambda size: SECRET[:size])
    before = _addresses([os.getpid()])
    running = launch.start(rank_pool(2), trainings.source(epochs=100_000, pause=0.1), strategy=strategy)
    running.until(lambda _: running.of_kind("steps"), seconds=90)
    pids = [os.getpid(), *our_processes()]
    forms = [SECRET, SECRET.hex().encode(), base64.b64encode(SECRET), repr(SECRET).encode()]
    folders = [folder for folder in Path(tempfile.gettempdir()).glob("ddl-*") if (folder / ".owner").exists()]
    looked_at = 0
    for place, content in _written(pids, [*folders, store.runs_folder()]):
        looked_at += 1
        assert not any(form in content for form in forms), place
    assert looked_at > 2 * len(pids)
    assert _addresses(pids) - before <= {"0100007F"}, "127.0.0.1"
    ended = running.stopped(30)
    assert not any(form.decode(errors="replace") in repr(ended.events) for form in forms[1:])
