"""`Run`: what a notebook holds of a training, while it goes on and afterwards."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ddl_magics import tables
from ddl_magics.errors import DistributedCellError
from ddl_magics.runtime import events as ev
from ddl_magics.runtime.strategies import ENSEMBLE
from ddl_magics.saved_model import load_model
from ddl_magics.spec import RunSpec
from ddl_magics.store import RunFolder, RunRecord
from ddl_magics.timeline import Event, Timeline
from ddl_magics.wording import counted

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import plotly.graph_objects as go

    from ddl_magics.follower import Follower

#: How long `stop` waits for the end: a step, the model's way back, and the driver's grace before it cancels.
STOP_SECONDS = 90.0


class Run:
    """A training, running or over.

    Guaranteed: attributes of a run can be read at any time; what waits (`wait`, `stop`, `result`, `model`,
    `weights`, `save_model`) can be interrupted, which leaves the run as it is. Not guaranteed: that a run outlives
    its kernel. On an embedded Spark it does not, on a Livy session that is detached it does.
    """

    def __init__(
        self,
        spec: RunSpec,
        folder: RunFolder,
        timeline: Timeline,
        cluster: str = "",
        follower: Follower | None = None,
        attachable: bool = False,
    ) -> None:
        self.spec = spec
        self.cluster = cluster
        #: Whether its driver may live though its kernel is gone.
        self.attachable = attachable
        self._folder = folder
        self._timeline = timeline
        self._follower = follower

    @classmethod
    def stored(cls, record: RunRecord) -> Run:
        """A run of the store that another kernel owns, or that is over, as it stands now."""
        folder = RunFolder(record.folder)
        timeline = Timeline(folder.events())
        timeline.state, timeline.failure = record.state, record.failure
        timeline.settle()
        spec = RunSpec.from_record(record.spec)
        return cls(spec, folder, timeline, record.cluster, attachable=bool(record.place))

    @property
    def id(self) -> str:
        return self.spec.run

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def state(self) -> str:
        """QUEUED, PREFLIGHT, SUBMITTED, WAITING, RUNNING, STOPPING, STOPPED, FINISHED, FAILED or LOST."""
        return self._timeline.state

    @property
    def events(self) -> list[Mapping[str, Any]]:
        """The events so far; `ddl_magics.runtime.events` says what they hold."""
        return self._timeline.events()

    @property
    def history(self) -> dict[str, list[float]]:
        """Name -> value per epoch of the whole job, as Keras' `History.history`; of the last `fit`, so far."""
        histories = self.histories
        return histories[-1] if histories else {}

    @property
    def histories(self) -> list[dict[str, list[float]]]:
        """The history of each call of `fit`."""
        return tables.histories(self.events)

    @property
    def member_histories(self) -> list[dict[str, list[float]]]:
        """What `history` is for rank 0, for each rank in their order: of `--strategy ensemble`, whose models differ."""
        events, members = self.events, range(self.spec.workers if self.spec.strategy == ENSEMBLE else 1)
        return [(tables.histories(events, member) or [{}])[-1] for member in members]

    @property
    def metrics(self) -> pd.DataFrame:
        """A row a value: time, rank, epoch, step, name, value, fit. A missing step says "of the whole epoch"."""
        return tables.metrics(self.events)

    @property
    def workers(self) -> pd.DataFrame:
        """A row a rank: rank, host, pid, device, samples/s, state."""
        return tables.workers(self.events)

    @property
    def result(self) -> Any:
        """The value of the cell's last expression on rank 0, when the run has ended; None if it was stopped before.

        Numbers, text, lists and dicts come as they are, arrays as NumPy's, Keras models as models, and anything else
        as its `repr`.

        Raises:
            DistributedCellError: the run failed.
        """
        self.wait()
        event = next((e for e in reversed(self.events) if e.get("kind") == "result"), {"encoding": "none"})
        if event["encoding"] == "npy":
            import numpy as np

            return np.load(self._file(event["artifact"]), allow_pickle=False)
        if event["encoding"] == "keras":
            return load_model(self._file(event["artifact"]))
        if "artifact" in event:
            return json.loads(self._file(event["artifact"]).read_text(encoding="utf-8"))
        return event.get("value")

    def wait(self, timeout: float | None = None) -> Run:
        """Block until the run has ended and its results are here.

        Raises:
            DistributedCellError: the run failed or was lost.
            TimeoutError: it has not ended after `timeout` seconds; it goes on.
        """
        if not self._timeline.wait(_is_settled, timeout):
            raise TimeoutError(
                f"{self.name} is {self.state} after {timeout:g} s; it goes on. Wait longer, or end it with "
                f"{self.name}.stop()."
            )
        if self.state == ev.FAILED:
            raise DistributedCellError(self.name, self._timeline.failure or {})
        if self.state == ev.LOST:
            raise DistributedCellError(self.name, {"kind": "lost", "message": f"lost: {self._last_message()}"})
        return self

    def stop(self, timeout: float = STOP_SECONDS) -> Run:
        """End the run after its current step, keep model and history, and return when it has ended.

        Raises:
            TimeoutError: it has not ended after `timeout` seconds.
        """
        self.request_stop()
        if not self._timeline.wait(_is_settled, timeout):
            raise TimeoutError(f"{self.name} is still {self.state} {timeout:g} s after it was asked to stop.")
        return self

    def request_stop(self) -> None:
        """As `stop`, without waiting for the end."""
        if self._follower is not None:
            self._follower.request_stop()
        elif self.state not in ev.TERMINAL:
            self._folder.request("stop")

    @property
    def followed(self) -> bool:
        """Whether the kernel that began it, or attached it, still lives."""
        return self._follower is not None or self._folder.owned()

    @property
    def outlives_kernel(self) -> bool:
        """Whether it goes on when this kernel ends."""
        return self._follower is not None and self._follower.cluster.outlives_kernel

    def settled(self, timeout: float) -> bool:
        """Whether the run has ended and its results are here, after at most `timeout` seconds."""
        return self._timeline.wait(_is_settled, timeout)

    def listen(self, listener: Callable[[list[Event]], None]) -> None:
        """Tell `listener` the events so far and all new ones, in another thread."""
        if self._follower is not None:
            self._follower.recorder.listen(listener)
        else:
            listener(self._timeline.events())

    def give_up(self, timeout: float) -> None:
        """The kernel exits: mark the run as lost if it does not end within `timeout` seconds."""
        self._timeline.wait(_is_settled, max(timeout, 0.0))
        if self._follower is not None and not self._timeline.over:
            self._follower.give_up("its kernel has ended")

    def logs(self, rank: int | None = None) -> str:
        """What a rank printed, or what all did, each line with its rank before it."""
        return tables.logs(self.events, rank)

    def model(self, custom_objects: Mapping[str, Any] | None = None, *, index: int = -1, rank: int = 0) -> Any:
        """The trained Keras model; waits for the end of the run.

        Args:
            custom_objects: classes and functions of the cell that the model uses, by name.
            index: which one, where the cell fitted several models: 0 is the one that was fitted first.
            rank: whose model, with `--strategy ensemble`.

        Raises:
            DistributedCellError: the run failed.
            LookupError: the run has no such model, or --out has written it elsewhere.
            ValueError: Keras cannot make it again, for want of a class or of its config.
            ImportError: Keras is not installed here.
        """
        return load_model(self._model_file(index, rank), custom_objects)

    def models(self, custom_objects: Mapping[str, Any] | None = None, *, index: int = -1) -> list[Any]:
        """The model of each rank, in their order, with `--strategy ensemble`; else a list of the one; as `model`."""
        members = range(len(self.member_histories))
        return [self.model(custom_objects, index=index, rank=member) for member in members]

    def save_model(self, path: str | Path, *, index: int = -1, rank: int = 0) -> Path:
        """Write the trained model to a `.keras` file, for which Keras is not needed here; waits as `model`."""
        target = Path(path)
        if target.suffix != ".keras":
            raise ValueError(f"a Keras model's file ends in .keras: {target.with_suffix('.keras')}")
        return Path(shutil.copyfile(self._model_file(index, rank), target))

    def weights(self, *, index: int = -1, rank: int = 0) -> list[np.ndarray[Any, Any]]:
        """The trained model's arrays in the order of Keras' `get_weights`; waits as `model`."""
        import numpy as np

        with np.load(self._artifact("weights-", ".npz", index, rank), allow_pickle=False) as arrays:
            return [arrays[f"arr_{i}"] for i in range(len(arrays.files))]

    def figure(self) -> go.Figure:
        """A plotly figure of the loss, the metrics and samples/s so far."""
        from ddl_magics.dashboard.figure import figure

        return figure(self.name, self.events)

    def __repr__(self) -> str:
        metrics = ", ".join(f"{name} {values[-1]:.4g}" for name, values in self.history.items())
        epochs = max((len(values) for values in self.history.values()), default=0)
        progress = f": {counted(epochs, 'epoch')}, {metrics}" if epochs else ""
        return f"<Run {self.name} {self.state}{progress}>"

    def _model_file(self, index: int, rank: int) -> Path:
        return self._artifact("model-", ".keras", index, rank)

    def _artifact(self, prefix: str, suffix: str, index: int, rank: int) -> Path:
        self.wait()
        prefix = f"rank-{rank}-{prefix}" if rank else prefix
        names = {e["name"] for e in self.events if e.get("kind") == "artifact" and e["name"].startswith(prefix)}
        numbers = sorted(int(name[len(prefix) : -len(suffix)]) for name in names if name.endswith(suffix))
        if not numbers:
            notices = (
                e["message"] for e in self.events if e.get("kind") == "notice" and "cannot be saved" in e["message"]
            )
            raise LookupError(next(notices, f"{self.name} has no model: none was fitted in the cell ({self.state})."))
        try:
            return self._file(f"{prefix}{numbers[index]}{suffix}")
        except IndexError:
            raise LookupError(f"{self.name} has {counted(len(numbers), 'model')}: no index {index}.") from None

    def _file(self, name: str) -> Path:
        announced = next((e for e in self.events if e.get("kind") == "artifact" and e["name"] == name), {})
        if "uri" in announced:
            return self._written(announced)
        path = self._folder.file(name)
        if not path.exists():
            why = next((e["message"] for e in self.events if e.get("kind") == "notice" and name in e["message"]), "")
            raise LookupError(why or f"{name} of {self.name} is not in {path.parent}.")
        return path

    def _written(self, announced: Event) -> Path:
        """The file that --out has written, where that is this machine's disk."""
        uri, path = announced["uri"], Path(urlsplit(announced["uri"]).path)
        if not uri.startswith("file:") or not path.is_file() or path.stat().st_size != announced["size"]:
            raise LookupError(f"{announced['name']} of {self.name} was not brought here: --out has written it to {uri}")
        return path

    def _last_message(self) -> str:
        said = (e["message"] for e in reversed(self.events) if e.get("kind") == "state" and e.get("message"))
        if self._follower is not None:
            return next(said, "")
        return (
            f"its kernel is gone; %ddl attach {self.name} goes on with it" if self.attachable else "its kernel is gone"
        )


def _is_settled(timeline: Timeline) -> bool:
    return timeline.settled
