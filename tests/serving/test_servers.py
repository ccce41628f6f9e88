"""What is read of servers' folders, and the lines about them, without a server."""

import json
import signal
import time

import pytest
from support.stored import dead_process

from ddl_magics.errors import CannotServe
from ddl_magics.serving import servers
from ddl_magics.serving.servers import Served, find_served, list_served
from ddl_magics.store import owner

SETTINGS = {"name": "digits", "version": "2", "http_port": 8080, "grpc_port": 8081, "detached": False, "log": None}


@pytest.fixture
def make(data_dir):
    def make(name="digits", process=None, status=None, **settings):
        folder = servers.servers_folder() / name
        folder.mkdir(parents=True)
        about = {"settings": {**SETTINGS, "name": name, **settings}, "status": status or {}}
        about["owner"] = owner.this_process() if process is None else process
        for file, value in about.items():
            (folder / f"{file}.json").write_text(json.dumps(value))
        return folder

    return make


def died():
    return {**owner.this_process(), **dead_process()}


def test_a_server_reads_back_without_counts_of_other_types(make):
    status = {"version": "3", "rate": 2.5, "requests": True, "errors": "1", "time": 1e18, "rates": [1, None, 2.5]}
    served = Served.read(make(status={**status, "latency": {"p50": 0.001, "p99": None}}))
    assert served.status == {"version": "3", "rate": 2.5, "rates": [1, 2.5], "latency": {"p50": 0.001}}
    assert (served.version, served.url, served.grpc) == ("3", "http://127.0.0.1:8080", "127.0.0.1:8081")
    assert Served.read(make("other", status={"latency": 3, "rates": 3, "version": 3})).status == {}


@pytest.mark.parametrize("changes", [{"http_port": "80"}, {"version": 2}, {"log": 3}, {"detached": None}])
def test_a_foreign_folder_is_no_server_and_the_others_are_listed(make, changes):
    make("foreign", **changes)
    make("digits")
    assert [served.name for served in list_served()] == ["digits"]


def test_a_server_that_ended_by_itself_is_removed_and_one_that_died_says_why(make):
    assert list_served() == []
    make("alive")
    (make("ended", died()) / "ended").touch()
    (make("ending") / "ended").touch()
    (make("failed", died()) / "output.txt").write_text("start\nkeras.errors.LoadError: no model\nlater\n\n")
    make("killed", died())
    make("starting", {})
    problems = {served.name: served.problem for served in list_served()}
    assert problems == {"alive": "", "ending": "", "failed": "no model", "killed": "its process was killed"}
    assert not (servers.servers_folder() / "ended").exists() and (servers.servers_folder() / "starting").exists()


def test_a_server_is_found_by_its_name(make):
    make("digits")
    make("letters")
    assert find_served("letters").name == "letters"
    with pytest.raises(CannotServe, match=r"no model digit is served\. Did you mean digits\? %ddl serving lists them"):
        find_served("digit")


def test_one_line_about_a_server(make):
    assert repr(Served.read(make())) == "digits  version 2  http://127.0.0.1:8080; 0.0 requests/s, 0 in all; 0 errors"
    status = {"rate": 2.56, "requests": 7, "errors": 1, "dropped": 3, "latency": {"p50": 0.0012, "p99": 0.5}}
    assert repr(Served.read(make("other", status=status))) == (
        "other  version 2  http://127.0.0.1:8080; 2.6 requests/s, 7 in all; p50 1.2 ms, p99 500.0 ms; 1 error; "
        "3 requests are missing in the log"
    )
    assert repr(Served.read(make("dead", died()))) == "dead  version 2  is not served any more: its process was killed"


def test_how_to_call_a_model(make, monkeypatch):
    folder = make()
    signature = {"inputs": [["x", "float32", [2, 4]], ["word", "object", []], ["n", "int64", [None]]]}
    (folder / "signature.json").write_text(json.dumps(signature))
    request = {
        "inputs": [
            {"name": "x", "shape": [1, 2, 4], "datatype": "FP32", "data": [0] * 8},
            {"name": "word", "shape": [1], "datatype": "BYTES", "data": [""]},
            {"name": "n", "shape": [1, 1], "datatype": "INT64", "data": [0]},
        ]
    }
    monkeypatch.setattr(servers, "SHOWN_CHARACTERS", len(json.dumps(request)))
    curl, call = Served.read(folder).how_to_call().splitlines()
    url = "http://127.0.0.1:8080"
    header = "-H 'Content-Type: application/json'"
    assert curl == f"  curl {url}/v2/models/digits/infer {header} -d '{json.dumps(request)}'"
    rows = '{"x": [[[0] * 4, [0] * 4]], "word": [""], "n": [[0]]}'
    post = f'requests.post("{url}/invocations", json={{"inputs": {rows}}}).json()["predictions"]'
    assert call == f"  import requests; {post}"
    monkeypatch.setattr(servers, "SHOWN_CHARACTERS", len(json.dumps(request)) - 1)
    assert f" -d '@{folder / 'example.json'}'" in Served.read(folder).how_to_call()
    assert json.loads((folder / "example.json").read_text()) == request
    (folder / "signature.json").write_text(json.dumps({"inputs": [["x", "float32", [3]]]}))
    assert 'json={"inputs": [[0, 0, 0]]}' in Served.read(folder).how_to_call()


def test_a_server_is_asked_to_stop_and_killed_if_it_does_not(make, monkeypatch):
    monkeypatch.setattr(servers, "STOP_SECONDS", 0.2)
    folder, killed, dead = make(), [], died()

    def kill(pid, number):
        killed.append((pid, number, (folder / "control" / "stop").exists()))

    monkeypatch.setattr(servers.os, "kill", kill)
    begin = time.monotonic()
    assert Served.read(folder).stop() == "digits is not served any more"
    assert killed == [(owner.this_process()["pid"], signal.SIGKILL, True)] and 0.2 <= time.monotonic() - begin < 5
    assert not folder.exists()
    killed.clear()
    folder = make("dead", dead)
    assert Served.read(folder).stop() == "dead was not served any more: removed"
    assert not folder.exists() and not killed


def test_a_server_of_another_host_is_not_stopped_from_here(make):
    folder = make(process={**owner.this_process(), "host": "elsewhere"})
    with pytest.raises(CannotServe, match="digits is served on elsewhere: stop it there"):
        Served.read(folder).stop()
    assert folder.exists()


@pytest.mark.parametrize(
    ("output", "line"),
    [
        ("", ""),
        ("all is well\n", ""),
        ("a.b.KeyError: 'x'\nlater\n", "'x'"),
        ("[Errno 98] address in use\n", "[Errno 98] address in use"),
        ("ValueError\n", "ValueError"),
        ("OSError: first\nOSError: last\n  \n", "last"),
        (f"OSError: {'a' * 600}", "a" * 500),
        (f"OSError: early\n{'x' * 65536}", ""),
    ],
)
def test_the_last_error_of_an_output(tmp_path, output, line):
    (tmp_path / "output.txt").write_text(output)
    assert servers.last_line(tmp_path / "output.txt") == line
    assert servers.last_line(tmp_path / "none") == ""
