"""The executors on which runs of trials died, and whether they were excluded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ddl_magics.clusters.base import Refused
from ddl_magics.wording import counted

#: With so many deaths an executor is excluded.
SUSPICIOUS = 2


@dataclass(frozen=True)
class Executor:
    """An executor of Spark. id: as its web pages show it."""

    id: str
    host: str


class Deaths:
    """Counts the deaths on each executor. replace: excludes an executor; returns how, or why it stays."""

    def __init__(self, replace: Callable[[str], str | Refused]) -> None:
        self._replace = replace
        self._deaths: Counter[Executor] = Counter()
        self._outcomes: dict[Executor, str | Refused] = {}

    def excuses(self, executor: Executor) -> bool:
        """Count the death of a run, and exclude its executor after several.

        Returns whether the executor caused the death, not the trial: that which excludes it, and those of all runs that
        its exclusion ends.
        """
        outcome = self._outcomes.get(executor)
        if isinstance(outcome, str):
            return True
        self._deaths[executor] += 1
        if outcome is None and self._deaths[executor] >= SUSPICIOUS:
            outcome = self._outcomes[executor] = self._replace(executor.id)
        return isinstance(outcome, str)

    def lines(self) -> Iterator[str]:
        """A line for each executor with several deaths, with what to do."""
        for executor, deaths in self._deaths.most_common():
            died = f"{counted(deaths, 'run')} of trials died on executor {executor.id} on {executor.host}"
            outcome = self._outcomes.get(executor)
            if isinstance(outcome, Refused):
                yield (
                    f"{died}, which Spark still uses ({outcome.message}): look for another process that takes its "
                    "memory; a new session gets other executors"
                )
            elif outcome is not None:
                yield f"{died}: {outcome}"
