"""`%ddl use livy [URL] [--session ID|NAME] [--detached]`: what its words ask for, and what is said of the session."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from IPython.core.error import UsageError

from ddl_magics.clusters.livy_session import LivySession
from ddl_magics.wording import nearest

USAGE = "%ddl use livy [URL] [--session ID|NAME] [--detached]"

_FLAGS = ("--session", "--detached")


@dataclass(frozen=True)
class LivyWish:
    """`url` None: what sparkmagic has or is configured for. `session`: number or name of one that is there."""

    url: str | None = None
    session: str | None = None
    detached: bool = False

    @classmethod
    def read(cls, words: list[str]) -> LivyWish:
        """
        Raises:
            UsageError: of one line.
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
            raise UsageError("--detached makes a new session, and --session takes one that is there: give one of them.")
        return cls(url, session, detached)


def lifetime(session: LivySession) -> str:
    """When a session that was made now ends, in a line."""
    if session.detached:
        word = session.name or str(session.number)
        return (
            f"Session {word} outlives this kernel. It ends when Livy's session timeout (1 h unless set) has passed "
            f"without a run, or is deleted; elsewhere: %ddl use livy {session.http.url} --session {word}"
        )
    return "It ends with this kernel, and its runs with it; --detached makes one that outlives the kernel."


def _checked(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"{url} is no URL of a Livy: http://HOST:8998, or https://CLUSTER.azurehdinsight.net/livy.")
    if parts.username or parts.password:
        raise UsageError("a password in the URL would be stored with the notebook: set it in sparkmagic's config.json.")
    return url.rstrip("/")
