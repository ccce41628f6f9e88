"""One rank: who it is, how it reaches its peers, how far it is, what it reports. One a process."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Callable, Protocol

from ..assert_never import assert_never
from ..files.working_folder import WorkingFolder
from ..keras_types import Dataset, Metric, Model, Tensor
from ..rank_end import Outcome
from ..transport import wire
from .config import RankConfig
from .data_wait import DataWait
from .peers import Peers
from .progress import Progress
from .regrouping import Regrouped
from .reporter import Reporter
from .stop import Stop

if TYPE_CHECKING:
    from ..data.file_share import Reading
    from ..data.reader import Epochs
    from ..parameter_server.client import ParameterClient


class Training(Protocol):
    """What the hooks of Keras have for loops of the cell's own."""

    def distribute(self, data: Any, reduction: str | None) -> Any: ...

    def result(self, metric: Metric) -> Any: ...

    def all_gather(self, tensor: Tensor) -> Tensor: ...

    def alone(self) -> AbstractContextManager[None]: ...

    def all_rows(self, dataset: Dataset) -> Dataset: ...


class StrategyCluster(Protocol):
    """A rank's part of TensorFlow's own cluster: `tf_distribute.cluster.TfCluster`. strategy: None before `enter`."""

    strategy: Any

    @property
    def runs_cell(self) -> bool: ...

    def enter(self) -> None: ...

    def serve(self) -> None: ...

    def distribute(self, dataset: Dataset) -> Dataset: ...

    def models(self, fitted: list[Model], namespace: dict[str, Any]) -> list[Model]: ...

    def save_with_chief(self, fitted: list[Model], namespace: dict[str, Any]) -> None: ...

    def wait_for_all(self) -> None: ...

    def abort(self) -> None: ...

    def leave(self, goodbye: str) -> None: ...


class Rank:
    """The parts of a rank, each of which is handed to whoever needs it.

    server: the client of the parameter servers, and cluster: TensorFlow's own, where the strategy has one, once
    connected. models: every Keras model trained, in order of its first fit. at_cell_end: what is called when the cell
    has ended. reading: of the files of --data, where another process reads them; data_epochs: of its `dataset`.
    training: the hooks of Keras, once installed; None with TensorFlow's own strategies.
    """

    def __init__(self, config: RankConfig, channel: wire.Channel, files: WorkingFolder | None = None) -> None:
        """files: of this `config`, begun already."""
        self.config = config
        self.stop = Stop()
        self.reporter = Reporter(config.rank, channel, self.stop)
        self.progress = Progress()
        self.data_wait = DataWait()
        self.peers = Peers(config, self.progress, self.stop)
        self.reporter.is_chief = lambda: self.peers.is_chief
        self.errors = HookErrors()
        self.files = files or WorkingFolder(config.scratch, config.spec.folder, config.is_chief)
        self.files.paths.is_chief = lambda: self.peers.is_chief
        self.reading: Reading | None = None
        self.data_epochs: Epochs | None = None
        self.server: ParameterClient[Any] | None = None
        self.cluster: StrategyCluster | None = None
        self.models: list[Model] = []
        self.training: Training | None = None
        self.at_cell_end: list[Callable[[], None]] = []

    def begin_fit(self, model: Model) -> None:
        """A fit begins, until `end_fit`."""
        self.progress.begin_fit()
        self.stop.begin_fit()
        self.keep(model)

    def end_fit(self) -> None:
        self.stop.end_fit()
        self.progress.training = False

    def keep(self, model: Model) -> None:
        """`model` is trained here, and belongs to the result of the run."""
        if all(model is not other_model for other_model in self.models):
            self.models.append(model)

    def leave(self, outcome: Outcome) -> None:
        """Tell the peers that this rank takes part no more. outcome: of its `RankEnd`."""
        goodbye = _goodbye(outcome)
        if self.cluster is not None:
            self.cluster.leave(goodbye)
        self.peers.close(goodbye)
        if self.server is not None:
            self.server.leave()


def _goodbye(outcome: Outcome) -> str:
    """Why a rank leaves, in words for its peers."""
    if outcome == "finished":
        return "its cell has ended; all ranks must call fit, adapt and ddl.allreduce equally often"
    if outcome == "stopped":
        return "it was stopped"
    if outcome == "failed":
        return "it failed"
    assert_never(outcome)


class HookErrors:
    """Keeps what hooks raise inside of TensorFlow, which wraps exceptions in words of its own.

    regrouped: a hook has raised `Regrouped` since this was last set to False.
    """

    def __init__(self) -> None:
        self.first: BaseException | None = None
        self.regrouped = False

    def guarded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function for TensorFlow to call: the first exception that any of them raises is kept."""

        def call(*arrays: Any) -> Any:
            try:
                return function(*arrays)
            except Regrouped:
                self.regrouped = True
                raise
            except BaseException as error:
                self.first = self.first or error
                raise

        return call
