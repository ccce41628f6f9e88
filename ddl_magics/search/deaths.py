"""The executors on which runs of trials died. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from ddl_magics.wording import counted

#: So many deaths on one executor are reported.
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

    def add(self, executor: Executor) -> None:
        """A run of a trial died there, and not by an exception of its cell."""
        self._deaths[executor] += 1

    def lines(self) -> Iterator[str]:
        """What to tell of each executor with several deaths, in one line with what to do."""
        for executor, deaths in self._deaths.most_common():
            if deaths >= SUSPICIOUS:
                where = f"executor {executor.id} on {executor.host}"
                yield (
                    f"{counted(deaths, 'run')} of trials died on {where}, which Spark still uses: look for another "
                    "process that takes its memory; a new session gets other executors"
                )
