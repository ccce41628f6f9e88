"""The interface of a cluster, which executes runs, and the answers that it gives.

Problems that are to be expected are answers, not exceptions: a method returns one of the frozen dataclasses below, and
the caller branches over them.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from ddl_magics.runtime import events as ev
from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.store.files import move
from ddl_magics.wording import counted

#: Bytes of an artifact that one `fetch` asks for.
FETCH_BYTES = 4 * 2**20

#: Kind of an event that stands for one that cannot be read; no view knows it.
UNREADABLE = "unreadable"

#: Called with the bytes received so far and the size of the file.
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Ready:
    """The cluster can launch runs; `free` of its `slots` are not in use."""

    slots: int
    free: int
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class NotStarted:
    """The cluster is not running yet: the first launch starts it, which takes about `seconds`."""

    message: str
    seconds: float


@dataclass(frozen=True)
class Launched:
    """The driver has accepted the run."""


@dataclass(frozen=True)
class Refused:
    """The run was not started. `message`: one line that ends in what to do. `kind`: "usage", "slots" or "spark"."""

    kind: str
    message: str


@dataclass(frozen=True)
class Postponed:
    """The cluster cannot take the run now, for the reason in `message`: launch it again."""

    message: str


@dataclass(frozen=True)
class Polled:
    """The events after the given number, in order, and the run's state. `more`: further events are available now."""

    events: tuple[Mapping[str, Any], ...]
    last: int
    more: bool
    state: str


@dataclass(frozen=True)
class Unreachable:
    """The driver does not answer.

    gone: it never will, because its session has ended, and the run with it. busy: its session executes another cell.
    """

    message: str
    gone: bool = False
    busy: bool = False


class Cluster(Protocol):
    """Executes runs. Methods may be called from any thread; each returns within bounded time."""

    #: For people: "this machine", "hdi-prod, session 12".
    name: str
    #: Shortest time between two polls.
    poll_seconds: float
    #: Whether a run continues when this kernel ends.
    outlives_kernel: bool
    #: So many bytes of the files that a cell has written are fetched at the run's end; None: all.
    files_bytes: int | None

    @property
    def driver_address(self) -> Mapping[str, Any]:
        """How another kernel finds a run's driver again, as JSON without secrets; empty where it cannot."""

    def status(self) -> Ready | NotStarted | Unreachable: ...

    def check(self, spec: RunSpec, namespace: Mapping[str, Any]) -> Refused | None:
        """Why the run would be refused, as far as that is known without waiting."""

    def notices(self, spec: RunSpec, namespace: Mapping[str, Any]) -> Iterable[str]:
        """What the user should know of a run that `check` accepts, a line each."""

    def launch(self, spec: RunSpec, namespace: Mapping[str, Any]) -> Launched | Postponed | Refused:
        """Start the run and return. Where Spark runs here, `namespace` has the variables that the cell uses."""

    def poll(self, run: str, after: int) -> Polled | Unreachable: ...

    def stop(self, run: str, reason: str = "") -> bool:
        """Ask the run to finish its step and end, and to keep its model. It ends later, with a state event.

        reason: words that follow "stopped" in that event. Returns whether the driver has answered: else ask again.
        """

    def fetch(self, run: str, artifact: str, to: Path, progress: Progress) -> str | None:
        """Write the artifact to the file `to`. Returns None, or in one line why it cannot be fetched.

        Raises:
            OSError: it cannot be fetched now, as the driver does not answer or a disk is full.
        """

    def release(self, run: str) -> None:
        """Allow the driver to forget the run: the notebook has received all of it."""

    def give_back(self, what: str) -> str | Refused:
        """Give back executors, or the whole session, as --release says. Returns in one line what was done."""

    def ask_again(self) -> str | Refused:
        """Ask for the executors that were given back. Returns in one line what was done."""

    def replace_executor(self, executor: str) -> str | Refused:
        """End an executor of a session of ours, and ask for another. Returns in one line what was done."""

    def cache(self, option: str, clear: bool) -> list[Mapping[str, Any]] | str:
        """What the hosts keep of --data, as `driver.api.cache` lists it, or in one line why that is not known.

        option: the value of --cache. clear: remove it after that.
        """

    def shutdown(self) -> None:
        """End what was started for this notebook. Called when the kernel exits."""


#: Why --release is refused where the session is the user's.
NOT_OURS = (
    "--release is for sessions that ddl_magics has started, and this one is yours: leave it out; %ddl release gives "
    "the session's executors back."
)


