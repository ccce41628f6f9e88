"""The one place that talks HTTP to a Livy: every request is bounded in time and size, every problem is one line.

Thread-safe: each thread has connections of its own, so that a slow request of one run holds up no other.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import urlsplit

CONNECT_SECONDS = 10.0
#: From the beginning of a request to the end of its answer.
REQUEST_SECONDS = 60.0
MAX_REPLY_BYTES = 64 * 2**20
#: Between two tries of `patiently`, doubled up to the second.
PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 10.0

_SHOWN_CHARACTERS = 200
_HEADER = "X-Requested-By"
#: Where an object that tells an error has the words: Livy's own, and what others put before it.
_WORDS = ("msg", "message", "error")

Answer = TypeVar("Answer")


class Unavailable(ConnectionError):
    """No answer, or one that says "later": asking again may help."""


class Rejected(ConnectionError):
    """Livy, or the gateway before it, refuses; asking again changes nothing. `status` is HTTP's."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Gone(ProcessLookupError):
    """What was asked for does not exist, and will not come back."""


@dataclass(frozen=True)
class Connection:
    """How to reach a Livy: what sparkmagic's configuration says about it. `auth` is never shown or stored."""

    url: str
    auth: Any = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    verify: bool = True
    make_session: Callable[[], Any] | None = field(default=None, repr=False)


class LivyHttp:
    """Requests to one Livy. Paths begin with a slash; answers are JSON."""

    def __init__(self, connection: Connection) -> None:
        self.url = connection.url.rstrip("/")
        self._connection = connection
        self._own = threading.local()
        self._headers = {"Content-Type": "application/json", **connection.headers}
        #: Whether the configuration names the header, so that others who read it send it too.
        self.header_configured = any(name.lower() == _HEADER.lower() for name in connection.headers)
        if not self.header_configured:
            # Where Livy protects itself against forged requests it refuses those without it.
            self._headers[_HEADER] = "ddl_magics"

    @property
    def host(self) -> str:
        return urlsplit(self.url).netloc

    @property
    def who(self) -> str:
        """As whom it is asked, without names."""
        auth = self._connection.auth
        return "without credentials" if auth is None else f"with {type(auth).__name__.lower()} credentials"

    def get(self, path: str, seconds: float = REQUEST_SECONDS) -> Any:
        return self.ask("GET", path, None, seconds)

    def post(self, path: str, body: Mapping[str, Any] | None = None, seconds: float = REQUEST_SECONDS) -> Any:
        return self.ask("POST", path, body or {}, seconds)

    def delete(self, path: str, seconds: float = REQUEST_SECONDS) -> Any:
        return self.ask("DELETE", path, None, seconds)

    def demands_header(self, path: str) -> bool | None:
        """Whether a POST is refused without X-Requested-By, tried at `path`, where one does no harm; None: unknown."""
        headers = {name: value for name, value in self._headers.items() if name.lower() != _HEADER.lower()}
        try:
            self.ask("POST", path, {}, REQUEST_SECONDS, headers=headers)
        except Rejected as error:
            return True if error.status in (400, 403) else None
        except (ConnectionError, ProcessLookupError):
            return None
        return False

    def ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        seconds: float,
        compressed: bool = True,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """One request and its answer, decoded; None where the answer is empty.

        `compressed` False asks for an answer as it is: what Livy compresses, it compresses at 1 MB/s. `headers` in
        place of the usual ones.

        Raises:
            Unavailable, Rejected, Gone: with one line that says what is the matter.
        """
        import requests

        deadline = time.monotonic() + seconds
        try:
            with self._session().request(
                method,
                self.url + path,
                data=None if body is None else json.dumps(body),
                headers={**(headers or self._headers), **({} if compressed else {"Accept-Encoding": "identity"})},
                auth=self._connection.auth,
                verify=self._connection.verify,
                timeout=(min(CONNECT_SECONDS, seconds), seconds),
                allow_redirects=False,
                stream=True,
            ) as reply:
                data = _read(reply, deadline)
        except requests.exceptions.SSLError:
            raise Rejected(
                f"{self.host} has a certificate that is not trusted: name yours in REQUESTS_CA_BUNDLE.", 0
            ) from None
        except requests.RequestException as error:
            raise Unavailable(f"{self.host} {_reason(error)}") from None
        if reply.status_code >= 300:
            raise self._problem(reply.status_code, data)
        try:
            return json.loads(data) if data else None
        except ValueError:
            if data.lstrip()[:1] == b"<":
                raise Rejected(f"{self.url} answers with a web page: is the URL complete?", 200) from None
            raise Unavailable(f"{self.host} sent a broken answer") from None

    def _session(self) -> Any:
        if not hasattr(self._own, "session"):
            import requests

            self._own.session = (self._connection.make_session or requests.Session)()
        return self._own.session

    def _problem(self, status: int, data: bytes) -> Exception:
        said = _said(data)
        if status == 404 and _is_livys(data):
            return Gone(said)
        if status in (408, 425, 429) or status >= 500:
            return Unavailable(f"{self.host} answers {status}{f' ({said})' if said else ''}")
        if status == 401:
            return Rejected(
                f"{self.host} wants a user name and password: set them for {self.url} in sparkmagic's config.json "
                "(kernel_python_credentials), or in %spark add.",
                status,
            )
        if status == 403:
            return Rejected(f"{self.host} refuses this user ({said or 403}): ask for access to it.", status)
        if status in (301, 302, 303, 307, 308, 404):
            return Rejected(f"{self.url} is not a Livy ({status}): is the URL complete (HDInsight: .../livy)?", status)
        return Rejected(f"{self.host} refuses ({said or status}).", status)


