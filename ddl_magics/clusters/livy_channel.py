"""Requests to the driver of a Livy session: jobs of its side channel, or statements where it has none.

The side channel (`POST /sessions/N/submit-job`) runs a job in the driver's Python at once, beside the statements. Such
a job is a pickle. Ours contains only a reference to the function `job` of the shipped runtime and its text argument, so
that it is the same for every version of Python. The unpickler of the answer accepts only text.
"""

from __future__ import annotations

import base64
import io
import json
import math
import pickle
import struct
import threading
import time
from concurrent.futures import Future
from functools import partial
from typing import Any
from urllib.parse import quote

from ddl_magics.clusters import livy_description, livy_remote, yarn_application
from ddl_magics.clusters.idle_session import LOOK_SECONDS, IdleSession
from ddl_magics.clusters.livy_description import DEAD, SessionId
from ddl_magics.clusters.livy_http import Gone, LivyHttp, NoAnswer, Rejected, Unavailable, with_retries
from ddl_magics.clusters.shipping import RuntimePackage
from ddl_magics.runtime.spark import spark_error
from ddl_magics.wording import plain

#: Functions that call Spark, which the side channel must not do, or use the session's variables.
STATEMENTS = (
    *("launch", "info", "executors", "python_of_worker", "cache", "predict", "evaluate", "place"),
    *("write_tfrecord", "write_batch"),
)
#: How long a statement may wait in the queue, and how long it may run. Most of ours run up to two seconds.
STATEMENT_SECONDS = 60.0
#: Side-channel jobs usually answer within milliseconds.
JOB_SECONDS = 30.0
#: How long Livy may take to answer a request. A session that is idle and answers none in twice that time is dead.
REPLY_SECONDS = 25.0
#: The pause between two queries for the state of a statement or job: at first, and at most after doublings.
POLL_SECONDS, LONGEST_POLL_SECONDS = 0.02, 0.5
#: How long the probe for a side channel is repeated while the session is busy.
PROBE_SECONDS = 30.0


class Busy(TimeoutError):
    """The session executes another cell's statement and has not reached ours."""


class TooSlow(TimeoutError):
    """Our statement exceeded its time; whether its cancellation has ended it is unknown."""


class StatementFailed(ConnectionError):
    """Our statement raised an error in the driver's Python; the message is its last line."""


