"""The executors on which runs of trials died, and whether they were excluded. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from ddl_magics.wording import counted

#: With so many deaths an executor is excluded.
SUSPICIOUS = 2


@dataclass(frozen=True)
class Executor:
    """An executor of Spark. id: as its web pages show it."""

    id: str
    host: str


class Deaths:
    """Counts the deaths on each executor."""

    def __init__(self) -> None:
        self._deaths: Counter[Executor] = Counter()
        self._excluded: dict[Executor, str] = {}  # how it was excluded
        self._not_excluded: dict[Executor, str] = {}  # why Spark still uses it

    def add(self, executor: Executor) -> bool:
        """Count the death of a run, by no exception of its cell. Returns whether to exclude the executor now."""
        self._deaths[executor] += 1
        decided = executor in self._excluded or executor in self._not_excluded
        return self._deaths[executor] >= SUSPICIOUS and not decided

    def exclude(self, executor: Executor, outcome: str) -> None:
        """Note that it was excluded. outcome: how."""
        self._excluded[executor] = outcome

    def keep(self, executor: Executor, reason: str) -> None:
        """Note that it could not be excluded."""
        self._not_excluded[executor] = reason

    def is_excluded(self, executor: Executor) -> bool:
        return executor in self._excluded

    def lines(self) -> Iterator[str]:
        """A line for each executor with several deaths, with what to do."""
        for executor, deaths in self._deaths.most_common():
            died = f"{counted(deaths, 'run')} of trials died on executor {executor.id} on {executor.host}"
            if executor in self._excluded:
                yield f"{died}: {self._excluded[executor]}"
            elif executor in self._not_excluded:
                yield (
                    f"{died}, which Spark still uses ({self._not_excluded[executor]}): look for another process that "
                    "takes its memory; a new session gets other executors"
                )
