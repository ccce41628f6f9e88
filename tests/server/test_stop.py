"""The stop of the panel: a kernel that lives is asked, and where it is gone a process ends the run.

What a kernel does that is asked: tests/notebook/test_kernel.py, and a killed one: tests/clusters/test_every_cluster.py.
"""

import asyncio
import os
import re
import signal
import sys
import time

import pytest
from livy.client import Client
from support import sparkmagic_kernels, trainings
from support.fake_cluster import training
from support.stored import finished, kill_owner, stored

from ddl_magics import store
from ddl_magics.runtime import events as ev
from ddl_magics.server import stopping

#: Of a run in a Livy session; nothing listens there.
PLACE = {
    "livy": "http://127.0.0.1:1",
    "session": 7,
    "name": "ddl_ours",
    "detached": True,
    "runtime": "ddl_runtime_0123456789ab",
}

ANSWER = "print('a warning\\n' + json.dumps({'outcome': 'stopped', 'message': sys.argv[1], 'how': os.getcwd()}))"

#: The command line where requests cannot be imported.
WITHOUT_REQUESTS = (
    "import sys; sys.modules['requests'] = None\n"
    "from ddl_magics.__main__ import main\n"
    "sys.exit(main(['stop', '--json', *sys.argv[1:]]))\n"
)


@pytest.fixture
def orphan(runs_folder):
    """A run in a Livy session, whose kernel is gone."""
    folder = stored(events=list(training())[:8], place=PLACE)
    kill_owner(folder)
    return folder


@pytest.fixture
def stops_by(monkeypatch):
    """`stops_by(program)`: what stands for `python -m ddl_magics stop`."""

    def use(program):
        command = (sys.executable, "-c", f"import json, os, sys, time\n{program}")
        monkeypatch.setattr(stopping, "COMMAND", command)

    return use


@pytest.fixture
def page(ask):
    """`await page(folder)`: what the run's page gets."""

    async def get(folder):
        return (await ask(f"runs/{folder.path.name}"))[1]

    return get


@pytest.fixture
def stop(ask):
    """`await stop(folder)`: the answer to the button."""

    async def press(folder):
        code, answer, _ = await ask(f"runs/{folder.path.name}/stop", "POST")
        assert code == 200, answer
        return answer

    return press


async def until(condition, seconds=60):
    """As `until.until`, while the server goes on; returns what the condition was."""
    deadline = time.monotonic() + seconds
    while not (found := await condition()):
        assert time.monotonic() < deadline, "it did not come to that"
        await asyncio.sleep(0.1)
    return found


async def answered(page, folder):
    """What became of a stop, when that is known."""

    async def known():
        report = (await page(folder))["stop"]
        return report["outcome"] != "stopping" and report

    return await until(known, 150)


async def test_the_kernel_that_follows_a_run_is_asked(stop, page):
    folder = stored()
    assert not (await page(folder))["stop_requested"]
    assert (await stop(folder))["outcome"] == "asked"
    assert folder.requested("stop") and (await page(folder))["stop_requested"]
    assert (await stop(finished()))["outcome"] == "ended"


async def test_an_embedded_run_without_a_kernel_needs_no_process(stop, stops_by):
    stops_by("raise SystemExit(1)")
    folder = stored()
    kill_owner(folder)
    answer = await stop(folder)
    assert answer["outcome"] == "nothing" and "its Spark (this machine) with it" in answer["message"]


async def test_a_process_ends_a_run_without_a_kernel(stop, page, stops_by, orphan):
    stops_by(ANSWER)
    answer = await stop(orphan)
    assert answer == {"outcome": "stopped", "message": orphan.path.name, "how": str(orphan.path.parent)}
    assert (await page(orphan))["stop"] == answer


async def test_a_process_that_takes_long_is_told_of_later_and_is_the_only_one(
    stop, page, stops_by, orphan, monkeypatch, tmp_path
):
    monkeypatch.setattr(stopping, "ANSWER_SECONDS", 0.2)
    gate, begun = tmp_path / "gate", tmp_path / "begun"
    wait = f"while not os.path.exists({str(gate)!r}): time.sleep(0.05)"
    stops_by(f"open({str(begun)!r}, 'a').write('x')\n{wait}\n{ANSWER}")
    assert [(await stop(orphan))["outcome"] for _ in range(3)] == ["stopping"] * 3
    assert (await page(orphan))["stop"]["outcome"] == "stopping"
    gate.touch()

    assert (await answered(page, orphan))["outcome"] == "stopped"
    assert begun.read_text() == "x"


