"""How requests reach the driver of a Livy session: jobs of its side channel, or statements where it has none.

The side channel (`POST /sessions/N/submit-job`) runs a job in the driver's Python at once, beside the statements. Such
a job is a pickle; ours says "the function `job` of the shipped runtime, called with this text" and holds nothing else,
so that it is the same for every Python, and the answer is read by an unpickler that knows text alone.
"""

from __future__ import annotations

import base64
import io
import json
import pickle
import struct
import threading
import time
from typing import Any

from ddl_magics.clusters import livy_remote
from ddl_magics.clusters.livy_http import Gone, LivyHttp, Rejected, Unavailable, patiently
from ddl_magics.clusters.shipping import Shipment

#: A statement that others are before waits its turn for so long. The longest of ours takes a second or two.
STATEMENT_SECONDS = 60.0
#: A side-channel job answers within milliseconds.
JOB_SECONDS = 30.0
#: Between two looks at a statement or job, doubled up to the second.
LOOK_SECONDS, LONGEST_LOOK_SECONDS = 0.02, 0.5
#: Tries of the probe that decides whether there is a side channel, while the session is busy with other things.
PROBE_SECONDS = 30.0

#: States of a session that it does not leave.
DEAD = frozenset(("dead", "error", "killed", "shutting_down", "success"))


class Busy(TimeoutError):
    """The session works on another cell's statement and did not come to ours."""


class StatementFailed(ConnectionError):
    """Our statement ended with an error of Python's; the message is its last line."""


