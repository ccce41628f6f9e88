"""The process of a served model without MLServer: when it ends, and which change of its version takes place."""

import asyncio
import os
import threading
from types import SimpleNamespace
from unittest.mock import AsyncMock, Mock

import pytest
from support.until import until

from ddl_magics.errors import CannotServe
from ddl_magics.serving import launch
from ddl_magics.serving.process import loading
from ddl_magics.serving.process.main import _Process
from ddl_magics.serving.servers import Served, _nested
from ddl_magics.store import owner
from ddl_magics.store.owned_folder import read_object


def process(folder, **settings):
    made = _Process(folder, {"detached": False, **settings})
    made._server = SimpleNamespace(listening=True, replace=AsyncMock())
    made._context = SimpleNamespace(loaded={}, log=None, statistics=Mock(to_json=dict))
    (folder / "control").mkdir(exist_ok=True)
    return made


def steered(server, seconds):
    """Whether the server has ended by itself within so many seconds."""

    async def run():
        try:
            await asyncio.wait_for(server._steer(), seconds)
        except asyncio.TimeoutError:
            return False
        return True

    return asyncio.run(run())


def test_a_server_ends_with_its_parent_also_where_a_child_of_it_holds_the_pipe(tmp_path, monkeypatch):
    ours, detached = process(tmp_path, parent=os.getppid()), process(tmp_path, parent=None)
    of_a_script = process(tmp_path, parent=os.getppid() + 1)
    assert not steered(ours, 0.5)
    monkeypatch.setattr(os, "getppid", lambda: 1)  # the parent has ended
    assert steered(ours, 5) and not steered(detached, 0.5) and not steered(of_a_script, 0.5)


@pytest.fixture
def running(tmp_path, monkeypatch):
    """A server in a thread of this process, whose models take until `loads.set()`."""
    folder, loads = tmp_path / "digits", threading.Event()
    (folder / "models" / "1").mkdir(parents=True)
    server = process(folder)
    loaded = SimpleNamespace(inputs=(), outputs=())
    monkeypatch.setattr(loading.Model, "load", lambda model: loads.wait(20) and loaded)
    monkeypatch.setattr(launch, "READY_SECONDS", 0.5)
    thread = threading.Thread(target=lambda: asyncio.run(server._steer()))
    thread.start()
    settings = {"name": "digits", "version": "1", "http_port": 1, "grpc_port": 2, "log": None}
    settings |= {"log_inputs": True, "log_sample": 1.0, "detached": False}
    served = Served("digits", folder, settings, owner.this_process(), {})
    yield server, served, loads
    loads.set()
    (folder / "control" / "stop").touch()
    thread.join()


def change(served):
    request = launch.Request("digits", lambda folder: (folder / "model").touch())
    return launch._replace(served, request, lambda line: None)


def test_a_running_server_keeps_its_settings(running):
    _, served, _ = running
    request = launch.Request("digits", lambda folder: None, options=launch.Options(port=7))
    with pytest.raises(CannotServe, match="is served already, with another --port: %ddl serve --stop digits first"):
        launch._replace(served, request, lambda line: None)


def test_a_change_of_the_version_that_was_told_as_failed_does_not_take_place(running):
    server, served, loads = running
    with pytest.raises(CannotServe, match=r"version 2 of digits cannot be served, and 1 is: the new version was not"):
        change(served)
    loads.set()
    answer = served.folder / "control" / "loaded-2.json"
    until(answer.exists, 10)
    assert server._server.replace.await_count == 0 and server._served is None and read_object(answer)["problem"]
    assert change(served).version == "2", "the late answer is not that of the next request"
    assert server._server.replace.await_count == 1


def test_a_change_that_has_begun_is_waited_for(running, monkeypatch):
    server, served, loads = running
    withdraw = launch._is_withdrawn

    def late(claim):  # the server is faster
        loads.set()
        until(lambda: not claim.exists(), 10)
        return withdraw(claim)

    monkeypatch.setattr(launch, "_is_withdrawn", late)
    monkeypatch.setattr(launch, "READY_SECONDS", 0.2)
    assert change(served).version == "2" and server._served == "2"


@pytest.mark.parametrize(
    ("dtype", "shape", "row"), [("float32", [], 0), ("float32", [28, 2], [[0, 0]] * 28), ("object", [5], [""] * 5)]
)
def test_a_printed_row_can_be_pasted(dtype, shape, row):
    assert eval(_nested(dtype, shape)) == row
