"""A served model: its server is killed, or frozen while its version changes; the disk of the request log is full."""

import json
import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace

from chaos.room import Room, check

FLUSHED_SECONDS = 1.6  # `FLUSH_SECONDS`, and what a busy machine adds
LOAD_SECONDS = 0.3


def log(folder, seconds, rotate=0.4):
    """Log a request each few milliseconds, and print the number and the time of each; then how many are missing."""
    from ddl_magics.serving import request_log

    request_log.FLUSH_SECONDS = 0.2
    written = request_log.FolderLog(Path(folder), rotate_seconds=rotate)
    until, number = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        written.write(_record(number))
        print(json.dumps([number, time.monotonic()]), flush=True)
        number += 1
        time.sleep(0.004)
    written.close()
    print(json.dumps({"written": number, "dropped": written.dropped}), flush=True)


def _record(number):
    inputs = {"x": [[float(number)] * 40]}
    record = {"time": time.time(), "id": str(number), "model": "digits", "version": "1", "rows": 1, "inputs": inputs}
    return {**record, "outputs": {"y": [[0.5]]}, "latency": 0.01, "error": None}


def complete(folder):
    """The next server with this log."""
    from ddl_magics.serving.request_log import FolderLog

    FolderLog(Path(folder)).close()


def _ids(folder):
    """The ids in the complete files. Each line is a whole record."""
    found = []
    for path in Path(folder).glob("[!.]*.jsonl"):
        for line in path.read_bytes().splitlines():
            try:
                found.append(int(json.loads(line)["id"]))
            except ValueError:
                check(False, f"{path.name} has a line that is no record: {line[:60]!r}")
    check(len(found) == len(set(found)), "a request is logged twice")
    return set(found)


def killed(act):
    """At most the last second is missing, and files of Spark's are whole at any time."""
    folder = act.work / "log"
    process = act.start(log, str(folder), 30.0)
    process.stdout.readline()
    time.sleep(act.random.uniform(0.0, 2.0))
    killed_at = time.monotonic()
    process.kill()
    told = [json.loads(line) for line in process.stdout if line.endswith("]\n")]
    _ids(folder)
    act.done(complete, str(folder))
    found = _ids(folder)
    missing = [number for number, at in told if at < killed_at - FLUSHED_SECONDS and number not in found]
    check(not missing, f"{len(missing)} requests from before the last second are missing")
    check(not list(folder.glob(".*")), "a file has not got its name")
    return ""


def full(act):
    """Each request is in the log, or counted as missing."""
    disk = act.disk("log", act.random.randint(4, 40) * 4096)
    lines = act.done(log, str(disk), act.random.uniform(0.5, 1.5))
    said = json.loads(lines[-1])
    found = _ids(disk)
    check(
        len(found) + said["dropped"] >= said["written"],
        f"of {said['written']} requests {len(found)} are in the log, and {said['dropped']} are told as missing",
    )
    return f"{said['dropped']} of {said['written']} are missing" if said["dropped"] else ""


def server(folder):
    """The process of a served model without MLServer: its folder steers it. Prints the versions that take over."""
    import asyncio

    from ddl_magics.serving.process import loading
    from ddl_magics.serving.process.main import _Process

    async def replace(version):
        print(version, flush=True)

    served = _Process(Path(folder), {"detached": True})
    served._server = SimpleNamespace(listening=True, replace=replace)
    served._context = SimpleNamespace(loaded={}, log=None, statistics=SimpleNamespace(to_json=dict))
    loading.Model.load = lambda model: time.sleep(LOAD_SECONDS) or SimpleNamespace(inputs=(), outputs=())
    print("ready", flush=True)
    asyncio.run(served._steer())


def change(folder, pid, seconds):
    """Change the version of a server, which has so long for it. Prints what is said of it."""
    from ddl_magics.errors import CannotServe
    from ddl_magics.serving import launch
    from ddl_magics.serving.servers import Served
    from ddl_magics.store import owner

    launch.READY_SECONDS = seconds
    settings = {"name": "digits", "version": "1", "http_port": 1, "grpc_port": 2, "log": None, "detached": True}
    settings |= {"log_inputs": True, "log_sample": 1.0}
    of_server = {**owner.this_process(), "pid": pid, "start": owner.started(pid)}
    request = launch.Request("digits", lambda path: (path / "model").touch())
    try:
        served = launch._replace(Served("digits", Path(folder), settings, of_server, {}), request, lambda line: None)
        print(f"serves {served.version if served else None}")
    except CannotServe as error:
        print(f"refused: {error}")


def changed(signals):
    """A change of the version, meanwhile the server gets signals: what is said of the change is true."""

    def begin(act):
        folder = act.work / "digits"
        (folder / "models" / "1").mkdir(parents=True)
        (folder / "control").mkdir()
        (folder / "settings.json").write_text("{}")
        serving = act.start(server, str(folder))
        check(serving.stdout.readline() == "ready\n", "the server has not begun")
        changing = act.start(change, str(folder), serving.pid, 2.0)
        until = time.monotonic() + 30
        while not (folder / "models" / "2").exists() and time.monotonic() < until:
            time.sleep(0.005)
        time.sleep(act.random.uniform(0.0, 2 * LOAD_SECONDS))
        for number in signals:
            os.kill(serving.pid, number)
            if number == signal.SIGSTOP:
                time.sleep(act.random.choice((0.2, 1.0, 2.5, 5.0)))
        out, errors = changing.communicate(timeout=60)
        said = (out or errors).strip().splitlines()[-1]
        time.sleep(3 * LOAD_SECONDS)  # for a change that comes late
        serving.kill()
        versions = serving.stdout.read().split()
        check(said.startswith(("serves 2", "refused: version 2")), f"it says {said}")
        check(said.startswith("serves") <= ("2" in versions), "version 2 is told as served, and is not")
        if signal.SIGKILL not in signals:
            check(("2" in versions) <= said.startswith("serves"), "version 2 is told as failed, and serves")
        check((folder / "models" / "2").exists() == said.startswith("serves"), "files of what is not served are left")
        return said if said.startswith("refused") else ""

    return begin


ROOMS = {
    "server: SIGKILL": Room(killed),
    "server: SIGKILL as its version changes": Room(changed([signal.SIGKILL])),
    "server: SIGSTOP, SIGCONT as its version changes": Room(changed([signal.SIGSTOP, signal.SIGCONT])),
    "request log: disk full": Room(full),
}
