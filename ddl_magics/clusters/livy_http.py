"""HTTP to a Livy server: each request is bounded in time and size, each problem is one line.

Thread-safe: each thread has its own connections, so that a slow request of one run does not delay another run.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar
from urllib.parse import urlsplit

from ddl_magics.clusters.base import LockedOut

CONNECT_SECONDS = 10.0
#: From the start of a request to the end of its answer.
REQUEST_SECONDS = 60.0
MAX_REPLY_BYTES = 64 * 2**20
#: The pause between two tries of `with_retries`: at first, and at most after doublings.
PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 10.0

_SHOWN_CHARACTERS = 200
_HEADER = "X-Requested-By"
#: Keys of the message in an error object: Livy's, and those of gateways.
_MESSAGE_KEYS = ("msg", "message", "error")
#: Too many requests; and Fabric's answer where its capacity has no room for a session.
_THROTTLED = (429, 430)

Answer = TypeVar("Answer")


class Unavailable(ConnectionError):
    """No answer, or one that says "later": a retry may succeed."""


class NoAnswer(Unavailable):
    """Livy was reached, and what it asks its session for has not come."""


class Throttled(Unavailable):
    """Too many requests, or no capacity: nothing was executed. `seconds`: Retry-After, if the service says it."""

    def __init__(self, message: str, seconds: float | None) -> None:
        super().__init__(message)
        self.seconds = seconds


class NoTicket(LockedOut, Unavailable):
    """No valid Kerberos ticket on this machine: nothing was executed."""


class Rejected(ConnectionError):
    """Livy, or a gateway before it, refuses the request; a retry does not help. `status`: of HTTP."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Gone(ProcessLookupError):
    """The session, statement or job does not exist, and will not come back."""


@dataclass(frozen=True)
class Connection:
    """How to reach a Livy. `auth`, as of requests, is never shown or stored.

    One with `renew` gives tokens, and one with `by_ticket` has Kerberos' tickets.
    """

    url: str
    auth: Any = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    verify: bool = True
    create_session: Callable[[], Any] | None = field(default=None, repr=False)


class LivyHttp:
    """Requests to one Livy. Paths begin with a slash; answers are JSON."""

    def __init__(self, connection: Connection) -> None:
        self.url = connection.url.rstrip("/")
        self._connection = connection
        self._local = threading.local()
        #: Nothing is sent before this time of the monotonic clock, and why.
        self._not_before, self._throttled = 0.0, ""
        self._headers = {"Content-Type": "application/json", **connection.headers}
        #: Whether the configuration has the header, so that sparkmagic sends it, too.
        self.header_configured = any(name.lower() == _HEADER.lower() for name in connection.headers)
        if not self.header_configured:
            # With its protection against forged requests (CSRF), Livy refuses requests without the header.
            self._headers[_HEADER] = "ddl_magics"

    @property
    def host(self) -> str:
        return urlsplit(self.url).netloc

    @property
    def authentication(self) -> str:
        """The kind of credentials, without the credentials."""
        auth = self._connection.auth
        kind = "basic" if isinstance(auth, tuple) else type(auth).__name__.lower()
        return "without credentials" if auth is None else f"with {kind} credentials"

    @property
    def by_ticket(self) -> bool:
        """Whether requests need a ticket, which only the user renews."""
        return getattr(self._connection.auth, "by_ticket", False)

    def get(self, path: str, seconds: float = REQUEST_SECONDS) -> Any:
        return self.ask("GET", path, None, seconds)

    def post(
        self, path: str, body: Mapping[str, Any] | None = None, seconds: float = REQUEST_SECONDS, patience: float = 0.0
    ) -> Any:
        return self.ask("POST", path, body or {}, seconds, patience=patience)

    def delete(self, path: str, seconds: float = REQUEST_SECONDS) -> Any:
        return self.ask("DELETE", path, None, seconds)

    def requires_header(self, path: str) -> bool | None:
        """Whether Livy refuses a POST without X-Requested-By; None if unknown. path: where a POST does no harm."""
        headers = {name: value for name, value in self._headers.items() if name.lower() != _HEADER.lower()}
        try:
            self.ask("POST", path, {}, REQUEST_SECONDS, headers=headers)
        except Rejected as error:
            return True if error.status in (400, 403) and self._allows(path) else None
        except (ConnectionError, ProcessLookupError):
            return None
        return False

    def _allows(self, path: str) -> bool:
        try:
            self.post(path)
        except (ConnectionError, ProcessLookupError):
            return False
        return True

    def ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        seconds: float,
        compressed: bool = True,
        headers: Mapping[str, str] | None = None,
        patience: float = 0.0,
    ) -> Any:
        """One request and its decoded answer; None for an empty one.

        A request that is refused as one too many is sent again after the time that the service asks for (Retry-After),
        if that is within `seconds` or `patience`, and no other request is sent before.

        Args:
            seconds: for the answer.
            compressed: allow a compressed answer. Livy compresses at about 1 MB/s.
            headers: instead of the usual ones.

        Raises:
            Unavailable, Rejected, Gone: the message is one line.
        """
        last = time.monotonic() + max(seconds, patience)
        while True:
            try:
                deadline = min(last, time.monotonic() + seconds)
                return self._ask_once(method, path, body, deadline, compressed, headers)
            except Throttled as error:
                if error.seconds is None or time.monotonic() + error.seconds > last:
                    raise
                pause = error.seconds
            time.sleep(pause)

    def _ask_once(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        deadline: float,
        compressed: bool,
        headers: Mapping[str, str] | None,
        renewable: bool = True,
    ) -> Any:
        """renewable: a token that is refused is asked for anew, and the request sent again."""
        import requests

        now = time.monotonic()
        if now < self._not_before:
            raise Throttled(self._throttled, self._not_before - now)
        seconds = max(0.001, deadline - now)
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
            kind = NoAnswer if isinstance(error, requests.ReadTimeout) else Unavailable
            raise kind(f"{self.host} {_reason(error)}") from None
        if reply.status_code == 401 and renewable and hasattr(self._connection.auth, "renew"):
            self._connection.auth.renew(reply.request.headers.get("Authorization"))
            return self._ask_once(method, path, body, deadline, compressed, headers, renewable=False)
        if reply.status_code in _THROTTLED:
            raise self._throttle(reply.status_code, data, reply.headers.get("Retry-After"))
        if reply.status_code >= 300:
            raise self._problem(reply.status_code, data, _asks_for_ticket(reply.headers))
        try:
            return json.loads(data) if data else None
        except ValueError:
            if data.lstrip()[:1] == b"<":
                raise Rejected(f"{self.url} answers with a web page: is the URL complete?", 200) from None
            raise Unavailable(f"{self.host} sent a broken answer") from None

    def _session(self) -> Any:
        if not hasattr(self._local, "session"):
            import requests

            self._local.session = (self._connection.create_session or requests.Session)()
        return self._local.session

    def _throttle(self, status: int, data: bytes, retry_after: str | None) -> Throttled:
        message = _error_message(data)
        self._throttled = f"{self.host} answers {status}{f' ({message})' if message else ''}"
        seconds = None if retry_after is None else _seconds(retry_after)
        if seconds is not None:
            self._not_before = time.monotonic() + seconds
        return Throttled(self._throttled, seconds)

    def _problem(self, status: int, data: bytes, wants_ticket: bool) -> Exception:
        message = _error_message(data)
        if status == 404 and _is_from_livy(data):
            return Gone(message)
        if status in (408, 425) or status >= 500:
            kind = NoAnswer if status == 500 else Unavailable
            return kind(f"{self.host} answers {status}{f' ({message})' if message else ''}")
        if status == 401 and hasattr(self._connection.auth, "renew"):
            said = f" ({message})" if message else ""
            return Rejected(f"{self.host} refuses a new token{said}: is it for this service and user?", status)
        if status == 401 and self.by_ticket:
            return Rejected(f"{self.host} refuses the Kerberos ticket: klist shows yours, kinit gets another.", status)
        if status == 401 and wants_ticket:
            where = f"for {self.url} in sparkmagic's config.json (kernel_python_credentials)"
            return Rejected(f'{self.host} wants a Kerberos ticket: set "auth": "Kerberos" {where}.', status)
        if status == 401:
            return Rejected(
                f"{self.host} wants a user name and password: set them for {self.url} in sparkmagic's config.json "
                "(kernel_python_credentials), or name a source of tokens with %ddl use livy URL --token-from.",
                status,
            )
        if status == 403:
            return Rejected(f"{self.host} refuses this user ({message or 403}): ask for access to it.", status)
        if status in (301, 302, 303, 307, 308, 404):
            return Rejected(f"{self.url} is not a Livy ({status}): is the URL complete (HDInsight: .../livy)?", status)
        return Rejected(f"{self.host} refuses ({message or status}).", status)


