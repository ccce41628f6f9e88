"""Served models on disk: one folder per server in Jupyter's data folder, readable by all of the user's processes."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shutil
import signal
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jupyter_core.paths import jupyter_data_dir

from ddl_magics.errors import CannotServe
from ddl_magics.store import owner
from ddl_magics.store.owned_folder import read_object
from ddl_magics.wording import counted, nearest, visible

LOOPBACK = "127.0.0.1"
#: The name of a served model, and the number of its version.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_VERSION = re.compile(r"[0-9]{1,18}")
#: The protocol's type names that differ from NumPy's in capitals.
DATATYPES = {"float16": "FP16", "float32": "FP32", "float64": "FP64", "object": "BYTES"}
#: A longer example request is written to a file.
SHOWN_CHARACTERS = 300
#: Values of an example request, at most.
MAX_EXAMPLE_VALUES = 10_000_000
#: The types of what is read of `settings.json`; and the numbers of `status.json`.
_SETTINGS: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("name", "version"), (str,)),
    **dict.fromkeys(("http_port", "grpc_port"), (int,)),
    "detached": (bool,),
    "log": (str, type(None)),
}
_NUMBERS = ("rate", "requests", "errors", "recent_errors", "dropped", "time")
#: How long a server may take to stop before it is killed.
STOP_SECONDS = 15.0


def servers_folder() -> Path:
    """`ddl_magics/servers` in Jupyter's data folder, as JUPYTER_DATA_DIR sets it now."""
    return Path(jupyter_data_dir()) / "ddl_magics" / "servers"


@dataclass(frozen=True)
class Served:
    """A snapshot of a served model.

    Attributes:
        name: of the model, in its URLs.
        folder: of the server.
        settings: its options and the version that it serves.
        owner: the server's process, as `ddl_magics.store.owner` writes one.
        status: the server's newest counts of requests, latencies and errors.
    """

    name: str
    folder: Path
    settings: Mapping[str, Any]
    owner: Mapping[str, Any]
    status: Mapping[str, Any]

    @classmethod
    def read(cls, folder: Path) -> Served | None:
        """None if the folder has no server."""
        settings = read_object(folder / "settings.json")
        of_form = all(type(settings.get(name)) in kinds for name, kinds in _SETTINGS.items())
        if not of_form or not NAME.fullmatch(settings["name"]) or not _VERSION.fullmatch(settings["version"]):
            return None  # a foreign or damaged file: the other servers are listed all the same
        process, status = read_object(folder / "owner.json"), read_object(folder / "status.json")
        return cls(settings["name"], folder, settings, process, _checked_status(status))

    @property
    def version(self) -> str:
        """The version that is served."""
        return str(self.status.get("version") or self.settings["version"])

    @property
    def url(self) -> str:
        """The base of the HTTP routes."""
        return f"http://{LOOPBACK}:{self.settings['http_port']}"

    @property
    def grpc(self) -> str:
        """Host and port for gRPC."""
        return f"{LOOPBACK}:{self.settings['grpc_port']}"

    @property
    def alive(self) -> bool:
        """Whether the server's process is alive."""
        return owner.alive(self.owner, self.folder / "status.json")

    @property
    def problem(self) -> str:
        """Why the server has ended, in one line; "" while it is alive."""
        if self.alive:
            return ""
        return last_line(self.folder / "output.txt") or "its process was killed"

    def to_record(self) -> dict[str, Any]:
        """All of it for a program: `ServedModel` of `openapi.yaml`."""
        status = self.status
        latency = status.get("latency") or {}
        return {
            "name": self.name,
            "version": self.version,
            "url": self.url,
            "grpc": self.grpc,
            "alive": self.alive,
            "problem": self.problem,
            "detached": bool(self.settings.get("detached")),
            "log": self.settings.get("log"),
            "rate": float(status.get("rate") or 0),
            "rates": [float(rate) for rate in status.get("rates") or ()],
            "requests": int(status.get("requests") or 0),
            "errors": int(status.get("errors") or 0),
            "recent_errors": int(status.get("recent_errors") or 0),
            "dropped": int(status.get("dropped") or 0),
            "latency": {name: latency.get(name) for name in ("p50", "p95", "p99")},
        }

    def stop(self) -> str:
        """End the server after the requests in progress; returns a line for the user.

        Raises:
            CannotServe: the server runs on another host.
        """
        if self.alive and self.owner.get("host") != socket.gethostname():
            raise CannotServe(f"{self.name} is served on {self.owner.get('host')}: stop it there")
        was_alive = self.alive
        if was_alive:
            (self.folder / "control").mkdir(exist_ok=True)
            (self.folder / "control" / "stop").touch()
            deadline = time.monotonic() + STOP_SECONDS
            while self.alive and time.monotonic() < deadline:
                time.sleep(0.05)
            pid = owner.number_of(self.owner)
            if self.alive and pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)
        return f"{self.name} is not served any more" if was_alive else f"{self.name} was not served any more: removed"

    def how_to_call(self) -> str:
        """A shell command and a Python call that request a prediction.

        Raises:
            CannotServe: what the server says of the model's inputs is damaged.
        """
        inputs = self._inputs()
        request = {"inputs": [_zeros(*tensor) for tensor in inputs]}
        body = json.dumps(request)
        if len(body) > SHOWN_CHARACTERS:
            example = self.folder / "example.json"
            example.write_text(body)
            body = f"@{example}"
        shapes = {name: f"[{_nested(dtype, shape)}]" for name, dtype, shape in inputs}
        named = ", ".join(f'"{name}": {rows}' for name, rows in shapes.items())
        rows = next(iter(shapes.values())) if len(shapes) == 1 else f"{{{named}}}"
        call = f'requests.post("{self.url}/invocations", json={{"inputs": {rows}}}).json()["predictions"]'
        return (
            f"  curl {self.url}/v2/models/{self.name}/infer -H 'Content-Type: application/json' -d '{body}'\n"
            f"  import requests; {call}"
        )

    def _inputs(self) -> list[tuple[str, str, list[int]]]:
        """Name, type and shape of a row of each input of the model."""
        file = self.folder / "signature.json"
        try:
            inputs = [
                (name, dtype, [size or 1 for size in shape]) for name, dtype, shape in read_object(file)["inputs"]
            ]
            whole = all(type(name) is str and type(dtype) is str for name, dtype, _ in inputs)
            whole = whole and all(type(size) is int and size > 0 for *_, shape in inputs for size in shape)
            whole = whole and bool(inputs) and sum(math.prod(shape) for *_, shape in inputs) <= MAX_EXAMPLE_VALUES
        except (KeyError, TypeError, ValueError):
            whole = False
        if not whole:
            raise CannotServe(f"{file} is damaged: %ddl serve --stop {self.name}, and serve it again")
        return inputs

    def __repr__(self) -> str:
        return describe(self)


