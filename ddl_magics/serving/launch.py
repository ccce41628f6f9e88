"""Starts the server of a model, or replaces the version of a running one without a failed request."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ddl_magics.errors import CannotServe
from ddl_magics.serving import environment, file_lock
from ddl_magics.serving.servers import LOOPBACK, NAME, STOP_SECONDS, Served, last_line, servers_folder
from ddl_magics.store import owner
from ddl_magics.store.files import make_private, write_atomically
from ddl_magics.store.owned_folder import read_object
from ddl_magics.wording import quoted

MAIN = Path(__file__).parent / "process" / "main.py"
#: The longest start of a server: it imports TensorFlow and compiles the model.
READY_SECONDS = 180.0

#: This process's servers. They end with it, as their standard input is closed.
_children: list[subprocess.Popen[bytes]] = []


@dataclass(frozen=True)
class Options:
    """How to serve a model.

    Attributes:
        port: for HTTP; None for a free one.
        detached: whether it outlives this process.
        log: the address of the request log, as `open_log` takes it; None for no log.
        log_inputs: whether the log has the inputs; None for yes, or the running server's setting.
        log_sample: the share of requests that are logged; None for all, or the running server's setting.
    """

    port: int | None = None
    detached: bool = False
    log: str | None = None
    log_inputs: bool | None = None
    log_sample: float | None = None


@dataclass(frozen=True)
class Request:
    """A model to serve.

    Attributes:
        name: of the model, in its URLs.
        write: writes an export into an empty folder.
        options: how to serve it.
        version: its number; None for one more than the running version.
        keras: the version of Keras that saved the model.
    """

    name: str
    write: Callable[[Path], None]
    options: Options = Options()
    version: int | None = None
    keras: str | None = None


def serve(request: Request, report: Callable[[str], None]) -> Served:
    """Serve a model; returns when it answers requests.

    Args:
        request: the model and its options.
        report: called with lines of progress.

    Raises:
        CannotServe: one line; the model is not served, and a running version still is.
    """
    if not NAME.fullmatch(request.name):
        raise CannotServe(f"{quoted(request.name)} is no name of a model: use letters, digits, _ and -, at most 64")
    home = make_private(servers_folder())
    with file_lock.locked(
        home / f".{request.name}.lock", READY_SECONDS, f"starting a server of {request.name}", report
    ):
        running = Served.read(home / request.name)
        if running is not None and running.alive:
            return _replace(running, request, report)
        return _start(home / request.name, request, report)


def _replace(running: Served, request: Request, report: Callable[[str], None]) -> Served:
    if running.owner.get("host") != socket.gethostname():
        raise CannotServe(
            f"{request.name} is served on {running.owner.get('host')}: serve it there, or under another --name"
        )
    settings, options = running.settings, request.options
    requested = {**asdict(options), "detached": options.detached or None}
    present = {**settings, "port": settings["http_port"]}
    changed = [f"--{name.replace('_', '-')}" for name, value in requested.items() if value not in (None, present[name])]
    if changed:
        stop_command = f"%ddl serve --stop {request.name}"
        raise CannotServe(
            f"{request.name} is served already, with another {' and '.join(changed)}: {stop_command} first"
        )
    version = str(request.version or 1 + int(running.version))
    if version == running.version:
        raise CannotServe(f"version {version} of {request.name} is served already")
    model = _write_model(running.folder, version, request)
    control = running.folder / "control"
    answer = control / f"loaded-{version}.json"
    answer.unlink(missing_ok=True)
    claim = control / f"change-{secrets.token_hex(8)}"
    claim.touch()
    load_request = {"version": version, "model": str(model), "claim": claim.name}
    write_atomically(control / "load.json", [json.dumps(load_request).encode()])
    report(f"loading version {version} of {request.name}; version {running.version} serves meanwhile")

    def is_answered() -> bool:  # and not by a late answer to an earlier request
        return answer.exists() and read_object(answer).get("claim") in (None, claim.name)

    problem = _wait_until(is_answered, lambda: running.alive, "the new version was not loaded")
    if problem is not None and not _is_withdrawn(claim):  # the server has begun to serve the version
        problem = _wait_until(is_answered, lambda: running.alive, "the new version did not take over")
    if problem is None:
        problem = read_object(answer).get("problem")
    if problem is not None:
        shutil.rmtree(model, ignore_errors=True)
        raise CannotServe(f"version {version} of {request.name} cannot be served, and {running.version} is: {problem}")
    _write(running.folder / "settings.json", {**settings, "version": version, "model": str(model)})
    shutil.rmtree(running.folder / "models" / running.version, ignore_errors=True)
    served = Served.read(running.folder)
    assert served is not None
    return served


def _is_withdrawn(claim: Path) -> bool:
    """Withdraw a request to change the version; False if the server has taken it."""
    try:
        claim.unlink()
    except FileNotFoundError:
        return False
    return True


def _start(folder: Path, request: Request, report: Callable[[str], None]) -> Served:
    python, options = environment.python(request.keras, report), request.options
    shutil.rmtree(folder, ignore_errors=True)  # a dead server's
    (folder / "control").mkdir(mode=0o700, parents=True)
    folder.chmod(0o700)
    try:
        version = str(request.version or 1)
        port = _free_port(options.port)
        settings = {
            "name": request.name,
            "version": version,
            "model": str(_write_model(folder, version, request)),
            "http_port": port,
            "grpc_port": _free_port(None),
            "detached": options.detached,
            "parent": None if options.detached else os.getpid(),
            "log": options.log,
            "log_inputs": options.log_inputs is not False,
            "log_sample": 1.0 if options.log_sample is None else options.log_sample,
            "python": str(python),
            "created": time.time(),
        }
        _write(folder / "settings.json", settings)
        report(f"starting MLServer for version {version} of {request.name}")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    process = _launch(python, folder, options.detached)
    try:
        problem = _wait_until(
            lambda: _is_ready(folder, port),
            lambda: _is_alive(process, folder, options.detached),
            "MLServer was not ready",
        )
    except BaseException:  # an interrupt
        _kill(process, folder)
        shutil.rmtree(folder, ignore_errors=True)
        raise
    if problem is not None:
        _kill(process, folder)
        problem = last_line(folder / "output.txt") or problem
        shutil.rmtree(folder, ignore_errors=True)
        raise CannotServe(f"{request.name} is not served: {problem}")
    served = Served.read(folder)
    assert served is not None
    return served


def _launch(python: Path, folder: Path, detached: bool) -> subprocess.Popen[bytes]:
    # The server must import no module of the notebook's folder or environment.
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "MLSERVER_"))}
    with (folder / "output.txt").open("wb") as output:
        process = subprocess.Popen(
            [python, "-s", MAIN, folder],
            stdin=subprocess.DEVNULL if detached else subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=variables,
            start_new_session=True,  # an interrupt of the notebook must not reach the server
        )
    if not detached:
        for exited in [child for child in _children if child.poll() is not None]:
            assert exited.stdin is not None
            exited.stdin.close()
            _children.remove(exited)
        _children.append(process)
    return process


def _is_ready(folder: Path, port: int) -> bool:
    state = read_object(folder / "state.json")
    if not state.get("listening"):
        return False
    pid = int(state["pid"])
    server_process: owner.Owner = {**owner.this_process(), "pid": pid, "start": owner.started(pid)}
    _write(folder / "owner.json", {**server_process})
    with contextlib.suppress(OSError), urllib.request.urlopen(f"http://{LOOPBACK}:{port}/v2/health/ready", timeout=5):
        return True
    return False


def _is_alive(process: subprocess.Popen[bytes], folder: Path, detached: bool) -> bool:
    """Whether the server's process is alive. A detached server is a child that outlives `process`."""
    if process.poll() is None or not detached or process.returncode:
        return process.returncode is None
    state = read_object(folder / "state.json")
    return not state or owner.started(int(state["pid"])) is not None