class Channel:
    """The driver of session `number`. Thread-safe: the side channel's jobs and the statements mind their own turns.

    Attributes:
        beside: whether the side channel is used; None before `open`.
        why_not: why it is not, in words.
    """

    def __init__(self, http: LivyHttp, number: int, shipment: Shipment) -> None:
        self.http = http
        self.number = number
        self.module = shipment.module
        self.beside: bool | None = None
        self.why_not = ""
        self._shipment = shipment
        self._path = f"/sessions/{number}"
        self._opening = threading.Lock()
        # Without data it is there already, or nowhere.
        self._shipped = not shipment.data

    def open(self, seconds: float) -> None:
        """Bring the runtime to the session, once, and find out whether it has a side channel.

        Raises:
            ConnectionError, TimeoutError, ProcessLookupError: it could not be done within `seconds`.
        """
        with self._opening:
            if not self._shipped:
                for statement in livy_remote.receive(self._shipment):
                    patiently(lambda code=statement: self.statement(code), seconds)  # type: ignore[misc]
                self._shipped = True
            if self.beside is None:
                self._probe()

    def call(self, function: str, *arguments: str, namespace: bool = False) -> dict[str, Any]:
        """A function of the runtime's `remote` and its answer; with `namespace`, the session's globals are its last
        argument.

        Raises:
            ConnectionError, TimeoutError: no answer now.
            ProcessLookupError: the session is gone, or is another one than it was.
        """
        if self.beside and function not in ("launch", "info"):
            return self._job(function, arguments[0])
        reply = self.statement(livy_remote.call(self.module, function, *arguments, namespace=namespace))
        if reply.get("missing"):
            raise Gone(f"session {self.number} is not the one that it was: Livy has started it again")
        return reply

    def look(self) -> dict[str, Any]:
        """What the driver's Python has installed, and its clock."""
        return self.statement(livy_remote.look(self.module))

    def state(self) -> str:
        """The session's state as Livy says it."""
        return str(self.http.get(f"{self._path}/state")["state"])

    # Statements

    def statement(self, code: str, seconds: float = STATEMENT_SECONDS) -> dict[str, Any]:
        """Execute a statement of `livy_remote` and return its answer."""
        posted = self._ask("POST", f"{self._path}/statements", {"code": code})
        path, deadline, pause = f"{self._path}/statements/{posted['id']}", time.monotonic() + seconds, LOOK_SECONDS
        while True:
            # Its own code comes with every answer: seldom is better than often.
            statement = patiently(lambda: self._ask("GET", path), max(1.0, deadline - time.monotonic()))
            ended, output = statement["state"] in ("available", "error", "cancelled"), statement.get("output")
            # One that ends while Livy reads it has its new state already and no output yet: the next look has it.
            if ended and (output or statement["state"] == "cancelled"):
                return self._output(output or {})
            if time.monotonic() > deadline:
                self._cancel(path)
                raise Busy(f"session {self.number} is busy with another cell")
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_LOOK_SECONDS)

    def _output(self, output: dict[str, Any]) -> dict[str, Any]:
        if output.get("status") != "ok":
            raise StatementFailed(f"{output.get('ename', 'error')}: {output.get('evalue', 'no output')}")
        try:
            answer = livy_remote.answer(str(output.get("data", {}).get("text/plain", "")))
        except ValueError as error:
            raise StatementFailed(str(error)) from None
        if "problem" in answer:
            raise StatementFailed(str(answer["problem"]))
        return answer

    def _cancel(self, path: str) -> None:
        """Ours alone: a statement that has not begun is taken out of the queue."""
        try:
            self.http.post(f"{path}/cancel", seconds=5.0)
        except (ConnectionError, ProcessLookupError):
            pass  # it does no harm when its turn comes

    # The side channel

    def _probe(self) -> None:
        try:
            patiently(lambda: self._job("busy", "{}"), PROBE_SECONDS)
            self.beside = True
        except Unavailable as error:
            self.beside, self.why_not = False, str(error)
        except Rejected as error:
            self.beside, self.why_not = False, f"it refuses submit-job ({error.status})"

    def _job(self, function: str, argument: str) -> dict[str, Any]:
        body = {"job": base64.b64encode(self._pickled(function, argument)).decode(), "jobType": "pyspark"}
        posted = self._ask("POST", f"{self._path}/submit-job", body)
        path, deadline, pause = f"{self._path}/jobs/{posted['id']}", time.monotonic() + JOB_SECONDS, LOOK_SECONDS
        while True:
            # The first answer that says "ended" is the last: a lost one is asked for again by a new job.
            job = self._ask("GET", path, compressed=function != "fetch")
            if job["state"] == "SUCCEEDED":
                return _decoded(job["result"])
            if job["state"] in ("FAILED", "CANCELLED"):
                raise self._failed(str(job.get("error") or job["state"]))
            if time.monotonic() > deadline:
                raise Unavailable(f"the side channel of session {self.number} does not answer")
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_LOOK_SECONDS)

    def _pickled(self, function: str, argument: str) -> bytes:
        """Pickle's protocol 2 by hand: the function by reference, a tuple of one text, and the call."""
        request = json.dumps({"function": function, "argument": argument}).encode()
        reference = f"{self.module}.remote\njob\n".encode()
        return b"\x80\x02c" + reference + b"X" + struct.pack("<I", len(request)) + request + b"\x85R."

    def _failed(self, error: str) -> Exception:
        last = [line.strip() for line in error.splitlines() if line.strip()][-1:]
        if f"No module named '{self.module}" in error:
            return Gone(f"session {self.number} is not the one that it was: Livy has started it again")
        return Unavailable(f"the driver could not answer ({last[0] if last else 'no reason'})")

    # Both

    def _ask(
        self, method: str, path: str, body: dict[str, Any] | None = None, compressed: bool = True
    ) -> dict[str, Any]:
        """A request that concerns the session; what Livy says of one that has ended becomes `Gone`."""
        try:
            answer = self.http.ask(method, path, body, JOB_SECONDS, compressed)
        except Gone as error:
            raise Gone(f"{self._ended()} ({error})") from None
        except (Unavailable, Rejected):
            self._raise_if_dead()
            raise
        if not isinstance(answer, dict):
            raise Unavailable(f"{self.http.host} sent a broken answer")
        return answer

    def _raise_if_dead(self) -> None:
        try:
            state = self.state()
        except Gone as error:
            raise Gone(f"{self._ended()} ({error})") from None
        except (ConnectionError, KeyError, TypeError):
            return
        if state in DEAD:
            raise Gone(f"{self._ended()} (it is {state})")

    def _ended(self) -> str:
        return f"Livy session {self.number} at {self.http.host} has ended"


class _TextAlone(pickle.Unpickler):
    """Reads text, numbers and bytes; whatever names a class or function is refused before it is looked up."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"the answer names {module}.{name}")


def _decoded(result: str) -> dict[str, Any]:
    try:
        text = _TextAlone(io.BytesIO(base64.b64decode(base64.b64decode(result)))).load()
        value = json.loads(text)
    except Exception as error:  # unpickling raises nearly anything
        raise Unavailable(f"the side channel's answer cannot be read ({error})") from None
    if not isinstance(value, dict):
        raise Unavailable("the side channel's answer is no object")
    return value
