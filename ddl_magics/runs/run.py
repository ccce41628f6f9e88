"""`Run`: a training as the notebook sees it, while it runs and afterwards."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ddl_magics.clusters.local_prediction import evaluate_here, is_pandas, is_spark, predict_columns_here, predict_here
from ddl_magics.clusters.scoring import DataFrame, evaluate, predict, training_inputs
from ddl_magics.dashboard.pictures import Picture, pictures
from ddl_magics.dashboard.state_words import state_word
from ddl_magics.errors import (
    CannotScore,
    DistributedCellError,
    NoAttribute,
    NoFolder,
    NotAKerasFile,
    NotInRun,
    RunInterrupted,
)
from ddl_magics.history import mlflow, provenance, tensorboard
from ddl_magics.history.provenance import Provenance
from ddl_magics.history.tracking_data import TrackingData
from ddl_magics.runs import tables
from ddl_magics.runs.cell_files import CannotPlace, cell_files
from ddl_magics.runs.saved_model import load_model
from ddl_magics.runs.timeline import Timeline
from ddl_magics.runs.tracking import tracking_data
from ddl_magics.runs.variables import Variables, has_variables
from ddl_magics.runtime import events as ev
from ddl_magics.runtime.data.transform import read as read_transform
from ddl_magics.runtime.driver.run_result import why_stopped
from ddl_magics.runtime.monitoring.sources import REFERENCE_FILE
from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.runtime.strategies import ENSEMBLE
from ddl_magics.runtime.variables.left import FILE as VARIABLES_FILE
from ddl_magics.store import RunFolder, RunRecord, find_run, labels
from ddl_magics.wording import counted, first_line, nearest, plain

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import plotly.graph_objects as go

    from ddl_magics.dashboard.evaluation import Evaluation
    from ddl_magics.models.export import Trained
    from ddl_magics.models.signature import Example
    from ddl_magics.models.transformer import KerasTransformer
    from ddl_magics.runs.follower import Follower
    from ddl_magics.runtime.data.records import Inputs
    from ddl_magics.runtime.data.transform import Transform
    from ddl_magics.serving.servers import Served

#: What completion offers of a run.
_FOR_CELLS = (
    *("id", "name", "state", "reason", "spec", "cluster", "events", "history", "histories", "member_histories"),
    *("metrics", "workers", "result", "wait", "stop", "request_stop", "logs", "model", "models", "save_model"),
    *("tags", "note", "provenance", "weights", "predict", "evaluate", "transformer", "export", "register", "serve"),
    *("pictures", "variables", "files", "fetch", "figure", "to_tensorboard", "to_mlflow"),
)

#: How long `stop` waits for the end: a step, the transfer of the model, and the driver's grace before it cancels.
STOP_SECONDS = 90.0


class Run:
    """A training, running or ended.

    Guaranteed: all attributes but `result` can be read at any time without waiting. `wait`, `stop`, `result`, `model`,
    `models`, `weights` and `save_model` can be interrupted, which leaves the run as it is. Not guaranteed: that a run
    outlives its kernel. It does on a detached Livy session, and does not on an embedded Spark.
    """

    def __init__(
        self,
        spec: RunSpec,
        folder: RunFolder,
        timeline: Timeline,
        cluster: str = "",
        follower: Follower | None = None,
        attachable: bool = False,
        damage: str = "",
        imported: bool = False,
    ) -> None:
        self.spec = spec
        self.cluster = cluster
        #: Whether its driver may be alive though its kernel is gone.
        self.attachable = attachable
        #: What is missing of its stored events, in one line; empty where nothing is.
        self.damage = damage
        #: Whether `%ddl import` has brought it: its cell and its model may be a stranger's.
        self.imported = imported
        self._folder = folder
        self._timeline = timeline
        self._follower = follower
        self._failure_shown = False
        #: Called by `wait` when the run has ended: the notebook gets its variables.
        self.at_wait: Callable[[], None] = lambda: None

    @classmethod
    def stored(cls, record: RunRecord) -> Run:
        """A stored run that has ended or that another kernel owns, as it is now."""
        folder = RunFolder(record.folder)
        lines = list(folder.lines())
        events = [event for event in lines if event is not None]
        timeline = Timeline(events)
        damage = _damage(record, events, len(lines) - len(events))
        timeline.state, timeline.failure = record.state, record.failure
        timeline.settle()
        spec = RunSpec.from_record(record.spec)
        attachable = record.attachable and not record.imported
        return cls(spec, folder, timeline, record.cluster, None, attachable, damage, record.imported)

    @property
    def id(self) -> str:
        """The run's id, which no other run of the store has."""
        return self.spec.run

    @property
    def name(self) -> str:
        """The name of the run, and of its variable."""
        return self.spec.name

    @property
    def state(self) -> str:
        """QUEUED, PREFLIGHT, SUBMITTED, WAITING, RUNNING, STOPPING, STOPPED, FINISHED, FAILED or LOST."""
        return self._timeline.state

    @property
    def reason(self) -> str:
        """Why the run failed, was lost or was stopped, as a pruned trial is, in one line; else ""."""
        failure = self._timeline.failure
        if self.state == ev.FAILED and failure:
            number = failure.get("rank", ev.JOB)
            rank = "" if number == ev.JOB else f"rank {number}: "
            return rank + next(iter(str(failure.get("message", "")).splitlines()), "")
        if self.state == ev.STOPPED:
            return why_stopped(next((end.message for end in ev.select(ev.State, reversed(self.events))), ""))
        return self._last_message() if self.state == ev.LOST else ""

    @property
    def summary(self) -> dict[str, Any]:
        """What the static block needs beside the events. folder: of a run that is no variable of this kernel, or ""."""
        spec = self.spec
        head = {"id": self.id, "name": self.name, "strategy": spec.strategy, "workers": spec.workers}
        folder = "" if self._follower else str(self._folder.path)
        where = {"cluster": self.cluster, "attachable": self.attachable, "folder": folder}
        return {**head, "min_workers": spec.min_workers, "state": self.state, **where}

    @property
    def tags(self) -> list[str]:
        """The run's tags, also those given in the panel; assign a list to change them."""
        return list(self._folder.labels().tags)

    @tags.setter
    def tags(self, tags: Sequence[str]) -> None:
        self._folder.label(labels=labels.tags(tags))

    @property
    def note(self) -> str:
        """What people have written about the run, or ""; assign a text to change it."""
        return self._folder.labels().note

    @note.setter
    def note(self, text: str) -> None:
        self._folder.label(note=labels.note(text))

    @property
    def provenance(self) -> Provenance:
        """What the run ran with: packages, Spark's settings, git, the notebook's cells, variables, data."""
        return provenance.read(self._folder.path)

    @property
    def events(self) -> list[ev.RawEvent]:
        """The events so far, as `ddl_magics.runtime.events` describes them."""
        return self._timeline.events()

    @property
    def history(self) -> dict[str, list[float]]:
        """Name -> values per epoch of the whole job, as Keras' `History.history`; of the last `fit`, so far.

        Of a training loop of the cell's own, the values that rank 0 passed to `ddl.log`, one for each call.
        """
        return tables.last_history(self.events)

    @property
    def histories(self) -> list[dict[str, list[float]]]:
        """The history of each call of `fit`, and of each training loop between them."""
        return tables.histories(self.events)

    @property
    def member_histories(self) -> list[dict[str, list[float]]]:
        """The `history` of each rank's own model, by rank; only `--strategy ensemble` has more than that of rank 0."""
        events, members = self.events, range(self.spec.workers if self.spec.strategy == ENSEMBLE else 1)
        return [(tables.histories(events, member) or [{}])[-1] for member in members]

    @property
    def metrics(self) -> pd.DataFrame:
        """One row per value: time, rank, epoch, step, name, value, fit. `step` is missing for an epoch's values."""
        return tables.metrics(self.events)

    @property
    def workers(self) -> pd.DataFrame:
        """One row per rank: rank, host, pid, device, samples/s, state, from, until.

        `from` and `until` are seconds since the run began: the rank's first and last sign, or with all-reduce and
        `--workers MIN..MAX` from when until when it trained. The state of a rank that the others train on without is
        "left".
        """
        return tables.workers(self.events)

    @property
    def result(self) -> Any:
        """The value of the cell's last expression on rank 0; waits for the end of the run. None if it was stopped.

        Numbers, text, lists and dicts come back as in JSON: tuples are lists, and the keys of a dict are text. Arrays
        come back as NumPy arrays, Keras models as models, and anything else as its `repr`.

        Raises:
            DistributedCellError: the run failed or was lost.
        """
        self.wait()
        result = next(ev.select(ev.Result, reversed(self.events)), None)
        if result is None or result.artifact is None:
            return None if result is None else result.value
        file = self._file(result.artifact)
        if result.encoding == "keras":
            return load_model(file)
        try:
            if result.encoding == "npy":
                import numpy as np

                return np.load(file, allow_pickle=False)
            return json.loads(file.read_text(encoding="utf-8"))
        except (ValueError, EOFError, MemoryError, RecursionError, OSError) as error:  # an imported run's, for example
            raise NotInRun(f"the result of {self.name} cannot be read: {plain(first_line(error))}") from None

    def wait(self, timeout: float | None = None) -> Run:
        """Block until the run has ended and its results are here.

        Raises:
            DistributedCellError: the run failed or was lost.
            TimeoutError: the run has not ended after `timeout` seconds; it continues.
            LookupError: another kernel follows the run.
        """
        if self._follower is None and not self._timeline.over:
            state = state_word(self.state)
            raise NotInRun(f"{self.name} is {state} in another kernel: its results are here when it has ended")
        try:
            settled = self._timeline.wait_until_settled(timeout)
        except KeyboardInterrupt:
            raise RunInterrupted(
                f"no longer waiting for {self.name}, which is {state_word(self.state)} and continues; "
                f"{self.name}.wait() waits again, {self.name}.stop() ends it."
            ) from None
        if not settled:
            raise TimeoutError(
                f"{self.name} is {state_word(self.state)} after {timeout:g} s and continues: wait longer, or end it "
                f"with {self.name}.stop()."
            )
        self.at_wait()
        if self.state == ev.FAILED:
            was_shown, self._failure_shown = self._failure_shown, True
            raise DistributedCellError(self.name, self._timeline.failure or {}, was_shown=was_shown)
        if self.state == ev.LOST:
            raise DistributedCellError(self.name, {"kind": "lost", "message": f"lost: {self._last_message()}"})
        return self

    def stop(self, timeout: float = STOP_SECONDS) -> Run:
        """End the run after its current step, keep model and history, and return when it has ended.

        Raises:
            TimeoutError: the run has not ended after `timeout` seconds.
        """
        self.request_stop()
        if not self._timeline.wait_until_settled(timeout):
            raise TimeoutError(
                f"{self.name} is still {state_word(self.state)} {timeout:g} s after it was asked to stop; "
                f"{self.name}.wait() waits longer."
            )
        return self

    def request_stop(self, reason: str = "") -> None:
        """Like `stop`, but return at once. `reason`: why, in words that follow "stopped" in the run's last message."""
        if self._follower is not None:
            self._follower.request_stop(reason)
        elif self.state not in ev.TERMINAL:
            self._folder.request("stop")

    @property
    def launched(self) -> bool:
        """Whether the driver has taken the run; before that there is nothing to keep."""
        return any(event.attempt != 0 for event in map(ev.parse, self.events))

    @property
    def has_trained(self) -> bool:
        """Whether a step of training has been reported; before that there is neither a history nor a model."""
        return next(ev.select(ev.Steps, self.events), None) is not None

    @property
    def followed(self) -> bool:
        """Whether the kernel that started the run, or attached it, is alive."""
        return self._follower is not None or self._folder.has_live_owner()

    @property
    def outlives_kernel(self) -> bool:
        """Whether the run continues when this kernel ends."""
        return self._follower is not None and self._follower.cluster.outlives_kernel

    def settled(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds; returns whether the run has ended and its results are here."""
        return self._timeline.wait_until_settled(timeout)

    def listen(self, listener: Callable[[list[ev.RawEvent]], None]) -> None:
        """Call `listener` with the events so far, and then with new ones of a run that this kernel follows.

        Of such a run, it is called in another thread.
        """
        if self._follower is not None:
            self._follower.recorder.listen(listener)
        else:
            listener(self._timeline.events())

    def give_up(self, timeout: float) -> None:
        """Mark the run as lost, as the kernel exits, unless it ends within `timeout` seconds."""
        self._timeline.wait_until_settled(max(timeout, 0.0))
        if self._follower is not None and not self._timeline.over:
            self._follower.give_up("its kernel has ended")

    def wait_for_trackers(self, timeout: float) -> None:
        """Wait at most `timeout` seconds until --tensorboard and --mlflow have all of a run that has ended."""
        if self._follower is not None:
            self._follower.trackers.wait(timeout)

    def logs(self, rank: int | None = None) -> str:
        """What one rank printed; or what all printed, each line with its rank before it.

        Raises:
            LookupError: the run has no such rank.
        """
        text, workers = tables.logs(self.events, rank), self.spec.workers
        if rank is not None and rank >= workers and not text:
            ranks = "rank 0 alone" if workers == 1 else f"the ranks 0 to {workers - 1}"
            raise NotInRun(f"{self.name} has {ranks}, and no rank {rank}.")
        return text

    def model(self, custom_objects: Mapping[str, Any] | None = None, *, index: int = -1, rank: int = 0) -> Any:
        """The trained Keras model; waits for the end of the run.

        Args:
            custom_objects: classes and functions of the cell that the model uses, by name.
            index: of the models that the cell fitted, in the order of their first `fit`.
            rank: the rank, with `--strategy ensemble`.

        Raises:
            DistributedCellError: the run failed or was lost.
            LookupError: the run has no such model, or --out has written it elsewhere.
            ValueError: Keras cannot load it: a class or its config is missing, or another version of Keras saved it.
            ImportError: Keras is not installed here.
        """
        file = self._model_file(index, rank)
        if self.imported:
            warnings.warn(
                f"{self.name} was imported: its model was trained elsewhere; load models of people you trust",
                stacklevel=2,
            )
        return load_model(file, custom_objects)

    def models(self, custom_objects: Mapping[str, Any] | None = None, *, index: int = -1) -> list[Any]:
        """The models of all ranks with `--strategy ensemble`, else a list of the one model; see `model`."""
        members = range(len(self.member_histories))
        return [self.model(custom_objects, index=index, rank=member) for member in members]

    def save_model(self, path: str | Path, *, index: int = -1, rank: int = 0) -> Path:
        """Write the trained model to a `.keras` file, and return its path. Needs no Keras here. Waits as `model` does.

        Raises:
            ValueError: the path does not end in .keras.
            FileNotFoundError: there is no such folder.
            DistributedCellError, LookupError: as `model`.
        """
        target = Path(path)
        if target.suffix != ".keras":
            raise NotAKerasFile(f"the file name of a Keras model must end in .keras: {target.with_suffix('.keras')}")
        if not target.parent.is_dir():
            raise NoFolder(f"there is no folder {target.parent}: create it first.")
        return Path(shutil.copyfile(self._model_file(index, rank), target))

    def weights(self, *, index: int = -1, rank: int = 0) -> list[np.ndarray[Any, Any]]:
        """The trained model's arrays in the order of Keras' `get_weights`; waits and raises as `save_model` does."""
        import numpy as np

        with np.load(self._artifact("weights-", ".npz", index, rank), allow_pickle=False) as arrays:
            return [arrays[f"arr_{i}"] for i in range(len(arrays.files))]

    def reference_file(self) -> Path:
        """The file that says how the rows of --data were distributed; waits for the end of the run.

        Raises:
            DistributedCellError: the run failed or was lost.
            LookupError: it was trained without --data, or with --transform or --no-reference.
        """
        self.wait()
        path = self._folder.file(REFERENCE_FILE)
        if not path.is_file():
            raise NotInRun(
                f"{self.name} has no reference of its data: it needs --data, without --transform and --no-reference; "
                "run its cell again"
            )
        return path

    def predict(
        self,
        df: DataFrame,
        features: Sequence[str] | None = None,
        *,
        transform: Transform | None = None,
        index: int = -1,
        rank: int = 0,
        **options: Any,
    ) -> DataFrame:
        """A DataFrame with the predictions of the trained model beside its columns; waits for the end of the run.

        Of a Spark DataFrame it is one, and lazy: Spark scores the rows where they are. `ddl_magics.predict` says more.
        Of a pandas DataFrame, or of arrays, it is a pandas DataFrame, predicted in this process.

        Args:
            df: a DataFrame of this kernel's Spark session, a pandas DataFrame, or what the model's `predict` takes.
            features: as for `ddl_magics.predict`; if left out, the columns of --data, which become the same tensors as
                in training.
            transform: the function of --transform, where the run had one.
            index, rank: as for `model`.
            options: `output`, `batch_size`, `on_error` and `custom_objects`, as for `ddl_magics.predict`.

        Raises:
            CannotScore: a column is missing or of another kind, or the first row cannot be scored.
            DistributedCellError, LookupError: as `model`.
        """
        as_in_training = is_pandas(df) and features is None and self.spec.data is not None
        if as_in_training or (transform is None and not is_spark(df)):
            here = {name: value for name, value in options.items() if name not in ("custom_objects", "on_error")}
            function = self._transform(transform) if as_in_training else {}
            model = self.model(options.get("custom_objects"), index=index, rank=rank)
            if not as_in_training:
                return predict_here(model, df, features, **here)
            columns = training_inputs(self.name, self.spec, self.events)
            return predict_columns_here(model, df, columns, **function, **here)
        inputs = self._inputs(features)
        return predict(df, self._model_file(index, rank), features=inputs, **self._transform(transform), **options)

    def evaluate(
        self,
        df: DataFrame,
        label: Any = None,
        *,
        features: Sequence[str] | None = None,
        transform: Transform | None = None,
        index: int = -1,
        rank: int = 0,
        **options: Any,
    ) -> Evaluation:
        """The metrics of the trained model over all rows; waits for the end of the run.

        They are those that Keras' `evaluate` gives in one process, by name. `errors()`, `confusion()`, `roc()` and the
        figures `confusion_figure()` and `roc_figure()` are made of counts: of a Spark DataFrame, no row comes to the
        notebook. A pandas DataFrame and arrays are evaluated in this process.

        Args:
            df: a DataFrame of this kernel's Spark session, a pandas DataFrame, or what the model's `evaluate` takes.
            label: the column of the labels, or an array of them: `evaluate(x, y)`; if left out, that of --label.
            features: as for `predict`.
            transform: as for `predict`.
            index, rank: as for `model`.
            options: `weight` (that of --weight if left out), `batch_size` and `custom_objects`, as for
                `ddl_magics.evaluate`.

        Raises:
            CannotScore: a column is missing or of another kind, or a row cannot be evaluated.
            DistributedCellError, LookupError: as `model`.
        """
        label = self.spec.label if label is None else label
        if is_spark(df):
            arguments = {"weight": self.spec.weight, **options, "label": label, **self._transform(transform)}
            return evaluate(df, self._model_file(index, rank), features=self._inputs(features), **arguments)
        if label is None:
            raise CannotScore("give the labels, as in evaluate(x, y), or of a DataFrame their column")
        as_in_training = is_pandas(df) and features is None and self.spec.data is not None
        here = {name: value for name, value in options.items() if name != "custom_objects"}
        if as_in_training:
            here = {"weight": self.spec.weight, **here, **self._transform(transform)}
            here["inputs"] = training_inputs(self.name, self.spec, self.events)
        elif features is None and is_pandas(df) and isinstance(label, str):
            features = [name for name in df.columns if name != label]
        return evaluate_here(
            self.model(options.get("custom_objects"), index=index, rank=rank), df, label, features, **here
        )

    def _inputs(self, features: Sequence[str] | None) -> Inputs | Sequence[str]:
        return training_inputs(self.name, self.spec, self.events) if features is None else features

    def _transform(self, function: Transform | None) -> dict[str, Any]:
        """The arguments of `ddl_magics.predict` for the function of --transform, which a run does not keep."""
        if self.spec.transform is None:
            return {"transform": function}
        name, by_batch = read_transform(self.spec.transform)
        if function is None:
            raise CannotScore(f"{self.name} was trained with --transform {name}: give the function, transform={name}")
        return {"transform": function, "transform_batches": by_batch}

    def transformer(
        self,
        features: Sequence[str] | None = None,
        *,
        index: int = -1,
        rank: int = 0,
        **options: Any,
    ) -> KerasTransformer:
        """The trained model as a `pyspark.ml` Transformer, for a Pipeline, which saves and loads it; waits for the end.

        Args:
            features: as for `predict`.
            index, rank: as for `model`.
            options: as for `predict`.

        Raises:
            CannotScore, DistributedCellError, LookupError: as `predict`.
        """
        from ddl_magics.models.transformer import KerasTransformer

        if self.spec.transform is not None:
            raise CannotScore(
                f"{self.name} was trained with --transform {self.spec.transform}, a function that a pipeline cannot "
                "save: use run.predict, or make the function a layer of the model"
            )
        inputs = self._inputs(features)
        return KerasTransformer(self._model_file(index, rank).read_bytes(), inputs, **options)

    def export(
        self,
        path: str | Path,
        format: str = "keras",
        *,
        example: Example | None = None,
        custom_objects: Mapping[str, Any] | None = None,
        index: int = -1,
        rank: int = 0,
    ) -> Path:
        """Write the trained model to a new folder for other programs, and return its path; waits for the run's end.

        The folder has the model, and `ddl_magics.json` with the run's id, versions, what the model takes and gives, and
        an example.

        Args:
            path: the folder.
            format: "keras"; "mlflow"; "saved_model", a version's folder of TensorFlow Serving; "onnx"; or
                "litert".
            example: rows of the model's inputs, an array or a dict of arrays; zeros if left out.
            custom_objects: as for `model`.
            index, rank: as for `model`.

        Raises:
            CannotExport: a library is missing, the folder is there, or the model does not fit into the format.
            DistributedCellError, LookupError, ValueError, ImportError: as `model`.
        """
        from ddl_magics.models.export import export

        return export(self.trained(custom_objects, index, rank), path, format, example)

    def register(
        self,
        name: str,
        uri: str | Path,
        format: str = "keras",
        *,
        alias: str | None = None,
        example: Example | None = None,
        custom_objects: Mapping[str, Any] | None = None,
        index: int = -1,
        rank: int = 0,
    ) -> int:
        """Add the trained model to a registry as the next version of `name`, and return its number.

        The export is the folder `uri/name/VERSION`. `ddl_magics.Registry(uri)` finds it by number or alias.

        Args:
            name: of the model.
            uri: the folder of the registry, here or in a storage that this kernel's Spark knows.
            format: as for `export`, and so are `example`, `custom_objects`, `index` and `rank`.
            alias: a name for this version, such as "champion", which another version loses.

        Raises:
            CannotExport, DistributedCellError, LookupError, ValueError, ImportError: as `export`.
        """
        from ddl_magics.models.export import write
        from ddl_magics.models.registry import Registry

        trained, registry = self.trained(custom_objects, index, rank), Registry(uri)
        return registry.add(name, lambda folder: write(trained, folder, format, example), alias)

    def serve(
        self,
        name: str = "",
        *,
        port: int | None = None,
        detached: bool = False,
        log: str | Path | None = None,
        log_inputs: bool = True,
        log_sample: float = 1.0,
        custom_objects: Mapping[str, Any] | None = None,
        index: int = -1,
        rank: int = 0,
    ) -> Served:
        """Serve the trained model on this machine with MLServer; waits for the end of the run, and until it answers.

        Where a model of this name is served, this one becomes its next version: no request fails meanwhile. The result
        has `url`, `grpc`, `status`, `alive` and `stop()`.

        Args:
            name: of the model, in its URLs; the run's name if left out.
            port: for HTTP; a free one if left out.
            detached: let it outlive this kernel.
            log: a folder for a log of the requests.
            log_inputs: whether the log has the inputs.
            log_sample: the share of requests that are logged.
            custom_objects: as for `model`.
            index, rank: as for `model`.

        Raises:
            CannotServe, CannotExport, DistributedCellError, LookupError, ValueError, ImportError: it cannot be served.
        """
        from ddl_magics.serving import launch, servable

        model = servable.of_trained(self.name, self.id, self.trained(custom_objects, index, rank))
        options = launch.Options(port, detached, None if log is None else str(log), log_inputs, log_sample)
        return model.serve(name, options, print)

    def trained(self, custom_objects: Mapping[str, Any] | None = None, index: int = -1, rank: int = 0) -> Trained:
        """The trained model for `ddl_magics.models`; waits and raises as `save_model` does."""
        from ddl_magics.models.export import Trained

        file = self._model_file(index, rank)
        metrics = {name: values[-1] for name, values in self.history.items() if values}
        origin = {"run": self.id, "name": self.name, "metrics": metrics}
        has_data = any(ev.select(ev.Data, self.events))
        inputs = training_inputs(self.name, self.spec, self.events) if has_data and not self.spec.transform else None
        reference = self._folder.file(REFERENCE_FILE)
        reference_file = reference if reference.is_file() else None
        return Trained(file, lambda: load_model(file, custom_objects), origin, inputs, reference_file)

    @property
    def pictures(self) -> list[Picture]:
        """The pictures that the cell has shown so far, with their rank and time; a notebook draws each."""
        return pictures(self.events)

    @property
    def variables(self) -> Variables:
        """The variables that the cell has assigned or changed, by name; waits for the end of the run.

        At its end a run sets the notebook's variables itself, where no later cell has assigned them.

        Raises:
            DistributedCellError: the run failed or was lost.
            LookupError: the run has brought none.
        """
        self.wait()
        if not has_variables(self.events):
            raise NotInRun(f"{self.name} has brought no variables back ({self.state}).")
        models = lambda number: load_model(self._file(f"model-{number}.keras"))  # noqa: E731
        return Variables(self.name, self._file(VARIABLES_FILE), models)

    @property
    def artifacts(self) -> Path:
        """The folder of the run's artifacts."""
        return self._folder.file(VARIABLES_FILE).parent

    @property
    def files(self) -> dict[str, int]:
        """The files that the cell has written on rank 0: relative path -> size in bytes. Complete once it has ended."""
        return {name: file.size for name, file in cell_files(self.events).items()}

    def fetch(self, name: str, to: str | Path | None = None) -> Path:
        """The path on this machine of a file that the cell has written; waits for the end of the run.

        At its end a run has brought its files to the notebook's folder. On Livy only those up to a size: this fetches
        the others.

        Args:
            name: one of `files`.
            to: write it to this path, or into this folder; else it is brought to the notebook's folder.

        Raises:
            LookupError: the run has no such file, or it is out of reach.
        """
        self._timeline.wait_until_settled()
        file = cell_files(self.events).get(name)
        if file is None:
            raise NotInRun(
                f"{self.name} has no file {name}.{nearest(name, self.files) or f' {self.name}.files lists them.'}"
            )
        target = None if to is None else Path(to)
        if target is not None and target.is_dir():
            target /= Path(name).name
        if file.path is not None and file.path.is_file() and file.path.stat().st_size == file.size:
            if target is None or (target.exists() and target.samefile(file.path)):
                return file.path
            return Path(shutil.copyfile(file.path, target))
        if self._follower is None:
            advice = f": %ddl attach {self.name} first" if self.attachable else ", which has ended with its kernel"
            raise NotInRun(f"{name} is not on this machine, but with the driver of {self.name}{advice}.")
        try:
            return self._follower.fetch_file(file, None if to is None else Path(to))
        except CannotPlace as error:
            raise NotInRun(str(error)) from None

    def to_tensorboard(self, folder: str | Path) -> Path:
        """Write scalars, hyperparameters and the cell for TensorBoard, into a folder of its own below `folder`.

        Needs `pip install tensorboardX`. What an earlier call has written is replaced.

        Returns:
            The run's folder; `tensorboard --logdir` takes `folder`.

        Raises:
            ImportError: tensorboardX is missing.
        """
        logs = Path(folder).expanduser()
        written = tensorboard.write_below(logs, self.name, self.id, self.tracking_data())
        print(tensorboard.how_to_look(logs))
        return written

    def to_mlflow(self, uri: str, experiment: str | None = None) -> str:
        """Write parameters, metrics, tags, models and files to MLflow; returns MLflow's id of the run.

        Needs `pip install mlflow-skinny`, and for a database also `sqlalchemy alembic`. What an earlier call has
        written there is replaced.

        Args:
            uri: of a tracking server ("http://host:5000") or a database ("sqlite:///mlflow.db").
            experiment: made if it is not there; by default that of `MLFLOW_EXPERIMENT_NAME`, or "ddl_magics".

        Raises:
            ImportError: MLflow is missing.
            ValueError: the URI has a password, for which MLflow has environment variables.
        """
        written = mlflow.Experiment(uri, experiment).write(self.tracking_data())
        print(mlflow.how_to_look(uri))
        return written

    def tracking_data(self) -> TrackingData:
        """The run as TensorBoard and MLflow track it.

        Raises:
            LookupError: it is not in the store any more.
        """
        record = find_run(self.id)
        if record is None:
            raise NotInRun(f"{self.name} is not in the store any more.")
        return tracking_data(self.spec, record, self.events)

    def figure(self) -> go.Figure:
        """A plotly figure of the loss, the metrics and samples/s so far."""
        from ddl_magics.dashboard.figure import figure

        return figure(f"{self.name} {self.state}: {self.reason}" if self.reason else self.name, self.events)

    def __repr__(self) -> str:
        metrics = ", ".join(f"{name} {values[-1]:.4g}" for name, values in self.history.items())
        epochs = max((len(values) for values in self.history.values()), default=0)
        progress = f": {counted(epochs, 'epoch')}, {metrics}" if epochs else ""
        reason = f"; {self.reason}" if self.reason else ""
        return f"<Run {self.name} {state_word(self.state)}{progress}{reason}>"

    def _repr_html_(self) -> str:
        from ddl_magics.dashboard.static import static_bundle

        return str(static_bundle(self.summary, self.events)["text/html"])

    def __getattr__(self, name: str) -> Any:
        """Called for what a run does not have."""
        raise NoAttribute(f"a run has no {name}.{nearest(name, _FOR_CELLS)}", name=name, obj=self)

    def __dir__(self) -> list[str]:
        """What a cell uses; completion offers it."""
        return sorted(_FOR_CELLS)

    def _model_file(self, index: int, rank: int) -> Path:
        return self._artifact("model-", ".keras", index, rank)

    def _artifact(self, prefix: str, suffix: str, index: int, rank: int) -> Path:
        self.wait()
        prefix = f"rank-{rank}-{prefix}" if rank else prefix
        names = {event.name for event in ev.select(ev.Artifact, self.events) if event.name.startswith(prefix)}
        numbers = sorted(int(name[len(prefix) : -len(suffix)]) for name in names if name.endswith(suffix))
        if not numbers and rank and self.spec.strategy != ENSEMBLE:
            raise NotInRun(
                f"{self.name} has one model for all workers: leave rank out. Only --strategy ensemble has one for each."
            )
        if not numbers:
            messages = (notice.message for notice in ev.select(ev.Notice, self.events))
            unsaved = (message for message in messages if "cannot be saved" in message)
            raise NotInRun(next(unsaved, f"{self.name} has no model: none was fitted in the cell ({self.state})."))
        try:
            return self._file(f"{prefix}{numbers[index]}{suffix}")
        except IndexError:
            raise NotInRun(f"{self.name} has {counted(len(numbers), 'model')}: no index {index}.") from None

    def _file(self, name: str) -> Path:
        artifact = next((event for event in ev.select(ev.Artifact, self.events) if event.name == name), None)
        if artifact is not None and artifact.uri is not None:
            return self._written_by_out(artifact, artifact.uri)
        path = self._folder.file(name)
        if not path.exists():
            messages = (notice.message for notice in ev.select(ev.Notice, reversed(self.events)))
            reason = next((message for message in messages if name in message), "")
            raise NotInRun(reason or f"{name} of {self.name} is not in {path.parent}.")
        return path

    def _written_by_out(self, artifact: ev.Artifact, uri: str) -> Path:
        """The file that --out has written to `uri`, if it is on this machine's disk."""
        path = Path(urlsplit(uri).path)
        if not uri.startswith("file:") or not path.is_file() or path.stat().st_size != artifact.size:
            raise NotInRun(f"{artifact.name} of {self.name} is not on this machine: --out has written it to {uri}")
        return path

    def _last_message(self) -> str:
        messages = (state.message for state in ev.select(ev.State, reversed(self.events)))
        if self._follower is not None:
            return next(filter(None, messages), "")
        advice = f"; %ddl attach {self.name} follows it again" if self.attachable else ""
        return f"its kernel is gone{advice}"


def _damage(record: RunRecord, events: Sequence[ev.RawEvent], unreadable: int) -> str:
    """What is missing of a stored run's events; a live run's last line may be half written."""
    if not record.over or record.state == ev.LOST:
        unreadable = max(0, unreadable - 1)
    elif not any(event.state in ev.TERMINAL for event in ev.select(ev.State, events)):
        return "events.jsonl is damaged: its end is missing, and so are figures and output of that part"
    if not unreadable:
        return ""
    return f"events.jsonl is damaged: {counted(unreadable, 'line')} cannot be read and are left out"
