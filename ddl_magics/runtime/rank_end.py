"""How a rank ended, as its process reports it: frozen, and read from JSON in one place."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, Mapping, Union, get_args

#: Kinds of failures that a run ends with: `Failure` has what each means.
RunFailureKind = Literal["error", "exit", "signal", "nan", "diverged", "peer", "lost", "stalled", "spark"]
#: Internal: the rank's share of --data was not in the cache. The driver deals the rows again, and tries again.
UncachedKind = Literal["uncached"]
UNCACHED: UncachedKind = "uncached"
FailureKind = Union[RunFailureKind, UncachedKind]

Outcome = Literal["finished", "stopped", "failed"]


@dataclass(frozen=True)
class Failure:
    """Why a rank failed, or the run.

    rank: -1 where no rank is to blame. host: of the rank, else "". kind: "error" (an exception of the cell), "exit" and
    "signal" (its process ended), "nan", "diverged" (ranks left the common path), "peer" (another rank left first),
    "lost" (a process died without a report), "stalled" (--stall ended it), "spark". message: one line. traceback: text,
    of a stalled rank its stack, "" where there is none.
    """

    rank: int
    host: str
    kind: FailureKind
    message: str
    traceback: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class RankEnd:
    """failure: given if and only if the outcome is "failed"."""

    outcome: Outcome
    failure: Failure | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> RankEnd:
        """KeyError, ValueError or TypeError for what is no end of a rank."""
        failure = value["failure"]
        if value["outcome"] not in get_args(Outcome) or (failure is None) == (value["outcome"] == "failed"):
            raise ValueError("no end of a rank: %r" % (value,))
        return cls(value["outcome"], None if failure is None else Failure(**failure))
