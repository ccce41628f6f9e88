"""`%ddl release` and `%ddl acquire`: the executors of the session that runs use, also of one that the user shares."""

from __future__ import annotations

from collections.abc import Sequence

from IPython.core.error import UsageError

from ddl_magics.clusters.base import Refused
from ddl_magics.session.session import Session


def release(arguments: Sequence[str], session: Session) -> str:
    """Give all executors back; returns what to print. UsageError where they stay."""
    _none(arguments, "release")
    live = next(session.live(), None)
    if live is not None:
        raise UsageError(f"{live.name} is {live.state}: wait for its end, or %ddl stop {live.name}.")
    return _done(session.cluster.give_back("executors"))


def acquire(arguments: Sequence[str], session: Session) -> str:
    """Ask for them again; returns what to print. UsageError where that is refused."""
    _none(arguments, "acquire")
    return _done(session.cluster.ask_again())


def _none(arguments: Sequence[str], verb: str) -> None:
    if arguments:
        raise UsageError(f"write: %ddl {verb}")


def _done(answer: str | Refused) -> str:
    if isinstance(answer, Refused):
        raise UsageError(f"{answer.message}.")
    return answer
