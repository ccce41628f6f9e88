"""A run as a batch of Livy: a Spark application of its own, which needs no kernel and no session once it is there.

Livy takes the file of a batch from the cluster's storage alone. A short session writes it there (runtime's
driver/batch.py), below the run's --out, and is deleted before the batch begins.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ddl_magics.clusters import livy_description, livy_session, shipping, yarn_application
from ddl_magics.clusters.livy_channel import Channel
from ddl_magics.clusters.livy_description import DEAD, SessionId
from ddl_magics.clusters.livy_http import Gone, LivyHttp, Throttled, Unavailable, with_retries
from ddl_magics.clusters.livy_session import LivySession, NoRoom, NoSession
from ddl_magics.runtime import events as ev
from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.wording import visible_print

#: How long the session may take to write the program, and how long a request is repeated while Livy does not answer.
WRITE_SECONDS, RETRY_SECONDS = 180.0, 300.0
#: How often the batch is looked at, and how long after its end the last lines of its log may take.
POLL_SECONDS, LAST_LINES_SECONDS = 2.0, 3.0
#: How many lines of the log are asked for: Livy keeps 200 unless it is set otherwise.
LOG_LINES = 2000
#: How many of them are shown of a batch that is dead.
SHOWN_LINES = 10

_KIND = "batches"
#: Livy's state of a batch that has begun.
_RUNNING = "running"
#: What a batch takes of the properties of a session (`session_configs`).
_PROPERTIES = (
    *("proxyUser", "jars", "pyFiles", "files", "archives", "queue"),
    *("driverMemory", "driverCores", "executorMemory", "executorCores", "numExecutors"),
)
#: A second attempt of the application would find the first one's files.
_CONF = {"spark.yarn.maxAppAttempts": "1"}
_LINE, _END_LINE = re.compile(r"<ddl_magics (\d+)> (.*)"), re.compile(r"<ddl_magics end> (\{.*\})")
_SHOWN_CHARACTERS = 300


class Deleted(NoSession):
    """Livy answers, and has the batch no more."""


@dataclass(frozen=True)
class Batch:
    """A batch that was created. `id` is Livy's."""

    http: LivyHttp
    id: SessionId

    @property
    def path(self) -> str:
        return livy_description.path_of(self.id, _KIND)

    @property
    def url(self) -> str:
        return self.http.url + self.path

    @property
    def name(self) -> str:
        """For people."""
        return f"batch {self.id} at {self.http.host}"

    def delete(self, seconds: float = RETRY_SECONDS) -> None:
        """End it at once. Raises as `LivyHttp.ask`, `Gone` where Livy has it no more."""
        with_retries(lambda: self.http.delete(self.path), seconds)


@dataclass(frozen=True)
class Outcome:
    """What became of a batch: FINISHED, STOPPED or FAILED, and of the last why, in one line."""

    state: str
    error: str = ""


def submit(
    http: LivyHttp,
    spec: RunSpec,
    properties: Mapping[str, Any],
    seconds: float = livy_session.START_SECONDS,
    report: Callable[[str], None] = print,
) -> Batch:
    """Write the program of a run below its --out, and create the batch.

    Args:
        http: requests to the Livy.
        spec: of the run, with its id, name, seed and --out. Its --timeout is how long a queue of YARN may take to have
            room for the session that writes.
        properties: of new sessions, as sparkmagic is configured.
        seconds: how long the session that writes may take to start.
        report: called with a line of progress.

    Raises:
        NoSession: there is no batch; the message is one line.
    """
    program = _written(http, spec, properties, seconds, report)
    conf = {**_CONF, **dict(properties.get("conf") or {}), **spec.conf}
    name = f"{livy_session.NAME_PREFIX}{spec.name}_{spec.run}"
    body = {key: properties[key] for key in _PROPERTIES if key in properties}
    body.update(file=program["file"], args=program["args"], conf=conf, name=name)
    body["pyFiles"] = [*(properties.get("pyFiles") or ()), *program["py_files"]]
    try:
        return Batch(http, _posted(http, body, name, seconds))
    except (ConnectionError, ProcessLookupError, ValueError) as error:
        raise NoSession(f"no batch could be created: {str(error).rstrip('.')}.") from None


def _posted(http: LivyHttp, body: Mapping[str, Any], name: str, seconds: float) -> SessionId:
    try:
        return livy_description.read(http.post(f"/{_KIND}", body, patience=seconds)).id
    except Throttled:  # nothing was created
        raise
    except (Unavailable, ValueError) as error:
        return livy_session.found_by_name(http, name, error, _KIND).id


def _written(
    http: LivyHttp, spec: RunSpec, properties: Mapping[str, Any], seconds: float, report: Callable[[str], None]
) -> dict[str, Any]:
    """The batch's files and arguments, when they are in the storage and the session that wrote them is deleted."""
    record = {**spec.to_record(), "folder": None, "conf": {}}  # settings, which may be secrets, go with the request
    session = _writer(http, properties, seconds, spec.timeout, report)
    try:
        channel = Channel(http, session.id, shipping.pack(), session.statement_kind)
        channel.open(WRITE_SECONDS)
        reply = channel.call("write_batch", json.dumps({"spec": record}), seconds=WRITE_SECONDS)
    except (ConnectionError, TimeoutError, ProcessLookupError) as error:
        raise NoSession(f"Livy session {session.id} has not written the batch's files: {error}") from None
    finally:
        session.terminate()
    if not reply["ok"]:
        raise NoSession(f"{reply['error']['message'].rstrip('.')}.")
    return reply


