"""The interface of a cluster, which executes runs, and the answers that it gives.

Expected problems are answers, not exceptions: a method returns one of the frozen dataclasses below, and the caller
branches over them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from ddl_magics.runtime.events import RawEvent
from ddl_magics.runtime.run_spec import RunSpec

#: Kind of the placeholder for an unreadable event; no view shows it.
UNREADABLE = "unreadable"

#: Called with the bytes received so far and the size of the file.
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Ready:
    """The cluster can launch runs; `free` of its `slots` are not in use."""

    slots: int
    free: int
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class NotStarted:
    """The cluster is not running yet: the first launch starts it, which takes about `seconds`."""

    message: str
    seconds: float


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
    """

    message: str
    session_ended: bool = False
    busy: bool = False


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


class Cluster(Protocol):
    """Executes runs. Methods may be called from any thread; each returns within bounded time."""

    #: For people: "this machine", "hdi-prod, session 12".
    name: str
    #: Shortest time between two polls.
    poll_seconds: float
    #: Whether a run continues when this kernel ends.
    outlives_kernel: bool
    #: Whether Spark runs in this kernel's process, and so with this notebook's variables and this machine's folders.
    in_kernel: bool
    #: Bytes of the cell's files that are fetched when the run ends; None for all.
    files_bytes: int | None

    @property
    def driver_address(self) -> Mapping[str, Any]:
        """The address by which another kernel finds a run's driver, as JSON without secrets; empty if it cannot."""

    def status(self) -> Ready | NotStarted | Unreachable: ...

    def findings(self) -> Iterable[tuple[str, str]]:
        """(subject, finding) of each line that `%ddl check` prints. Starts nothing."""

    def spark(self, spec: RunSpec) -> Any:
        """This notebook's SparkSession, created for the spec's workers if there is none; None if not `in_kernel`.

        Raises:
            CannotStart: Spark does not start.
        """

    def runs(self) -> Sequence[Mapping[str, Any]]:
        """The driver's runs that this kernel may not know, oldest first: {"run", "state", "spec"}.

        Raises:
            ConnectionError, TimeoutError, ProcessLookupError: there is no answer.
        """

    def check(self, spec: RunSpec, namespace: Mapping[str, Any]) -> Refused | None:
        """Why the run would be refused, as far as can be checked without waiting."""

    def notices(self, spec: RunSpec, namespace: Mapping[str, Any]) -> Iterable[str]:
        """What the user should know of a run that `check` accepts, a line each."""

    def launch(self, spec: RunSpec, namespace: Mapping[str, Any]) -> Launched | Postponed | Refused:
        """Start the run and return. Where Spark runs here, `namespace` has the variables that the cell uses."""

    def poll(self, run: str, after: int) -> Polled | Unreachable: ...

    def stop(self, run: str, reason: str = "") -> bool:
        """Ask the run to finish its step and end, and to keep its model. It ends later, with a state event.

        reason: words that follow "stopped" in that event. Returns whether the driver answered; if not, call again.
        """

    def fetch(self, run: str, artifact: str, to: Path, progress: Progress) -> str | None:
        """Write the artifact to the file `to`. Returns None, or in one line why it cannot be fetched.

        Raises:
            OSError: it cannot be fetched now, as the driver does not answer or a disk is full.
        """

    def release(self, run: str) -> None:
        """Allow the driver to forget the run: the notebook has received all of it."""

    def predict(
        self, request: ScoringRequest, name: str, output: str, on_error: str, namespace: MutableMapping[str, Any]
    ) -> Sequence[tuple[str, str]]:
        """Define a DataFrame `name` with predictions, beside the request's DataFrame. Returns (name, type) of columns.

        Args:
            request: the model and the DataFrame.
            name: of the new DataFrame.
            output: of the column that it gets.
            on_error: "fail" or "null", as `ddl_magics.predict` takes it.
            namespace: the notebook's variables, used if `in_kernel`.

        Raises:
            CannotScore: a ValueError of one line; a name is wrong, the first row cannot be scored, or the driver does
                not answer.
        """

    def evaluate(
        self, request: ScoringRequest, label: str, weight: str | None, namespace: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """The model's metrics over the rows, as `runtime.scoring.records.Evaluated`. An interrupt ends the evaluation.

        Args:
            request: the model and the DataFrame.
            label, weight: columns, as --label and --weight take them.
            namespace: the notebook's variables, used if `in_kernel`.

        Raises:
            CannotScore: a ValueError of one line; a name is wrong, a row cannot be evaluated, or the driver does not
                answer.
        """

    def write_tfrecord(
        self, data: str, uri: str, compression: str | None, namespace: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Write the DataFrame named `data` as TFRecord files. An interrupt ends the writing.

        Args:
            data: the DataFrame's name, in the process of the cluster's Spark session.
            uri: the folder, which must not exist.
            compression: None or "gzip".
            namespace: the notebook's variables, used if `in_kernel`.

        Returns:
            "rows", "files" and "bytes" that were written.

        Raises:
            CannotWrite: a ValueError of one line; a name is wrong, the storage refuses, or the driver does not answer.
        """

    def give_back(self, resource: str) -> str | Refused:
        """Release "executors" or the "session", as --release says. Returns a line for the user."""

    def ask_again(self) -> str | Refused:
        """Request the released executors again. Returns a line for the user."""

    def replace_executor(self, executor: str) -> str | Refused:
        """Replace an executor of a session that we started. Returns a line for the user."""

    def cache(self, option: str, clear: bool) -> list[Mapping[str, Any]] | str:
        """The data that the hosts cache for --data, as `driver.api.cache` lists it, or a line with the problem.

        Args:
            option: the value of --cache.
            clear: remove the cached data after listing it.
        """

    def shutdown(self) -> None:
        """End what was started for this notebook. Called when the kernel exits."""
