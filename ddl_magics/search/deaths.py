"""The executors on which runs of trials died, and what was done about them. Pure."""

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
        self._excluded: dict[Executor, str] = {}  # what was done
        self._kept: dict[Executor, str] = {}  # why Spark still uses it

    def add(self, executor: Executor) -> bool:
        """A run of a trial died there, and not by an exception of its cell. Whether it is to be excluded now."""
        self._deaths[executor] += 1
        known = executor in self._excluded or executor in self._kept
        return self._deaths[executor] >= SUSPICIOUS and not known

    def exclude(self, executor: Executor, done: str) -> None:
        """It was excluded. done: how."""
        self._excluded[executor] = done

    def keep(self, executor: Executor, reason: str) -> None:
        """It could not be excluded."""
        self._kept[executor] = reason

    def is_excluded(self, executor: Executor) -> bool:
        return executor in self._excluded

    def lines(self) -> Iterator[str]:
        """What to tell of each executor with several deaths, in one line with what to do."""
        for executor, deaths in self._deaths.most_common():
            died = f"{counted(deaths, 'run')} of trials died on executor {executor.id} on {executor.host}"
            if executor in self._excluded:
                yield f"{died}: {self._excluded[executor]}"
            elif executor in self._kept:
                yield (
                    f"{died}, which Spark still uses ({self._kept[executor]}): look for another process that takes its "
                    "memory; a new session gets other executors"
                )
