"""Livy sessions: created for this notebook, found by number or name, kept alive, ended."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ddl_magics.clusters import livy_description, yarn_application
from ddl_magics.clusters.livy_description import DEAD, Description, SessionId
from ddl_magics.clusters.livy_http import Gone, LivyHttp, Rejected, Throttled, Unavailable, with_retries

#: How long a new session may take to become idle: YARN may have to find resources for it.
START_SECONDS = 300.0
POLL_SECONDS = 0.5
#: How long the first request is repeated: a user waits for the cell.
REACH_SECONDS = 3.0
#: How long a session may take to be listed, if the answer to its creation is lost.
APPEAR_SECONDS = 15.0
#: Livy ends a session that belongs to a kernel after so long without a request.
HEARTBEAT_TIMEOUT_SECONDS = 60
#: The same where a ticket of Kerberos can expire, and the user must have time to renew it.
TICKET_TIMEOUT_SECONDS = 600
HEARTBEAT_INTERVAL_SECONDS = 15.0
#: How long a kernel that exits waits for its session to end. Without heartbeats it ends later anyway.
CLOSE_SECONDS = 1.5
#: Prefix of the names of sessions that we create.
NAME_PREFIX = "ddl_"
#: Prefix of detached sessions: Livy before 0.8 does not report whether a session has a heartbeat.
DETACHED_PREFIX = NAME_PREFIX + "detached_"

_KIND = "pyspark"
#: Parts of the URLs of services.
_FABRIC, _LIGHTER = "/livyapi/versions/", "/lighter/api"
_IDLE_TIMEOUTS = {
    _FABRIC: "Fabric's session timeout (20 min unless set)",
    _LIGHTER: "Lighter's session timeout (1 h 30 min unless set)",
}
_SHOWN_CHARACTERS = 200


class NoSession(Exception):
    """No session can be used; the message is one line that ends in what to do."""


class SessionGone(NoSession):
    """Livy has answered, and has no such session."""


class NoRoom(NoSession):
    """The session has waited in a queue of YARN, and then ended: Livy gives one up that starts too late."""


@dataclass(eq=False)
class LivySession:
    """A session that has started.

    Attributes:
        http: requests to its Livy.
        id: Livy's of the session.
        name: Livy's name of it; empty where it has none.
        ends_with_kernel: created for this kernel, ends with it.
        detached: created to outlive kernels, ends when it is deleted or Livy's idle timeout is over.
        created_here: created by this kernel.
        statement_kind: named with each statement, where the session itself has no kind; else None.
    """

    http: LivyHttp
    id: SessionId
    name: str = ""
    ends_with_kernel: bool = False
    detached: bool = False
    created_here: bool = False
    statement_kind: str | None = None
    _closed: threading.Event = field(default_factory=threading.Event, repr=False)

    def close(self) -> None:
        """End the session if it `ends_with_kernel`; any other continues."""
        self._closed.set()
        if self.ends_with_kernel:
            ending = threading.Thread(target=self.delete, daemon=True)
            ending.start()
            ending.join(CLOSE_SECONDS)

    @property
    def closed(self) -> bool:
        """Whether this kernel has ended the session, or stopped using it."""
        return self._closed.is_set()

    def terminate(self) -> None:
        """End the session now, even a detached one."""
        self._closed.set()
        self.delete()

    def delete(self) -> None:
        with contextlib.suppress(ConnectionError, ProcessLookupError):
            self.http.delete(livy_description.path_of(self.id))

    def send_heartbeats(self) -> None:
        """Ask for the session's state until `close`, so that Livy knows that the kernel is alive."""
        while not self._closed.wait(HEARTBEAT_INTERVAL_SECONDS):
            try:
                livy_description.ask(self.http, self.id, HEARTBEAT_INTERVAL_SECONDS)
            except Gone:
                return
            except (ConnectionError, ValueError):
                pass  # the next heartbeat may arrive