def _writer(
    http: LivyHttp,
    properties: Mapping[str, Any],
    seconds: float,
    queue_seconds: float | None,
    report: Callable[[str], None],
) -> LivySession:
    """A session that has started. One that Livy gives up as it waits in a queue is followed by another, for so long."""
    deadline = time.monotonic() + (math.inf if queue_seconds is None else queue_seconds)
    while True:
        try:
            return livy_session.create(http, properties, seconds=seconds, report=report)
        except NoRoom as error:
            if time.monotonic() > deadline:
                raise NoSession(f"no batch was created in the {queue_seconds:g} s of --timeout: {error}") from None


def follow(
    batch: Batch,
    report: Callable[[str], None] = print,
    start_seconds: float | None = None,
    report_state: Callable[[str, str], None] = lambda state, message: None,
) -> Outcome:
    """Report what the run prints, until the batch has ended.

    Args:
        batch: that was created.
        report: called with a line.
        start_seconds: a batch that has not begun after so long is deleted; None: it may wait for ever.
        report_state: called now and then with the state of the run, and what it waits for.

    Raises:
        Deleted: Livy has the batch no more.
        NoSession: Livy has not answered for `RETRY_SECONDS`.
    """
    last_number, began, log = 0, time.monotonic(), list[str]()
    queue = yarn_application.Queue(lambda: log, report)
    while True:
        state, log[:] = _state_and_log(batch)
        last_number = _report_new(log, last_number, report)
        if state in DEAD:
            return outcome(batch, state, last_number, report)
        if state == _RUNNING or last_number:
            report_state(ev.RUNNING, "")
        else:
            queue.look()
            report_state(ev.SUBMITTED, queue.waiting)
            if start_seconds is not None and time.monotonic() > began + start_seconds:
                return _given_up(batch, start_seconds, queue.waiting)
        time.sleep(POLL_SECONDS)


def _given_up(batch: Batch, seconds: float, waiting: str) -> Outcome:
    remedy = "ask for less with session_configs in sparkmagic's config.json, or for more time with --timeout"
    error = f"{batch.name} had not begun after the {seconds:g} s of --timeout"
    try:
        batch.delete()
    except (ConnectionError, ProcessLookupError) as problem:
        return Outcome(ev.FAILED, f"{error}, and may begin yet, as it could not be deleted: {problem}")
    return Outcome(ev.FAILED, f"{error}, and was deleted{f' ({waiting})' if waiting else ''}: {remedy}")


def _state_and_log(batch: Batch) -> tuple[str, list[str]]:
    """The state of the batch, and what Livy has of its log."""
    try:
        state = with_retries(lambda: livy_description.read(batch.http.get(batch.path)), RETRY_SECONDS).state
        return state, with_retries(lambda: _log(batch), RETRY_SECONDS)
    except Gone:
        raise Deleted(f"{batch.name} was deleted, and its run ended with it.") from None
    except (ConnectionError, ProcessLookupError, ValueError) as error:
        raise NoSession(f"{str(error).rstrip('.')}. {batch.name.capitalize()} may go on there.") from None


def _log(batch: Batch) -> list[str]:
    answer = batch.http.get(f"{batch.path}/log?from=0&size={LOG_LINES}")
    lines = answer.get("log") if isinstance(answer, Mapping) else None
    return [line for text in lines for line in str(text).splitlines()] if isinstance(lines, list) else []


def _report_new(log: Sequence[str], last_number: int, report: Callable[[str], None]) -> int:
    """Report the lines that the driver of the run has printed after number `last_number`. Returns the newest number."""
    for text in log:
        line = _LINE.match(text)
        if line and int(line[1]) > last_number:
            last_number = int(line[1])
            report(visible_print(line[2]))
    return last_number


def outcome(
    batch: Batch, state: str, last_number: int = 0, report: Callable[[str], None] = lambda line: None
) -> Outcome:
    """How a batch in a state of `DEAD` has ended, by its driver's own words where the log has them: on YARN, the
    cluster's logs do.
    """
    deadline = time.monotonic() + LAST_LINES_SECONDS
    while True:
        log = _state_and_log(batch)[1]
        records = [line[1] for text in log if (line := _END_LINE.match(text))]
        if records or time.monotonic() > deadline:
            break
        time.sleep(LAST_LINES_SECONDS / 10)
    _report_new(log, last_number, report)
    if records:
        record = json.loads(records[-1])
        if record["state"] in (ev.FINISHED, ev.STOPPED):
            return Outcome(record["state"])
        return Outcome(ev.FAILED, str(record["message"]))
    if state == "success":
        return Outcome(ev.FINISHED)
    if state == "killed":
        return Outcome(ev.STOPPED)
    lines = [line.strip() for line in log if line.strip() not in ("", "stdout:", "stderr:")]
    for text in lines[-SHOWN_LINES:]:
        report(visible_print(text))
    return Outcome(ev.FAILED, f"batch {batch.id} is {state}: {_cause(lines)}")


def _cause(lines: Sequence[str]) -> str:
    words = yarn_application.reason(lines)
    errors = [line for line in lines if "Exception" in line or "Error" in line or "ERROR" in line]
    return (words or (errors or lines or ["its log in Livy is empty"])[-1])[:_SHOWN_CHARACTERS]
