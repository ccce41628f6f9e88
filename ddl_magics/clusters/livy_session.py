"""Sessions of a Livy: made for this notebook, found by number or name, kept alive, ended."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ddl_magics.clusters.livy_channel import DEAD
from ddl_magics.clusters.livy_http import Gone, LivyHttp, Unavailable, patiently

#: Longest time that a new session may take until it is idle: YARN may have to find room for it.
START_SECONDS = 300.0
LOOK_SECONDS = 0.5
#: Tries until a Livy is said to be unreachable, when somebody waits before the cell.
GREET_SECONDS = 3.0
#: A session that belongs to a kernel ends when nobody has asked for it for so long.
HEARTBEAT_SECONDS = 60
BEAT_SECONDS = 15.0
#: How long the end of the kernel waits for the end of its session, which otherwise ends for want of heartbeats.
CLOSE_SECONDS = 1.5
#: Begins the names of sessions that we make.
NAME_PREFIX = "ddl_"
#: A detached session says so in its name: Livy before 0.8 does not tell whether a session has a heartbeat.
DETACHED_PREFIX = NAME_PREFIX + "detached_"

_KINDS = ("pyspark", "shared")
_SHOWN_CHARACTERS = 200


class NoSession(Exception):
    """There is no session to use; the message is one line that ends in what to do."""


@dataclass(eq=False)
class LivySession:
    """A session that has started.

    Attributes:
        http: how it is reached.
        number: Livy's id of it.
        name: by which it is found from elsewhere; empty where it has none.
        ours: it was made for this kernel, and ends with it.
        detached: it was made to outlive kernels, and ends when it is deleted or Livy's idle timeout is over.
    """

    http: LivyHttp
    number: int
    name: str = ""
    ours: bool = False
    detached: bool = False
    _ended: threading.Event = field(default_factory=threading.Event, repr=False)

    def beat(self) -> None:
        """Ask for the session now and then until it is closed, so that Livy knows that its kernel lives."""
        threading.Thread(target=self._beat, name=f"ddl_magics session {self.number}", daemon=True).start()

    def close(self) -> None:
        """End it where it is this kernel's own; another's goes on."""
        self._ended.set()
        if self.ours:
            ending = threading.Thread(target=self.delete, daemon=True)
            ending.start()
            ending.join(CLOSE_SECONDS)

    def delete(self) -> None:
        with contextlib.suppress(ConnectionError, ProcessLookupError):
            self.http.delete(f"/sessions/{self.number}")

    def _beat(self) -> None:
        while not self._ended.wait(BEAT_SECONDS):
            try:
                self.http.get(f"/sessions/{self.number}/state", seconds=BEAT_SECONDS)
            except Gone:
                return
            except ConnectionError:
                pass  # the next beat may come through


def create(
    http: LivyHttp,
    properties: Mapping[str, Any],
    detached: bool = False,
    seconds: float = START_SECONDS,
    say: Callable[[str], None] = print,
) -> LivySession:
    """Make a session and wait until it can be used. An interrupt deletes it again.

    Args:
        http: the Livy.
        properties: what sparkmagic's configuration says of new sessions: body of `POST /sessions`.
        detached: without heartbeats, so that it outlives this kernel.
        seconds: how long it may take to start.
        say: prints a line of progress.

    Raises:
        NoSession: with the reason.
    """
    name = f"{DETACHED_PREFIX if detached else NAME_PREFIX}{secrets.token_hex(4)}"
    body = {
        **properties,
        "kind": "pyspark",
        "name": name,
        "heartbeatTimeoutInSecond": 0 if detached else HEARTBEAT_SECONDS,
    }
    try:
        _greet(http)
        number, told = _post(http, body, name)
    except (ConnectionError, ProcessLookupError) as error:
        raise NoSession(f"no session could be made: {error}") from None
    session = LivySession(http, number, told, ours=not detached, detached=detached)
    say(f"Livy session {number}{f' ({told})' if told else ''} starts at {http.host}")
    try:
        wait_until_idle(session, seconds)
    except BaseException:
        session.delete()
        raise
    if session.ours:
        session.beat()
    return session


def _greet(http: LivyHttp) -> None:
    """Ask for something that changes nothing: a wrong URL or password is told at once."""
    patiently(lambda: http.get("/sessions?size=1", seconds=20.0), GREET_SECONDS)


def _post(http: LivyHttp, body: Mapping[str, Any], name: str) -> tuple[int, str]:
    """Number and name of a new session. Livy 0.5 knows no names by which it could be found: ''."""
    try:
        made = http.post("/sessions", body)
        return int(made["id"]), str(made.get("name") or "")
    except Unavailable:
        # The answer may have been lost and the session made.
        for known in patiently(lambda: http.get("/sessions?size=1000"), 30.0)["sessions"]:
            if known.get("name") == name:
                return int(known["id"]), name
        raise


def wait_until_idle(session: LivySession, seconds: float = START_SECONDS) -> None:
    """Return when the session has started.

    Raises:
        NoSession: it has not, or it died.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            state = patiently(lambda: session.http.get(f"/sessions/{session.number}/state"), 60.0)["state"]
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
        time.sleep(LOOK_SECONDS)


def find(http: LivyHttp, word: str) -> LivySession:
    """The session with this number or name.

    Raises:
        NoSession: there is none that can be used; the message lists those that can.
    """
    try:
        _greet(http)
        known = patiently(lambda: http.get("/sessions?size=1000"), 30.0)["sessions"]
    except (ConnectionError, ProcessLookupError) as error:
        raise NoSession(str(error)) from None
    alive = [session for session in known if session.get("state") not in DEAD]
    for session in alive:
        if word in (str(session["id"]), session.get("name")):
            if session.get("kind") not in _KINDS:
                raise NoSession(f"session {word} is of kind {session.get('kind')}: make one of kind pyspark.")
            name = str(session.get("name") or "")
            found = LivySession(
                http, int(session["id"]), name, detached=str(session.get("name") or "").startswith(DETACHED_PREFIX)
            )
            wait_until_idle(found)
            return found
    listed = ", ".join(f"{s['id']}{' (' + s['name'] + ')' if s.get('name') else ''}" for s in alive[:10])
    raise NoSession(f"{http.host} has no session {word}; it has {listed or 'none'}.")


def _cause(session: LivySession) -> str:
    """The line of a dead session's log that says most."""
    try:
        lines = session.http.get(f"/sessions/{session.number}/log?size=200", seconds=10.0)["log"]
    except (ConnectionError, ProcessLookupError, KeyError, TypeError):
        return "see its log in Livy"
    said = [line.strip() for line in lines if line.strip() and line.strip() not in ("stdout:", "stderr:")]
    telling = [line for line in said if "Exception" in line or "Error" in line or "ERROR" in line]
    return (telling or said or ["see its log in Livy"])[0][:_SHOWN_CHARACTERS]