class Channel:
    """Requests to the driver of session `id`. Thread-safe: Livy orders statements and jobs itself.

    `kind` goes with each statement, if the session has none itself.

    Attributes:
        has_side_channel: whether the side channel is used; None before `open`.
        no_side_channel_reason: why it is not, in words.
    """

    def __init__(self, http: LivyHttp, session_id: SessionId, runtime: RuntimePackage, kind: str | None = None) -> None:
        self.http = http
        self.id = session_id
        self.module = runtime.module
        self.has_side_channel: bool | None = None
        self.no_side_channel_reason = ""
        self._runtime = runtime
        self._path = livy_description.path_of(session_id)
        self._kind = {} if kind is None else {"kind": kind}
        self._opening = threading.Lock()
        self._idle = IdleSession()
        # A package without data is in the session already, or cannot be brought there.
        self._shipped = not runtime.data

    def open(self, seconds: float) -> None:
        """Send the runtime to the session, once, and find out whether the session has a side channel.

        Raises:
            ConnectionError, TimeoutError, ProcessLookupError: it did not succeed within `seconds`.
        """
        with self._opening:
            if not self._shipped:
                for statement in livy_remote.receive(self._runtime):
                    with_retries(partial(self.statement, statement), seconds)
                self._shipped = True
            if self.has_side_channel is None:
                self._probe()

    def call(
        self, function: str, *arguments: str, namespace: bool = False, seconds: float | None = None
    ) -> dict[str, Any]:
        """Call a function of the runtime's `driver.remote` and return its reply.

        Args:
            namespace: add the session's globals to the arguments.
            seconds: as for `statement`.

        Raises:
            Busy: the session executes another cell.
            ConnectionError, TimeoutError: there is no answer now.
            ProcessLookupError: the session has ended, or Livy has replaced it by another one of the same number.
        """
        if self.has_side_channel and function not in STATEMENTS:
            return self._job(function, arguments[0])
        code = livy_remote.call(self.module, function, *arguments, namespace=namespace)
        reply = self.statement(code, seconds)
        if reply.get("missing"):
            raise self._restarted()
        return reply

    def environment(self) -> dict[str, Any]:
        """The versions of the driver's Python and of what it has installed, and its clock."""
        return self.statement(livy_remote.environment(self.module))

    def state(self) -> str:
        """The session's state in Livy's words; "" if it has none yet. Raises as `livy_description.ask`."""
        return livy_description.ask(self.http, self.id).state

    # Statements

    def statement(self, code: str, seconds: float | None = None) -> dict[str, Any]:
        """Execute a statement of `livy_remote` and return its answer.

        Args:
            code: the statement.
            seconds: how long it may take once it has begun; None: `STATEMENT_SECONDS`. An interrupt of the kernel ends
                one that may take longer. One that may take any time (math.inf) may also wait for any time.
        """
        seconds = STATEMENT_SECONDS if seconds is None else seconds
        posted: Future[str] = Future()
        try:
            # In a thread, which an interrupt leaves alone: Livy's answer has the number to cancel the statement by.
            threading.Thread(target=self._post_into, args=(posted, code), daemon=True).start()
            return self._output(self._ended_statement(posted.result(), seconds))
        except KeyboardInterrupt:
            if not posted.cancel() and posted.exception() is None and seconds > STATEMENT_SECONDS:
                self._cancel(posted.result())
            raise

    def _post_into(self, posted: Future[str], code: str) -> None:
        """Post a statement, unless `posted` was cancelled; it gets the statement's path, or the error."""
        if not posted.set_running_or_notify_cancel():
            return
        try:
            posted.set_result(self._posted(code))
        except BaseException as error:
            posted.set_exception(error)

    def _posted(self, code: str) -> str:
        """Post a statement; returns its path."""
        posted = self._ask("POST", f"{self._path}/statements", {"code": code, **self._kind})
        return f"{self._path}/statements/{self._id(posted, 'statement')}"

    def _id(self, posted: dict[str, Any], what: str) -> str:
        """The id in the answer to what was posted, as in a path. Raises Rejected, with what came, if it has none."""
        try:
            return quote(str(livy_description.checked_id(posted.get("id"))), safe="")
        except ValueError:
            came = plain(json.dumps(posted))
            raise Rejected(f"{self.http.host} answers a posted {what} without an id: {came}", 200) from None

    def _ended_statement(self, path: str, seconds: float) -> dict[str, Any]:
        """The output of a statement, which may run for `seconds` once it has begun."""
        waits = STATEMENT_SECONDS if seconds < math.inf else math.inf
        begun, deadline, pause = False, time.monotonic() + waits, POLL_SECONDS
        look_at = time.monotonic() + LOOK_SECONDS
        while True:
            retried = max(1.0, min(STATEMENT_SECONDS, deadline - time.monotonic()))
            # Each answer repeats the statement's code: do not ask too often.
            statement = with_retries(lambda: self._ask("GET", path), retried)
            state, output = str(statement.get("state") or "waiting").lower(), statement.get("output")
            # A statement that ends during the query may have its new state and no output yet: ask again.
            if state == "cancelled" or (state in ("available", "error") and output):
                self._idle.answered()
                return output or {}
            if not begun and state != "waiting":
                begun, deadline = True, time.monotonic() + seconds
            if time.monotonic() > deadline:
                self._cancel(path)
                if begun:
                    raise TooSlow(f"session {self.id} has not answered within {seconds:.0f} s")
                raise Busy(f"session {self.id} is busy with another cell")
            look_at = self._look(look_at)
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_POLL_SECONDS)

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
        """Take our statement out of the queue, or end it."""
        try:
            self.http.post(f"{path}/cancel", seconds=5.0)
        except (ConnectionError, ProcessLookupError):
            pass  # it does no harm when it is executed later

    # The side channel

    def _probe(self) -> None:
        try:
            with_retries(lambda: self._job("busy", "{}"), PROBE_SECONDS)
            self.has_side_channel = True
        except Unavailable as error:
            self.has_side_channel, self.no_side_channel_reason = False, str(error)
        except Gone as error:
            self.state()  # raises it again, unless only the request is unknown there
            self.has_side_channel, self.no_side_channel_reason = False, str(error)
        except Rejected as error:
            self.has_side_channel, self.no_side_channel_reason = False, f"it refuses submit-job ({error.status})"

    def _job(self, function: str, argument: str) -> dict[str, Any]:
        body = {"job": base64.b64encode(self._pickled(function, argument)).decode(), "jobType": "pyspark"}
        posted = self._ask("POST", f"{self._path}/submit-job", body)
        path = f"{self._path}/jobs/{self._id(posted, 'job')}"
        deadline, pause = time.monotonic() + JOB_SECONDS, POLL_SECONDS
        look_at = time.monotonic() + LOOK_SECONDS
        while True:
            # Livy reports a job's result once. If that answer is lost, the caller asks by a new job.
            job = self._ask("GET", path, compressed=function != "fetch")
            if job["state"] == "SUCCEEDED":
                self._idle.answered()
                return _decoded(job["result"])
            if job["state"] in ("FAILED", "CANCELLED"):
                self._idle.answered()
                raise self._failed(str(job.get("error") or job["state"]))
            if time.monotonic() > deadline:
                raise Unavailable(f"the side channel of session {self.id} does not answer")
            look_at = self._look(look_at)
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_POLL_SECONDS)

    def _pickled(self, function: str, argument: str) -> bytes:
        """A pickle of protocol 2, written by hand: the function by reference, a tuple of one text, and the call."""
        request = json.dumps({"function": function, "argument": argument}).encode()
        reference = f"{self.module}.driver.remote\njob\n".encode()
        return b"\x80\x02c" + reference + b"X" + struct.pack("<I", len(request)) + request + b"\x85R."

    def _failed(self, error: str) -> Exception:
        if f"No module named '{self.module}" in error:
            return self._restarted()
        if "java.net.ConnectException" in error and "Traceback" not in error:  # from Livy's Java to its Python
            end_reason = yarn_application.why_ended(self.http, self.id)
            has_ended = f"has ended ({end_reason})" if end_reason else "has ended"
            return Gone(f"the Python of Livy session {self.id} at {self.http.host} {has_ended}: begin a new session")
        return Unavailable(f"the driver could not answer ({spark_error.cause(error)})")

    # Both

    def _ask(
        self, method: str, path: str, body: dict[str, Any] | None = None, compressed: bool = True
    ) -> dict[str, Any]:
        """A request about the session. Raises `Gone` for each way in which Livy says that it has ended."""
        began = time.monotonic()
        try:
            answer = self.http.ask(method, path, body, REPLY_SECONDS, compressed)
        except Gone as error:
            raise Gone(f"{self._end_message()} ({error})") from None
        except (Unavailable, Rejected) as error:
            self._raise_if_dead(began if isinstance(error, NoAnswer) else None)
            raise
        if not isinstance(answer, dict):
            raise Unavailable(f"{self.http.host} sent a broken answer")
        return answer

    def _look(self, due: float) -> float:
        """While a request waits: ask for the session's state, if that is due. Returns when it is next."""
        now = time.monotonic()
        if now < due:
            return due
        self._raise_if_dead(now)
        return now + LOOK_SECONDS

    def _raise_if_dead(self, unanswered_since: float | None) -> None:
        """unanswered_since: when the driver was asked in vain; None where it is not known whether it was asked."""
        try:
            state = self.state()
        except Gone as error:
            raise Gone(f"{self._end_message()} ({error})") from None
        except (ConnectionError, ValueError):
            return
        if state in DEAD:
            end_reason = yarn_application.why_ended(self.http, self.id)
            raise Gone(f"{self._end_message()} (it is {state}{end_reason and f'; {end_reason}'})")
        if unanswered_since is not None and self._idle.is_dead(state == "idle", unanswered_since):
            silent = f"its driver has not answered for {self._idle.seconds:.0f} s, though Livy calls it idle"
            raise Gone(f"{self._end_message()} ({silent}): begin a new session")

    def _restarted(self) -> Gone:
        return Gone(f"session {self.id} is a different one now: Livy was restarted and has reused the number")

    def _end_message(self) -> str:
        return f"Livy session {self.id} at {self.http.host} has ended"


class _TextUnpickler(pickle.Unpickler):
    """Reads text, numbers and bytes; refuses the name of any class or function before it is looked up."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"the answer names {module}.{name}")


def _decoded(result: str) -> dict[str, Any]:
    try:
        text = _TextUnpickler(io.BytesIO(base64.b64decode(base64.b64decode(result)))).load()
        value = json.loads(text)
    except Exception as error:  # unpickling raises nearly anything
        raise Unavailable(f"the side channel's answer cannot be read ({error})") from None
    if not isinstance(value, dict):
        raise Unavailable("the side channel's answer is no object")
    return value