def create(
    http: LivyHttp,
    properties: Mapping[str, Any],
    detached: bool = False,
    seconds: float = START_SECONDS,
    report: Callable[[str], None] = print,
) -> LivySession:
    """Create a session and wait until it can be used. An interrupt deletes it again.

    Args:
        http: requests to the Livy.
        properties: the body of `POST /sessions` as sparkmagic is configured.
        detached: without heartbeats, so that the session outlives this kernel.
        seconds: how long it may take to start.
        report: called with a line of progress.

    Raises:
        NoSession: the session could not be created or did not start.
    """
    name = f"{DETACHED_PREFIX if detached else NAME_PREFIX}{secrets.token_hex(4)}"
    heartbeat = not is_fabric(http.url)
    body = {**properties, "name": name}
    if heartbeat:
        body.update(kind=_KIND, heartbeatTimeoutInSecond=0 if detached else heartbeat_timeout(http))
    try:
        _reach(http)
        described = _post(http, body, name, seconds)
    except (ConnectionError, ProcessLookupError, ValueError) as error:
        raise NoSession(f"no session could be created: {error}") from None
    session = _of(http, described, ends_with_kernel=not detached, detached=detached, created_here=True)
    report(f"Livy session {session.id}{f' ({session.name})' if session.name else ''} starts at {http.host}")
    try:
        wait_until_idle(session, seconds, report)
    except BaseException:
        session.delete()
        raise
    if session.ends_with_kernel and heartbeat:
        threading.Thread(target=session.send_heartbeats, name=f"ddl_magics session {session.id}", daemon=True).start()
    return session


def heartbeat_timeout(http: LivyHttp) -> int:
    """Seconds without a request after which Livy ends a session that belongs to a kernel."""
    return TICKET_TIMEOUT_SECONDS if http.by_ticket else HEARTBEAT_TIMEOUT_SECONDS


def is_fabric(url: str) -> bool:
    """Whether it is Microsoft Fabric's: there, a session has neither a kind nor a heartbeat."""
    return _FABRIC in url.lower()


def idle_timeout(url: str) -> str:
    """When a session without statements ends there, in words, by what is known of the services that are like Livy."""
    found = next((words for part, words in _IDLE_TIMEOUTS.items() if part in url.lower()), None)
    return found or "Livy's default (livy.server.session.timeout, 1 h unless set)"


def _of(http: LivyHttp, described: Description, **how: Any) -> LivySession:
    kind = None if described.kind == _KIND else _KIND
    return LivySession(http, described.id, described.name, statement_kind=kind, **how)


def check_reachable(http: LivyHttp) -> None:
    """Raises NoSession with what is wrong, if the Livy cannot be asked."""
    try:
        _reach(http)
    except (ConnectionError, ProcessLookupError) as error:
        raise NoSession(f"{str(error).rstrip('.')}.") from None


def _reach(http: LivyHttp) -> None:
    """Send a harmless request, so that a wrong URL or password is reported at once."""
    with_retries(lambda: http.get("/sessions?size=1", seconds=20.0), REACH_SECONDS)


def _post(http: LivyHttp, body: Mapping[str, Any], name: str, seconds: float) -> Description:
    """Create one session, however often the service asks to wait, or its answer is lost."""
    try:
        return livy_description.read(http.post("/sessions", body, patience=seconds))
    except Throttled:  # nothing was created
        raise
    except (Unavailable, ValueError) as error:
        return found_by_name(http, name, error)


def found_by_name(http: LivyHttp, name: str, error: Exception, kind: str = "sessions") -> Description:
    """The session or batch whose creation got no answer, found once it is listed. Livy 0.5 has no names.

    Raises:
        ConnectionError: it is not listed within `APPEAR_SECONDS`.
    """
    deadline, pause = time.monotonic() + APPEAR_SECONDS, POLL_SECONDS
    while True:
        for session in with_retries(lambda: _listed(http, kind), 30.0):
            if session.name == name:
                return session
        if time.monotonic() + pause > deadline:
            raise ConnectionError(f"{error}; if it appears yet, as {name}, delete it") from None
        time.sleep(pause)
        pause *= 2


