"""A bearer token for each request to a Livy, from a command or a function that gives it, again when it has expired.

The token is in the header of requests, and nowhere else: it is not printed, logged, stored or sent in a statement.
"""

from __future__ import annotations

import importlib
import re
import shlex
import subprocess
import threading
from typing import Any

from ddl_magics.clusters.livy_http import Rejected
from ddl_magics.wording import plain

#: How long a command may take: it may ask a service, and not a person.
COMMAND_SECONDS = 60.0

_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_TOKEN = re.compile(r"[\x21-\x7e]+")
_SHOWN_CHARACTERS = 200


class Token:
    """The authentication of a `requests` session. Thread-safe.

    `source`: MODULE:FUNCTION, whose text is the token, or a command that prints it. It is asked with the first request,
    and again after `renew`.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._token: str | None = None

    def __call__(self, request: Any) -> Any:
        with self._lock:
            if self._token is None:
                self._token = _checked(_called(self._source) if _is_function(self._source) else _printed(self._source))
            request.headers["Authorization"] = f"Bearer {self._token}"
        return request

    def renew(self, header: str) -> None:
        """The service has refused a request with this header: the next one has a new token."""
        with self._lock:
            if header == f"Bearer {self._token}":
                self._token = None


def _is_function(source: str) -> bool:
    return _FUNCTION.fullmatch(source) is not None


def _called(source: str) -> str:
    module, _, name = source.partition(":")
    try:
        function: Any = importlib.import_module(module)
        for part in name.split("."):
            function = getattr(function, part)
        return str(function())
    except Exception as error:  # of the user's own function
        raise Rejected(f"{source} gives no token ({type(error).__name__}): call it yourself to see why.", 401) from None


def _printed(source: str) -> str:
    try:
        command = shlex.split(source)
        ended = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False
        )
    except (ValueError, IndexError):
        raise Rejected("the command of --token-from cannot be read: close its quotes.", 401) from None
    except OSError as error:
        raise Rejected(f"{plain(command[0])} gives no token: {error.strerror}.", 401) from None
    except subprocess.TimeoutExpired:
        raise Rejected(f"{plain(command[0])} has given no token within {COMMAND_SECONDS:.0f} s.", 401) from None
    if ended.returncode:
        # What it printed may be a token; what it says of its failure is not.
        said = (ended.stderr.strip().splitlines() or [f"exit status {ended.returncode}"])[-1]
        raise Rejected(f"{plain(command[0])} gives no token: {plain(said)[:_SHOWN_CHARACTERS]}", 401)
    return ended.stdout.strip()


def _checked(token: str) -> str:
    if not _TOKEN.fullmatch(token):
        raise Rejected(
            "--token-from gives something else than a token: it must print the token alone, in one word.", 401
        )
    return token
