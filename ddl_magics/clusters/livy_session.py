"""Livy sessions: created for this notebook, found by number or name, kept alive, ended."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ddl_magics.clusters.livy_channel import DEAD
from ddl_magics.clusters.livy_http import Gone, LivyHttp, Unavailable, with_retries

#: How long a new session may take to become idle: YARN may have to find resources for it.
START_SECONDS = 300.0
POLL_SECONDS = 0.5
#: How long the first request is repeated: a user waits for the cell.
REACH_SECONDS = 3.0
#: Livy ends a session that belongs to a kernel after so long without a request.
HEARTBEAT_TIMEOUT_SECONDS = 60
HEARTBEAT_INTERVAL_SECONDS = 15.0
#: How long a kernel that exits waits for its session to end. Without heartbeats it ends later anyway.
CLOSE_SECONDS = 1.5
#: Prefix of the names of sessions that we create.
NAME_PREFIX = "ddl_"
#: Prefix of detached sessions: Livy before 0.8 does not report whether a session has a heartbeat.
DETACHED_PREFIX = NAME_PREFIX + "detached_"

_KINDS = ("pyspark", "shared")
_SHOWN_CHARACTERS = 200


class NoSession(Exception):
    """No session can be used; the message is one line that ends in what to do."""


class SessionGone(NoSession):
    """Livy has answered, and has no such session."""


@dataclass(eq=False)
class LivySession:
    """A session that has started.

    Attributes:
        http: requests to its Livy.
        number: Livy's id of the session.
        name: Livy's name of it; empty where it has none.
        ends_with_kernel: created for this kernel, ends with it.
        detached: created to outlive kernels, ends when it is deleted or Livy's idle timeout is over.
        created_here: created by this kernel.
    """

    http: LivyHttp
    number: int
    name: str = ""
    ends_with_kernel: bool = False
    detached: bool = False
    created_here: bool = False
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
            self.http.delete(f"/sessions/{self.number}")

    def send_heartbeats(self) -> None:
        """Ask for the session's state until `close`, so that Livy knows that the kernel is alive."""
        while not self._closed.wait(HEARTBEAT_INTERVAL_SECONDS):
            try:
                self.http.get(f"/sessions/{self.number}/state", seconds=HEARTBEAT_INTERVAL_SECONDS)
            except Gone:
                return
            except ConnectionError:
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
    body = {
        **properties,
        "kind": "pyspark",
        "name": name,
        "heartbeatTimeoutInSecond": 0 if detached else HEARTBEAT_TIMEOUT_SECONDS,
    }
    try:
        _check_reachable(http)
        number, given_name = _post(http, body, name)
    except (ConnectionError, ProcessLookupError) as error:
        raise NoSession(f"no session could be created: {error}") from None
    session = LivySession(http, number, given_name, ends_with_kernel=not detached, detached=detached, created_here=True)
    report(f"Livy session {number}{f' ({given_name})' if given_name else ''} starts at {http.host}")
    try:
        wait_until_idle(session, seconds)
    except BaseException:
        session.delete()
        raise
    if session.ends_with_kernel:
        threading.Thread(target=session.send_heartbeats, name=f"ddl_magics session {number}", daemon=True).start()
    return session


def _check_reachable(http: LivyHttp) -> None:
    """Send a harmless request, so that a wrong URL or password is reported at once."""
    with_retries(lambda: http.get("/sessions?size=1", seconds=20.0), REACH_SECONDS)


def _post(http: LivyHttp, body: Mapping[str, Any], name: str) -> tuple[int, str]:
    """Create a session; returns its number and name. Livy 0.5 has no names: ''."""
    try:
        created = http.post("/sessions", body)
        return int(created["id"]), str(created.get("name") or "")
    except Unavailable:
        # The session may have been created and the answer lost.
        for session in with_retries(lambda: http.get("/sessions?size=1000"), 30.0)["sessions"]:
            if session.get("name") == name:
                return int(session["id"]), name
        raise


def wait_until_idle(session: LivySession, seconds: float = START_SECONDS) -> None:
    """Wait until the session has started.

    Raises:
        NoSession: it has not started in time, or has died.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            state = with_retries(lambda: session.http.get(f"/sessions/{session.number}/state"), 60.0)["state"]
        except (ConnectionError, ProcessLookupError) as error:
            raise NoSession(f"Livy session {session.number} did not start: {error}") from None
        if state in ("idle", "busy"):
            return
        if state in DEAD:
            raise NoSession(f"Livy session {session.number} did not start (it is {state}): {_cause(session)}")
        if time.monotonic() > deadline:
            raise NoSession(
                f"Livy session {session.number} is still {state} after {seconds:.0f} s: ask for less with "
                "session_configs in sparkmagic's config.json, or end other sessions."
            )
        time.sleep(POLL_SECONDS)


def find(http: LivyHttp, id_or_name: str) -> LivySession:
    """The session with this number or name.

    Raises:
        NoSession: it does not exist or cannot be used; the message lists the sessions that exist.
    """
    try:
        _check_reachable(http)
        sessions = with_retries(lambda: http.get("/sessions?size=1000"), 30.0)["sessions"]
    except (ConnectionError, ProcessLookupError) as error:
        raise NoSession(str(error)) from None
    alive = [session for session in sessions if session.get("state") not in DEAD]
    for session in alive:
        if id_or_name in (str(session["id"]), session.get("name")):
            if session.get("kind") not in _KINDS:
                raise NoSession(f"session {id_or_name} is of kind {session.get('kind')}: create one of kind pyspark.")
            name = str(session.get("name") or "")
            livy_session = LivySession(http, int(session["id"]), name, detached=name.startswith(DETACHED_PREFIX))
            wait_until_idle(livy_session)
            return livy_session
    listed = ", ".join(f"{s['id']}{' (' + s['name'] + ')' if s.get('name') else ''}" for s in alive[:10])
    raise SessionGone(f"{http.host} has no session {id_or_name}; it has {listed or 'none'}.")


def _cause(session: LivySession) -> str:
    """The most informative line of a dead session's log."""
    try:
        log: list[str] = session.http.get(f"/sessions/{session.number}/log?size=200", seconds=10.0)["log"]
    except (ConnectionError, ProcessLookupError, KeyError, TypeError):
        return "see its log in Livy"
    lines = [line.strip() for line in log if line.strip() and line.strip() not in ("stdout:", "stderr:")]
    errors = [line for line in lines if "Exception" in line or "Error" in line or "ERROR" in line]
    return (errors or lines or ["see its log in Livy"])[0][:_SHOWN_CHARACTERS]
