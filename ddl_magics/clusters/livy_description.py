"""A session as Livy describes it, and as services like it do: there, fields have other names, come late or never.

Apache Livy numbers its sessions and lists them under `sessions`. Lighter and Microsoft Fabric name them by UUIDs, list
them under `applications` or `items`, and have no request for the state alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from ddl_magics.clusters.livy_http import REQUEST_SECONDS, Gone, LivyHttp, Rejected

SessionId = int | str

#: The terminal states of a session.
DEAD = frozenset(("dead", "error", "killed", "shutting_down", "success"))

_LISTS = ("sessions", "applications", "items", "value")
#: The end of a session that Fabric could not start, or has ended.
_FAILED = ("error", "cancelled", "failed")


@dataclass(frozen=True)
class Description:
    """What is known of a session.

    Attributes:
        id: as in its paths.
        state: Livy's word in lower case; "" as long as none is given.
        name: "" where it has none.
        kind: None where a session has none: each statement names its own.
        cause: why it has ended, where the service says so.
    """

    id: SessionId
    state: str
    name: str = ""
    kind: str | None = None
    cause: str = ""


def path_of(session_id: SessionId, kind: str = "sessions") -> str:
    """kind: "sessions" or "batches"."""
    return f"/{kind}/{quote(str(session_id), safe='')}"


def checked_id(value: Any) -> SessionId:
    """A number or a text as the id of a session. Raises ValueError for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, str)) or value == "":
        raise ValueError(f"{value!r} is no id of a session")
    return value


def read(answer: Any) -> Description:
    """A session's description. Raises ValueError if the answer is none."""
    if not isinstance(answer, Mapping):
        raise ValueError("the answer describes no session")
    of_fabric, of_livy = _part(answer, "fabricSessionStateInfo"), _part(answer, "livyInfo")
    state = str(answer.get("state") or answer.get("livyState") or of_livy.get("currentState") or "").lower()
    if any(str(end).lower() in _FAILED for end in (of_fabric.get("state"), answer.get("result"))):
        state = "error"
    return Description(
        checked_id(answer.get("id")),
        state,
        str(answer.get("name") or _part(answer, "submitParams").get("name") or ""),
        None if answer.get("kind") is None else str(answer["kind"]),
        _cause(answer, of_fabric),
    )


def read_list(answer: Any) -> list[Description]:
    """The sessions of a list; without those that it describes in a way we do not know."""
    sessions = next((answer[key] for key in _LISTS if key in answer), []) if isinstance(answer, Mapping) else answer
    known = []
    for session in sessions if isinstance(sessions, list) else []:
        try:
            known.append(read(session))
        except ValueError:
            continue
    return known


def ask(http: LivyHttp, session_id: SessionId, seconds: float = REQUEST_SECONDS) -> Description:
    """The session as it is now.

    Raises:
        Gone: the service answers, and does not have it.
        Unavailable, Rejected: as `LivyHttp.ask`.
        ValueError: the answer describes no session.
    """
    try:
        return read(http.get(path_of(session_id), seconds))
    except Rejected as error:
        # Only Livy's own 404 says that it is from Livy: one of a gateway says nothing of the session.
        if error.status != 404:
            raise
        http.get("/sessions?size=1", seconds)
        raise Gone(f"{http.host} has no such session") from None


def _part(answer: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    part = answer.get(key)
    return part if isinstance(part, Mapping) else {}


def _cause(answer: Mapping[str, Any], of_fabric: Mapping[str, Any]) -> str:
    errors = answer.get("errorInfo")
    messages = [error.get("message") for error in errors if isinstance(error, Mapping)] if errors else []
    told = [of_fabric.get("errorMessage"), *messages, answer.get("cancellationReason")]
    return next((" ".join(str(text).split()) for text in told if text), "")