@pytest.mark.parametrize(
    ("program", "status"),
    [
        ("raise SystemExit(3)", 3),
        ("print('{}')", 0),
        ("print('[1]')", 0),
        ("os.write(1, bytes([255, 10]))", 0),
        ("os.kill(os.getpid(), 9)", -9),
        ("print('x' * 10**7)", 0),
    ],
)
async def test_a_process_that_fails_leaves_what_a_person_can_do(stop, stops_by, orphan, program, status):
    stops_by(program)
    answer = await stop(orphan)
    assert answer["outcome"] == "runs" and f"failed with exit status {status}" in answer["message"]
    assert answer["how"] == f"Run python -m ddl_magics stop {orphan.path.name} in a terminal to see why."


async def test_a_process_that_cannot_be_started(stop, orphan, monkeypatch):
    monkeypatch.setattr(stopping, "COMMAND", ("/nowhere/python",))
    answer = await stop(orphan)
    assert answer["outcome"] == "runs" and "could not be started" in answer["message"]


async def test_a_process_that_does_not_end_is_killed_with_its_children(stop, stops_by, orphan, monkeypatch, tmp_path):
    monkeypatch.setattr(stopping, "PROCESS_SECONDS", 2.0)
    pids = tmp_path / "pids"
    child = f"import subprocess; p = subprocess.Popen(['sleep', '100']); open({str(pids)!r}, 'w').write(str(p.pid))"
    stops_by(f"{child}\ntime.sleep(100)")
    answer = await stop(orphan)
    assert answer["outcome"] == "runs" and "did not finish within 2 s" in answer["message"]

    async def gone():
        return not os.path.exists(f"/proc/{pids.read_text()}") or "Z" in state_of(pids.read_text())

    await until(gone, 10)


def state_of(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


async def test_the_process_is_our_command_line(stop, page, orphan):
    """Nothing answers at the Livy, or there is no requests here: in any case the panel says how to end the run."""
    await stop(orphan)
    answer = await answered(page, orphan)
    assert answer["outcome"] == "runs" and "it may still train in Livy session 7 at 127.0.0.1" in answer["message"]
    assert answer["how"].endswith("DELETE http://127.0.0.1:1/sessions/7")


def begin(kernel, options):
    """Run the small training until it has told its first epoch; its folder."""
    kernel.run("%load_ext ddl_magics")
    answer = kernel.run(trainings.cell(f"--name far --no-wait {options}", epochs=100_000, pause=0.2), timeout=300)
    assert answer.error == "", answer.traceback


async def trains():
    record = store.find_run("far")
    return record is not None and record.progress and store.RunFolder(record.folder)


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_a_run_on_livy_is_ended_without_its_kernel(stop, page, livy_server, tmp_path, monkeypatch):
    """By a Python without sparkmagic, with its configuration; one without requests says how to end it."""
    environment = sparkmagic_kernels.configuration(tmp_path / "sparkmagic", livy_server.url)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    kernel = sparkmagic_kernels.start(sparkmagic_kernels.IPYTHON_KERNEL, environment)
    livy = Client(livy_server.url)
    try:
        kernel.run("%load_ext ddl_magics")
        answer = kernel.run(f"%ddl use livy {livy_server.url} --detached", timeout=300)
        session = re.search(r"Livy session (\d+)", answer.text)[1]
        begin(kernel, "")
        folder = await until(trains, 200)
        os.kill(kernel.manager.provisioner.pid, signal.SIGKILL)

        async def lost():
            return not folder.has_live_owner()

        await until(lost, 30)
        assert (await page(folder))["attachable"]

        ours = stopping.COMMAND
        monkeypatch.setattr(stopping, "COMMAND", (sys.executable, "-c", WITHOUT_REQUESTS))
        await stop(folder)
        answer = await answered(page, folder)
        assert answer["outcome"] == "runs" and answer["how"].endswith(f"DELETE {livy_server.url}/sessions/{session}")
        epochs = sum(event["kind"] == "epoch" for event in folder.events())

        monkeypatch.setattr(stopping, "COMMAND", ours)
        await stop(folder)
        answer = await answered(page, folder)
        assert answer["outcome"] == "stopped", answer
        assert f"Livy session {session} at" in answer["how"] and "stays" in answer["how"]
        shown = await page(folder)
        assert shown["state"] == ev.STOPPED and {"model-0.keras"} <= {file["name"] for file in shown["files"]}
        told = [event for event in folder.events() if event["kind"] == "epoch"]
        assert len(told) > epochs, "it had trained on"
        assert [event["epoch"] for event in told] == list(range(len(told)))
        assert (await stop(folder))["outcome"] == "ended"
    finally:
        kernel.close()
        for known in livy.get("/sessions").json["sessions"]:
            livy.delete(f"/sessions/{known['id']}")
