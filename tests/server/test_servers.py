"""The served models over REST."""

from types import SimpleNamespace

import pytest
from support.invented_server import InventedServer

from ddl_magics.errors import CannotServe
from ddl_magics.serving import servers
from ddl_magics.serving.servers import describe, list_served
from ddl_magics.store import owner

SETTINGS = {"name": "digits", "version": "1", "http_port": 1, "grpc_port": 2, "detached": False, "log": None}


@pytest.fixture
def invented(runs_folder):
    server = InventedServer()
    yield server
    server.end()


async def test_served_models_are_listed_with_what_they_have_counted(ask, invented):
    invented.count(12.5, 40, 1, "2", (0.001, 0.002, None), [1, 2])
    code, answer, _ = await ask("servers")
    (row,) = answer["servers"]
    assert code == 200 and (row["name"], row["version"], row["alive"], row["problem"]) == ("digits", "2", True, "")
    assert (row["url"], row["grpc"]) == ("http://127.0.0.1:18080", "127.0.0.1:18081")
    assert (row["rate"], row["requests"], row["errors"], row["rates"]) == (12.5, 40, 1, [1.0, 2.0])
    assert row["latency"] == {"p50": 0.001, "p95": 0.002, "p99": None}


async def test_a_server_that_has_not_counted_yet_has_counted_nothing(ask, invented):
    (invented.folder / "status.json").unlink(missing_ok=True)
    (row,) = (await ask("servers"))[1]["servers"]
    counts = [row[name] for name in ("rate", "rates", "requests", "errors", "recent_errors", "dropped")]
    assert counts == [0, [], 0, 0, 0, 0] and row["latency"] == {"p50": None, "p95": None, "p99": None}


async def test_a_served_model_is_stopped(ask, invented):
    code, answer, _ = await ask("servers/digits/stop", "POST")
    assert code == 200 and answer == {"message": "digits is not served any more"}
    assert invented.process.wait(10) == 0
    assert (await ask("servers"))[1] == {"servers": []}
    code, answer, _ = await ask("servers/digits/stop", "POST")
    assert code == 404 and answer["message"].startswith("no model digits is served")


async def test_one_that_was_killed_says_so_and_is_removed(ask, invented):
    invented.kill()
    (row,) = (await ask("servers"))[1]["servers"]
    assert not row["alive"] and row["problem"] == "its process was killed"
    assert "removed" in (await ask("servers/digits/stop", "POST"))[1]["message"]
    assert (await ask("servers"))[1] == {"servers": []}


async def test_damaged_folders_and_foreign_hosts_break_nothing(ask, invented, runs_folder):
    foreign = '{"name": "foreign", "version": "1", "detached": false, "http_port": "x", "grpc_port": 1, "log": null}'
    contents = {"nothing": "", "half": '{"name": "ha', "list": "[]", "named": '{"name": "x"}', "foreign": foreign}
    for name, content in contents.items():
        folder = runs_folder.parent / "servers" / name
        folder.mkdir()
        (folder / "settings.json").write_text(content)
    status = {"rate": "x", "requests": float("inf"), "errors": [], "rates": [1, "2", {}], "latency": {"p50": "x"}}
    invented._write("status.json", {**status, "version": ["2"], "dropped": 10**400})
    (row,) = (await ask("servers"))[1]["servers"]
    assert (row["version"], row["rate"], row["requests"], row["rates"]) == ("1", 0.0, 0, [1.0])
    assert "digits" in describe(list_served()[0])
    invented._write("owner.json", {"host": "elsewhere", "pid": 1, "start": "x", "heartbeat": 0})
    assert [row["name"] for row in (await ask("servers"))[1]["servers"]] == ["digits"]
    code, answer, _ = await ask("servers/digits/stop", "POST")
    assert code == 409 and answer["message"] == "digits is served on elsewhere: stop it there"


async def test_only_the_process_of_a_server_is_killed(ask, invented, monkeypatch):
    """As an argument of `kill`, -1 is all of this user; and a number alone may be another process by now."""
    killed = []
    monkeypatch.setattr(servers, "STOP_SECONDS", 0.0)
    monkeypatch.setattr(servers, "os", SimpleNamespace(kill=lambda pid, _: killed.append(pid)))
    here = owner.this_process()
    for process in ({"pid": -1}, {"pid": 0}, {"pid": "1"}, {"pid": 2**70}, {}):
        invented._write("owner.json", {**here, **process, "start": None})
        invented._write("settings.json", {**SETTINGS, "name": "digits"})
        (server,) = list_served()
        assert server.alive, "by the time of its file"
        server.stop()
        (invented.folder / "control").mkdir(parents=True)
        invented.count()
    assert killed == []
    assert owner.number_of(here) == here["pid"] and owner.number_of({**here, "start": "another"}) is None


async def test_what_a_damaged_folder_says_reaches_no_terminal(ask, invented):
    for changes in ({"name": "digits\x1b[2J"}, {"version": "1\r"}):
        invented._write("settings.json", {**SETTINGS, **changes})
        assert list_served() == []
    invented._write("settings.json", SETTINGS)
    for inputs in ([], [["x", "float32", [10**9]]], [["x", 1, [2]]], [["x", "float32", [-1]]], "x"):
        invented._write("signature.json", {"inputs": inputs})
        with pytest.raises(
            CannotServe, match=r"signature.json is damaged: %ddl serve --stop digits, and serve it again"
        ):
            list_served()[0].how_to_call()
    invented.kill()
    (invented.folder / "output.txt").write_text("ValueError: \x1b]0;title\x07")
    assert describe(list_served()[0]).isprintable()
