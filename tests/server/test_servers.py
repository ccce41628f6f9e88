"""The served models over REST."""

import pytest
from support.invented_server import InventedServer

from ddl_magics.serving.servers import describe, list_served


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