def with_retries(ask: Callable[[], Answer], seconds: float) -> Answer:
    """Call `ask`, which must be idempotent, until it does not raise `Unavailable`, for up to `seconds`."""
    deadline, pause = time.monotonic() + seconds, PAUSE_SECONDS
    while True:
        try:
            return ask()
        except Unavailable as error:
            wait = max(pause, (isinstance(error, Throttled) and error.seconds) or 0.0)
            if time.monotonic() + wait > deadline:
                raise
        time.sleep(wait)
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)


def _read(reply: Any, deadline: float) -> bytes:
    """The body, within bounds of size and time: requests bounds only the time between two of its bytes."""
    blocks, size = [], 0
    for block in reply.iter_content(1 << 16):
        size += len(block)
        blocks.append(block)
        if size > MAX_REPLY_BYTES:
            raise Unavailable(f"the answer is longer than {MAX_REPLY_BYTES >> 20} MiB")
        if time.monotonic() > deadline:
            raise Unavailable("the answer took too long")
    return b"".join(blocks)


def _asks_for_ticket(headers: Mapping[str, str]) -> bool:
    return "negotiate" in headers.get("WWW-Authenticate", "").lower()


def _seconds(retry_after: str) -> float | None:
    """A Retry-After in seconds from now: a number of them, or a date. None if it is neither."""
    try:
        return max(0.0, float(int(retry_after)))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - time.time())
    except (ValueError, TypeError):
        return None


def _parsed(data: bytes) -> Any:
    """The JSON in the body of an error; None where it is none."""
    try:
        return json.loads(data)
    except ValueError:
        return None


def _error_message(data: bytes) -> str:
    """The message in the body of an error, which is an object or a bare string; "" where there is none."""
    value = _parsed(data)
    if isinstance(value, dict):
        # Lighter says what is wrong in a list of errors, beside the name of the status.
        details = value.get("errors")
        first = details[0] if isinstance(details, list) and details else None
        text = first.get("message") if isinstance(first, dict) else None
        text = text or next((value[key] for key in _MESSAGE_KEYS if value.get(key)), None)
    else:
        text = value
    return " ".join(str(text).split())[:_SHOWN_CHARACTERS].rstrip(".") if isinstance(text, str) else ""


def _is_from_livy(data: bytes) -> bool:
    """Whether a 404 is Livy's "no such session", and not one of a gateway or for an unknown path."""
    value = _parsed(data)
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