class DriverCluster:
    """The functions of the runtime's `driver.api`, which take and return JSON text, as methods with the answers above.

    Subclasses are `Cluster`s and define `_call`, which takes a request to the driver and returns its reply.
    """

    name = ""
    outlives_kernel = False
    files_bytes: int | None = None

    @property
    def driver_address(self) -> Mapping[str, Any]:
        return {}

    def _call(self, function: str, *arguments: Any) -> dict[str, Any]:
        """Raises ConnectionError or TimeoutError for no answer, and ProcessLookupError when the driver is gone."""
        raise NotImplementedError

    def notices(self, spec: RunSpec, namespace: Mapping[str, Any]) -> Iterable[str]:
        return ()

    def poll(self, run: str, after: int) -> Polled | Unreachable:
        try:
            reply = self._call("poll", json.dumps({"run": run, "after": after}))
        except ProcessLookupError as error:
            return Unreachable(str(error), gone=True)
        except (ConnectionError, TimeoutError) as error:
            return Unreachable(str(error))
        if "events" not in reply:
            return Unreachable(_message(reply), gone=True)
        return Polled(
            tuple(_sound(reply["events"], after)), int(reply["last"]), bool(reply["more"]), str(reply["state"])
        )

    def stop(self, run: str, reason: str = "") -> bool:
        return self._ask("stop", {"run": run, "reason": reason})

    def release(self, run: str) -> None:
        self._ask("release", {"run": run})

    def fetch(self, run: str, artifact: str, to: Path, progress: Progress) -> str | None:
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
                    progress(offset, int(reply["size"]))
                    if offset >= reply["size"]:
                        break
                    if not data:
                        return f"the data ended after {offset} of {reply['size']} bytes"
            if digest.hexdigest() != reply["sha256"]:
                return "its checksum is wrong"
            move(part, to)
            return None
        except (OSError, ValueError) as error:
            if _may_pass(error):
                raise
            return f"{type(error).__name__}: {error}"
        finally:
            part.unlink(missing_ok=True)

    def give_back(self, what: str) -> str | Refused:
        if what == "session":
            return self._end_session()
        reply = self._change_executors("release")
        if isinstance(reply, Refused):
            return reply
        if not reply:
            return "there are no executors to give back"
        return (
            f"{counted(reply, 'executor')} given back; a Spark job waits until a run or %ddl acquire asks for new ones"
        )

    def ask_again(self) -> str | Refused:
        reply = self._change_executors("acquire")
        if isinstance(reply, Refused):
            return reply
        return f"asked for {counted(reply, 'executor')}" if reply else "no executors were given back with %ddl release"

    def replace_executor(self, executor: str) -> str | Refused:
        if not self._is_ours():
            return Refused("usage", "the session is yours")
        reply = self._change_executors("replace", executor=executor)
        if isinstance(reply, Refused):
            return reply
        return "it was replaced by another" if reply else "Spark has lost it already"

    def _is_ours(self) -> bool:
        """Whether the session was started here."""
        return False

    def _end_session(self) -> str | Refused:
        """End the session, if it was started here. The next run starts a new one."""
        return Refused("usage", NOT_OURS)

    def _change_executors(self, action: str, **more: str) -> int | Refused:
        """The number of executors that were given back, or asked for."""
        try:
            reply = self._call("executors", json.dumps({"do": action, **more}))
        except (ConnectionError, ProcessLookupError, TimeoutError) as error:
            return Refused("spark", f"{self.name} does not answer: {error}")
        if "count" not in reply:
            return Refused("spark", _message(reply))
        return int(reply["count"])

    def cache(self, option: str, clear: bool) -> list[Mapping[str, Any]] | str:
        try:
            reply = self._call("cache", json.dumps({"cache": option, "clear": clear}))
        except (ConnectionError, ProcessLookupError, TimeoutError) as error:
            return str(error)
        return list(reply["entries"]) if "entries" in reply else _message(reply)

    def shutdown(self) -> None:
        pass

    def _ask(self, function: str, request: Mapping[str, Any]) -> bool:
        """Whether there is an answer."""
        try:
            self._call(function, json.dumps(request))
        except (ConnectionError, ProcessLookupError, TimeoutError):
            return False
        return True


def _may_pass(error: Exception) -> bool:
    if isinstance(error, ConnectionError | TimeoutError):
        return True
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def _sound(events: Iterable[Any], after: int) -> Iterator[Mapping[str, Any]]:
    """The events in a reply, with `UNREADABLE` in place of those of another version that cannot be read."""
    for number, event in enumerate(events, after + 1):
        if ev.is_sound(event) and "seq" in event:
            yield event
        else:
            seq = event.get("seq") if isinstance(event, dict) else None
            placeholder = ev.make(UNREADABLE, ev.JOB)
            yield {**placeholder, "attempt": 1, "seq": seq if isinstance(seq, int) and seq >= number else number}


def launch_answer(reply: Mapping[str, Any]) -> Launched | Refused:
    """A reply of `driver.api.launch` as an answer."""
    if reply.get("ok"):
        return Launched()
    error = reply.get("error") or {}
    return Refused(str(error.get("kind", "spark")), str(error.get("message", "the driver refused without a reason")))


def _message(reply: Mapping[str, Any]) -> str:
    error = reply.get("error") or "the driver does not know the run"
    return str(error.get("message", error) if isinstance(error, Mapping) else error)