def _checked_status(stored: Mapping[str, Any]) -> dict[str, Any]:
    """What a `status.json` says, without values of other types."""
    latency, rates = stored.get("latency"), stored.get("rates")
    checked = {name: stored[name] for name in _NUMBERS if _is_number(stored.get(name))}
    if isinstance(stored.get("version"), str) and _VERSION.fullmatch(stored["version"]):
        checked["version"] = stored["version"]
    if isinstance(latency, dict):
        checked["latency"] = {name: value for name, value in latency.items() if _is_number(value)}
    if isinstance(rates, list):
        checked["rates"] = [rate for rate in rates if _is_number(rate)]
    return checked


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < 1e18


def _zeros(name: str, dtype: str, shape: list[int]) -> dict[str, Any]:
    """An input of the Open Inference Protocol with one row of zeros."""
    text = dtype == "object"
    return {
        "name": name,
        "shape": [1, *shape],
        "datatype": DATATYPES.get(dtype, dtype.upper()),
        "data": [("" if text else 0)] * math.prod(shape),
    }


def _nested(dtype: str, shape: list[int]) -> str:
    """A row of zeros, or of empty texts, as Python that can be pasted: [0, 0, 0], [[0] * 28] * 28."""
    if not shape:
        return '""' if dtype == "object" else "0"
    inner = _nested(dtype, shape[1:])
    return f"[{', '.join([inner] * shape[0])}]" if shape[0] <= 3 else f"[{inner}] * {shape[0]}"


def list_served() -> list[Served]:
    """The served models, and those whose server has died, by name."""
    servers = []
    with contextlib.suppress(OSError):
        for folder in sorted(servers_folder().iterdir()):
            served = Served.read(folder)
            if served is None:
                continue
            if (folder / "ended").exists() and not served.alive:  # stopped, or ended with its kernel
                shutil.rmtree(folder, ignore_errors=True)
            elif served.owner:
                servers.append(served)
    return servers


def find_served(name: str) -> Served:
    """The served model of a name.

    Raises:
        CannotServe: there is none.
    """
    servers = list_served()
    for served in servers:
        if served.name == name:
            return served
    raise CannotServe(
        f"no model {name} is served.{nearest(name, [server.name for server in servers])} %ddl serving lists them"
    )


def last_line(path: Path) -> str:
    """The last line of a server's output that says what went wrong, or ""."""
    try:
        data = path.read_bytes()[-65536:]
    except OSError:
        return ""
    lines = [line.strip() for line in data.decode(errors="replace").splitlines() if line.strip()]
    errors = [
        line for line in lines if "error" in line.partition(":")[0].lower() or line.startswith(("ValueError", "[Errno"))
    ]
    return visible(re.sub(r"^(\w+\.)*\w+Error: ", "", (errors or [""])[-1])[:500])


def describe(served: Served) -> str:
    """One line: version, address, requests and latencies."""
    if not served.alive:
        return f"{served.name}  version {served.version}  is not served any more: {served.problem}"
    status = served.status
    latency = status.get("latency") or {}
    fields = [f"{served.name}  version {served.version}  {served.url}"]
    fields.append(f"{status.get('rate', 0):.1f} requests/s, {status.get('requests', 0)} in all")
    times = [f"{name} {1000 * seconds:.1f} ms" for name, seconds in latency.items() if seconds is not None]
    if times:
        fields.append(", ".join(times))
    fields.append(counted(status.get("errors", 0), "error"))
    if status.get("dropped"):
        fields.append(f"{status['dropped']} requests are missing in the log")
    return "; ".join(fields)
