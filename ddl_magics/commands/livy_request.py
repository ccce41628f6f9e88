"""`%ddl use livy [URL] [--session ID|NAME] [--detached]`: parsing, and the line about the session's lifetime."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from IPython.core.error import UsageError

from ddl_magics.clusters.livy_session import LivySession
from ddl_magics.options.redaction import MASK, has_password, is_secret
from ddl_magics.wording import nearest, plain

USAGE = "%ddl use livy [URL] [--session ID|NAME] [--detached]"

_FLAGS = ("--session", "--detached")


@dataclass(frozen=True)
class LivyRequest:
    """`url`: None for the session or the Livy that sparkmagic has. `session`: number or name of an existing one."""

    url: str | None = None
    session: str | None = None
    detached: bool = False

    @classmethod
    def parse(cls, words: list[str]) -> LivyRequest:
        """The request that the words make.

        Raises:
            UsageError: one line.
        """
        url = session = None
        detached, rest = False, list(words)
        while rest:
            word = rest.pop(0)
            if word == "--detached":
                detached = True
            elif word == "--session" and rest:
                session = rest.pop(0)
            elif word.startswith("-"):
                raise UsageError(f"write: {USAGE}.{nearest(word, _FLAGS)}")
            elif url is None:
                url = _checked(word)
            else:
                raise UsageError(f"write: {USAGE}")
        if session is not None and detached:
            raise UsageError(
                "--detached makes a new session, and --session uses an existing one: leave one of them out."
            )
        return cls(url, session, detached)


def lifetime(session: LivySession) -> str:
    """When a new session ends, in one line."""
    if session.detached:
        word = session.name or str(session.number)
        return (
            f"Session {word} outlives this kernel. It ends when it is deleted, or after Livy's session timeout (1 h by "
            "default) in which no notebook follows a run of it. To use it elsewhere: "
            f"%ddl use livy {session.http.url} --session {word}"
        )
    return "The session and its runs end with this kernel; --detached makes one that outlives the kernel."


def _checked(url: str) -> str:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # of a port that is none
        usable = False
    if not usable:
        raise UsageError(
            f"{MASK if is_secret(url) else plain(url)} is not the URL of a Livy: write http://HOST:8998, or https://CLUSTER.azurehdinsight.net/livy."
        )
    if parts.username or parts.password or has_password(url):
        raise UsageError("the URL holds a password, which would be stored: set it in sparkmagic's config.json instead.")
    return url.rstrip("/")