def _listed(http: LivyHttp, kind: str = "sessions") -> list[Description]:
    """The sessions, or batches, of the service. `$top` is Fabric's word for `size`."""
    return livy_description.read_list(http.get(f"/{kind}?size=1000&$top=1000"))


def wait_until_idle(
    session: LivySession, seconds: float = START_SECONDS, report: Callable[[str], None] = lambda line: None
) -> None:
    """Wait until the session has started. report: called with a line if it waits in a queue of YARN.

    Raises:
        NoSession: it has not started in time, or has died; NoRoom if that one had to wait in a queue.
    """
    deadline, queue = time.monotonic() + seconds, yarn_application.Queue(lambda: _log(session), report)
    while True:
        try:
            described = with_retries(lambda: livy_description.ask(session.http, session.id), 60.0)
        except (ConnectionError, ProcessLookupError, ValueError) as error:
            raise NoSession(f"Livy session {session.id} did not start: {error}") from None
        state = described.state or "without a state"
        if state in ("idle", "busy"):
            return
        if state in DEAD:
            cause = described.cause or queue.given_up or _cause(session)
            kind = NoRoom if queue.waited else NoSession
            raise kind(f"Livy session {session.id} did not start (it is {state}): {cause}")
        if time.monotonic() > deadline:
            raise NoSession(
                f"Livy session {session.id} is still {state} after {seconds:.0f} s: ask for less with "
                f"session_configs in sparkmagic's config.json, or end other sessions.{queue.advice}"
            )
        queue.look()
        time.sleep(POLL_SECONDS)


def find(http: LivyHttp, id_or_name: str) -> LivySession:
    """The session with this number or name.

    Raises:
        NoSession: it does not exist or cannot be used; the message lists the sessions that exist.
    """
    try:
        _reach(http)
        alive = [session for session in with_retries(lambda: _listed(http), 30.0) if session.state not in DEAD]
        found = next((session for session in alive if id_or_name in (str(session.id), session.name)), None)
        found = found or _unlisted(http, id_or_name)
    except (ConnectionError, ProcessLookupError) as error:
        raise NoSession(str(error)) from None
    if found is None:
        listed = ", ".join(f"{s.id}{f' ({s.name})' if s.name else ''}" for s in alive[:10])
        raise SessionGone(f"{http.host} has no session {id_or_name}; it has {listed or 'none'}.")
    if found.kind not in (_KIND, "shared", None):
        raise NoSession(f"session {id_or_name} is of kind {found.kind}: create one of kind {_KIND}.")
    livy_session = _of(http, found, detached=found.name.startswith(DETACHED_PREFIX))
    wait_until_idle(livy_session)
    return livy_session


def _unlisted(http: LivyHttp, session_id: str) -> Description | None:
    """A session that can be asked for and is not in the list, which may have pages, or another form than we know."""
    try:
        described = livy_description.ask(http, session_id)
    except (Gone, Rejected, ValueError):
        return None
    return None if described.state in DEAD else described


def _cause(session: LivySession) -> str:
    """YARN's words, or the most informative line of a dead session's log."""
    log = _log(session)
    of_yarn = yarn_application.why_ended(session.http, session.id) if yarn_application.reason(log) else ""
    if of_yarn:
        return of_yarn
    lines = [line.strip() for line in log if line.strip() and line.strip() not in ("stdout:", "stderr:")]
    errors = [line for line in lines if "Exception" in line or "Error" in line or "ERROR" in line]
    return (errors or lines or ["see its log in Livy"])[0][:_SHOWN_CHARACTERS]


def _log(session: LivySession) -> list[str]:
    """The last lines of the session's log; none without an answer."""
    try:
        answer = session.http.get(f"{livy_description.path_of(session.id)}/log?size=200", seconds=10.0)["log"]
    except (ConnectionError, ProcessLookupError, KeyError, TypeError):
        return []
    return [str(line) for line in answer] if isinstance(answer, list) else []
