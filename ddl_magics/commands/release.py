"""`%ddl release` and `%ddl acquire`: release and request the executors of the Spark session that runs use."""

from __future__ import annotations

from IPython.core.error import UsageError

from ddl_magics.clusters.base import Refused
from ddl_magics.commands.kernel import Kernel
from ddl_magics.dashboard.state_words import state_word


def release(kernel: Kernel) -> str:
    """Release all executors. UsageError if they are not released."""
    live = next(kernel.session.live(), None)
    if live is not None:
        raise UsageError(f"{live.name} is {state_word(live.state)}: wait for its end, or %ddl stop {live.name}.")
    return _accepted(kernel.session.cluster.give_back("executors"))


def acquire(kernel: Kernel) -> str:
    """Request the executors again. UsageError if the cluster refuses."""
    return _accepted(kernel.session.cluster.ask_again())


def _accepted(answer: str | Refused) -> str:
    if isinstance(answer, Refused):
        raise UsageError(f"{answer.message}.")
    return answer
