"""What a place that executes runs must be able to do, and the answers that it gives.

A cluster never raises for what can be expected of it: it answers with one of the frozen dataclasses here, and the
caller branches over them.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from ddl_magics.spec import RunSpec

#: Bytes of an artifact that one `fetch` asks for.
FETCH_BYTES = 4 * 2**20

#: Is told how many bytes of how many are here.
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Ready:
    """The cluster can be asked to launch; `free` of its `slots` are not taken now."""

    slots: int
    free: int
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class NotStarted:
    """Nothing runs yet: the first launch starts it and may take `seconds`."""

    message: str
    seconds: float


@dataclass(frozen=True)
class Launched:
    """The driver has taken the run."""


@dataclass(frozen=True)
class Refused:
    """The run cannot be; `message` is one line that ends in what to do. `kind`: "usage", "slots" or "spark"."""

    kind: str
    message: str


@dataclass(frozen=True)
class Polled:
    """Events after the one asked for, in order; `more` says that others are waiting already."""

    events: tuple[Mapping[str, Any], ...]
    last: int
    more: bool
    state: str


@dataclass(frozen=True)
class Unreachable:
    """No answer. `gone` says that there will be none: the session ended, and the run with it."""

    message: str
    gone: bool = False


class Cluster(Protocol):
    """Where runs are executed. Methods may be called from any thread; each returns within bounded time."""

    #: What people call it: "this machine", "hdi-prod, session 12".
    name: str
    #: Shortest time between two polls.
    poll_seconds: float
    #: Whether a run goes on when this kernel ends.
    outlives_kernel: bool

    @property
    def place(self) -> Mapping[str, Any]:
        """Where another kernel finds a run's driver again, as JSON and without secrets; empty where it cannot."""

    def status(self) -> Ready | NotStarted | Unreachable: ...

    def check(self, spec: RunSpec, namespace: Mapping[str, Any]) -> Refused | None:
        """What can be refused without waiting for anything."""

    def launch(self, spec: RunSpec, namespace: Mapping[str, Any]) -> Launched | Refused:
        """Start the run and return. Names that the cell uses are taken from `namespace` where Spark runs here."""

    def poll(self, run: str, after: int) -> Polled | Unreachable: ...

    def stop(self, run: str) -> None:
        """Ask the run to finish its step and end, keeping its model. It ends later, with a state event."""

    def fetch(self, run: str, artifact: str, to: Path, tell: Progress) -> str | None:
        """Write the artifact to the file `to`; None, or why it could not be had. `tell` hears of each part."""

    def release(self, run: str) -> None:
        """The notebook has all of the run: the driver may forget it."""

    def shutdown(self) -> None:
        """End what was started for this notebook; it is called when the kernel exits."""


class DriverCluster:
    """The calls of `driver.py`, whose arguments and answers are JSON strings, as methods with the answers above.

    Subclasses are `Cluster`s and give `_call`, which brings a request to the driver and its reply back.
    """

    outlives_kernel = False

    @property
    def place(self) -> Mapping[str, Any]:
        return {}

    def _call(self, function: str, *arguments: Any) -> dict[str, Any]:
        """Raises ConnectionError when the driver cannot be asked, and ProcessLookupError when it is gone."""
        raise NotImplementedError

    def poll(self, run: str, after: int) -> Polled | Unreachable:
        try:
            reply = self._call("poll", json.dumps({"run": run, "after": after}))
        except ProcessLookupError as error:
            return Unreachable(str(error), gone=True)
        except (ConnectionError, TimeoutError) as error:
            return Unreachable(str(error))
        if "events" not in reply:
            return Unreachable(_message(reply), gone=True)
        return Polled(tuple(reply["events"]), int(reply["last"]), bool(reply["more"]), str(reply["state"]))

    def stop(self, run: str) -> None:
        self._ask("stop", {"run": run})

    def release(self, run: str) -> None:
        self._ask("release", {"run": run})

    def fetch(self, run: str, artifact: str, to: Path, tell: Progress) -> str | None:
        part = to.with_name(f".{to.name}.part")
        digest, offset = hashlib.sha256(), 0
        try:
            with open(part, "wb") as file:
                while True:
                    request = {"run": run, "name": artifact, "offset": offset, "length": FETCH_BYTES}
                    reply = self._call("fetch", json.dumps(request))
                    if "data" not in reply:
                        return _message(reply)
                    data = base64.b64decode(reply["data"])
                    file.write(data)
                    digest.update(data)
                    offset += len(data)
                    tell(offset, int(reply["size"]))
                    if offset >= reply["size"]:
                        break
                    if not data:
                        return f"it ended after {offset} of {reply['size']} bytes"
            if digest.hexdigest() != reply["sha256"]:
                return "its checksum is wrong"
            part.replace(to)
            return None
        except (OSError, ValueError) as error:
            return f"{type(error).__name__}: {error}"
        finally:
            part.unlink(missing_ok=True)

    def shutdown(self) -> None:
        pass

    def _ask(self, function: str, request: Mapping[str, Any]) -> None:
        try:
            self._call(function, json.dumps(request))
        except (ConnectionError, ProcessLookupError, TimeoutError):
            pass  # whether it was heard shows in the events


def refusal(reply: Mapping[str, Any]) -> Launched | Refused:
    """The answer to `driver.launch`."""
    if reply.get("ok"):
        return Launched()
    error = reply.get("error") or {}
    return Refused(str(error.get("kind", "spark")), str(error.get("message", "the driver refused without a reason")))


def _message(reply: Mapping[str, Any]) -> str:
    error = reply.get("error")
    return str(error.get("message", error) if isinstance(error, Mapping) else error or "the driver does not know it")
