"""What a cluster is asked for, and the answers that it gives.

Expected problems are answers, not exceptions: a method of `Cluster` returns one of the frozen dataclasses below, and
the caller branches over them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ddl_magics.runtime.events import RawEvent

#: Kind of the placeholder for an unreadable event; no view shows it.
UNREADABLE = "unreadable"

#: The notebook's variables, by name.
Namespace = Mapping[str, Any]

#: Called with the bytes received so far and the size of the file.
Progress = Callable[[int, int], None]


class LockedOut(ConnectionError):
    """This machine has no valid credentials at the moment, and its user can renew them. The message says how."""


@dataclass(frozen=True)
class Ready:
    """The cluster can launch runs; `free` of its `slots` are not in use."""

    slots: int
    free: int
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class NotStarted:
    """The cluster is not running yet: the first launch starts it."""

    message: str


@dataclass(frozen=True)
class Launched:
    """The driver has accepted the run."""


@dataclass(frozen=True)
class Refused:
    """The run was not started. `message`: one line that ends in what to do. `kind`: "usage", "slots" or "spark"."""

    kind: str
    message: str


@dataclass(frozen=True)
class Postponed:
    """The cluster cannot take the run now, for the reason in `message`: launch it again."""

    message: str


@dataclass(frozen=True)
class Polled:
    """The events up to `last_seq`, in order, and the run's state. `has_more`: further events are available now."""

    events: tuple[RawEvent, ...]
    last_seq: int
    has_more: bool
    state: str


@dataclass(frozen=True)
class Unreachable:
    """The driver does not answer.

    Attributes:
        session_ended: the run has ended with its session, so the driver will never answer.
        busy: the session executes another cell.
        locked_out: this machine cannot ask: see `LockedOut`.
    """

    message: str
    session_ended: bool = False
    busy: bool = False
    locked_out: bool = False


@dataclass(frozen=True)
class BroughtBack:
    """What has become of the variables that a run's cell assigns or changes, as `placing.Placed`.

    Attributes:
        placed: names that are set.
        kept: names that a later cell has assigned or changed.
        absent: name -> why it has not come.
        waiting: names of models that are loaded when a cell mentions them.
    """

    placed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    absent: Mapping[str, str] = field(default_factory=dict)
    waiting: tuple[str, ...] = ()


@dataclass(frozen=True)
class ScoringRequest:
    """A model, and the DataFrame whose rows it scores.

    Attributes:
        model: the `.keras` file, on this machine.
        key: names the model in the driver: the id of the run that trained it, or the hash of its file.
        data: the DataFrame's name, in the process of the cluster's Spark session.
        features: the columns of the model's input, as `ddl_magics.predict` takes them.
        batch_rows: rows in one call of the model.
        transform: --transform of the run that trained the model, or None.
    """

    model: Path
    key: str
    data: str
    features: Any
    batch_rows: int
    transform: str | None = None