def patiently(ask: Callable[[], Answer], seconds: float) -> Answer:
    """Ask again while the answer is `Unavailable`, for so many seconds. What is asked must bear being asked twice."""
    deadline, pause = time.monotonic() + seconds, PAUSE_SECONDS
    while True:
        try:
            return ask()
        except Unavailable:
            if time.monotonic() + pause > deadline:
                raise
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)


def _read(reply: Any, deadline: float) -> bytes:
    """The body, unless it is too long or too slow: requests bounds only the time between two of its bytes."""
    blocks, size = [], 0
    for block in reply.iter_content(1 << 16):
        size += len(block)
        blocks.append(block)
        if size > MAX_REPLY_BYTES:
            raise Unavailable(f"the answer is longer than {MAX_REPLY_BYTES >> 20} MiB")
        if time.monotonic() > deadline:
            raise Unavailable("the answer takes too long")
    return b"".join(blocks)


def _said(data: bytes) -> str:
    """Livy's own words of an error: an object that holds them, a bare string, or nothing that a person could use."""
    try:
        value = json.loads(data)
    except ValueError:
        return ""
    text = next((value[key] for key in _WORDS if value.get(key)), None) if isinstance(value, dict) else value
    return " ".join(str(text).split())[:_SHOWN_CHARACTERS].rstrip(".") if isinstance(text, str) else ""


def _is_livys(data: bytes) -> bool:
    """Whether a 404 is Livy's "there is no such session", and not a gateway's or an unknown path's."""
    try:
        value = json.loads(data)
    except ValueError:
        return False
    return bool(value) and (isinstance(value, str) or (isinstance(value, dict) and "msg" in value))


def _reason(error: Exception) -> str:
    import requests

    text = str(error)
    if isinstance(error, requests.Timeout):
        return "does not answer in time"
    if "Connection refused" in text:
        return "refuses connections: is Livy running there?"
    if "Name or service not known" in text or "NameResolution" in text:
        return "is not a known host"
    if isinstance(error, requests.ConnectionError) and "NewConnectionError" in text:
        return "cannot be reached"
    return "closed the connection"