def wait(report: Callable[[str], None]) -> int:
    """Wait until the newest server of this process ends; an interrupt ends it.

    Returns:
        Its exit status; 0 without a server.
    """
    if not _children:
        return 0
    process = _children[-1]
    try:
        return process.wait()
    except KeyboardInterrupt:
        report("the server ends after the requests that it is answering")
        assert process.stdin is not None
        process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(STOP_SECONDS)
        process.kill()
        return process.wait()


def _wait_until(condition: Callable[[], bool], alive: Callable[[], bool], late: str) -> str | None:
    """Wait for `condition`; returns the problem if the server ends first or is late."""
    deadline = time.monotonic() + READY_SECONDS
    while not condition():
        if not alive():
            return "MLServer has ended"
        if time.monotonic() > deadline:
            return f"{late} within {READY_SECONDS:.0f} s"
        time.sleep(0.1)
    return None


def _kill(process: subprocess.Popen[bytes], folder: Path) -> None:
    """Kill a server that is not ready. A detached server is a child that outlives `process`."""
    pid = int(read_object(folder / "state.json").get("pid") or process.pid)
    with contextlib.suppress(ProcessLookupError):
        if pid != process.pid:
            os.kill(pid, signal.SIGKILL)
    if process.poll() is None:
        process.kill()
        process.wait()


def _write_model(folder: Path, version: str, request: Request) -> Path:
    model = folder / "models" / version
    shutil.rmtree(model, ignore_errors=True)
    model.mkdir(mode=0o700, parents=True)
    request.write(model)
    return model


def _free_port(requested: int | None) -> int:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, requested or 0))
        except OSError as error:
            raise CannotServe(f"port {requested} cannot be used ({error.strerror}): choose another --port") from None
        port: int = probe.getsockname()[1]
        return port


def _write(path: Path, value: dict[str, Any]) -> None:
    write_atomically(path, [json.dumps(value, indent=1).encode()], lasting=False)
