"""What the extension costs a server where nobody asks for runs, and what is left of it: nothing."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request

import pytest
from support.fake_cluster import training
from support.ports import free_port
from support.stored import finished, kill_owner, stored
from support.until import until

from ddl_magics.server import base, eventfile, listing
from ddl_magics.store import RunFolder

ROUTES = ("", "/events", "/view", "/logs/all", "/export?format=csv", "/export?format=html")


@pytest.fixture
def reads(monkeypatch):
    """A list that grows with each look at the store."""
    seen = []

    def watch(owner, name):
        real = getattr(owner, name)

        def called(*arguments, **more):
            seen.append(name)
            return real(*arguments, **more)

        monkeypatch.setattr(owner, name, called)

    for owner, name in ((listing, "stamp"), (listing, "_folders"), (eventfile, "read"), (listing, "summarize")):
        watch(owner, name)
    watch(RunFolder, "events_bytes")
    return seen


def open_files(folder):
    """Those of this process below the folder."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if path.startswith(str(folder)):
            found.append(path)
    return found


async def ask_for_everything(ask, folder):
    for route in ROUTES:
        assert (await ask(f"runs/{folder.path.name}{route}"))[0] == 200
    await ask("runs")


async def test_nothing_is_read_and_no_file_open_while_nobody_asks(ask, reads, runs_folder):
    await ask_for_everything(ask, stored(events=list(training())[:9]))
    before = len(reads)
    assert before > 10
    await asyncio.sleep(1.5)
    assert len(reads) == before and open_files(runs_folder) == []


async def test_who_has_left_is_waited_for_no_longer(
    ask, reads, jp_base_url, http_server_client, jp_auth_header, monkeypatch
):
    monkeypatch.setattr(base, "CHECK_SECONDS", 0.1)
    folder = stored(events=list(training())[:9])
    view = (await ask(f"runs/{folder.path.name}/view"))[1]
    port = http_server_client.get_http_port()
    path = f"{jp_base_url}ddl_magics/runs/{folder.path.name}/view?page={view['page']}&n={view['message']['n']}&wait=30"
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n".encode())
    writer.write(f"Authorization: {jp_auth_header['Authorization']}\r\n\r\n".encode())
    await asyncio.sleep(0.5)
    before = len(reads)
    await asyncio.sleep(0.5)
    assert len(reads) > before, "it is looked for news"
    writer.close()
    await asyncio.sleep(0.5)
    before = len(reads)
    await asyncio.sleep(0.5)
    assert len(reads) == before


async def test_it_has_no_threads_of_its_own(ask):
    """Work is done by the pool of the event loop, which ends with it."""
    before = set(threading.enumerate())
    await ask_for_everything(ask, finished())
    assert {thread.name.rpartition("_")[0] for thread in set(threading.enumerate()) - before} <= {"asyncio"}


def test_a_server_that_is_told_to_end_ends_while_somebody_waits(tmp_path):
    """For events of a run that goes on, and for the stop of one whose kernel is gone."""
    live, lost = (stored(events=list(training())[:9], place={"livy": "http://127.0.0.1:1", "session": 1}) for _ in "ab")
    kill_owner(lost)
    port = free_port()
    options = [f"--port={port}", "--ServerApp.port_retries=0", "--no-browser", "--allow-root"]
    enabled = "--ServerApp.jpserver_extensions={'ddl_magics.server': True}"
    server = subprocess.Popen(
        [sys.executable, "-m", "jupyter", "server", *options, enabled],
        cwd=tmp_path,
        env={**os.environ, "JUPYTER_TOKEN": "secret"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def fetch(path, method="GET"):
        request = urllib.request.Request(f"http://127.0.0.1:{port}/ddl_magics/{path}", method=method)
        request.add_header("Authorization", "token secret")
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status
        except OSError:
            return None

    try:
        until(lambda: fetch("runs") == 200 or server.poll() is not None)
        assert server.poll() is None
        wishes = (f"runs/{live.path.name}/events?after=99&wait=30",), (f"runs/{lost.path.name}/stop", "POST")
        waiting = [threading.Thread(target=fetch, args=wish) for wish in wishes]
        for thread in waiting:
            thread.start()
        time.sleep(0.5)
        server.send_signal(signal.SIGTERM)
        server.wait(25)
        for thread in waiting:
            thread.join(10)
            assert not thread.is_alive()
    finally:
        server.kill()
        server.wait()
