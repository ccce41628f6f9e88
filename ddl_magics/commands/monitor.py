"""`%ddl monitor`: a stream on the cluster compares the requests to a model with the data that it was trained on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from IPython.core.error import UsageError

from ddl_magics import store
from ddl_magics.clusters.cluster import Cluster
from ddl_magics.clusters.scoring import description_of
from ddl_magics.commands.kernel import Kernel
from ddl_magics.commands.run_or_path import run_or_path
from ddl_magics.errors import CannotExport, DistributedCellError
from ddl_magics.options.line import cell_of
from ddl_magics.runs import Run
from ddl_magics.runtime.monitoring import sources
from ddl_magics.runtime.monitoring.reference_check import MAX_BYTES, checked
from ddl_magics.runtime.monitoring.sources import REFERENCE_FILE, BadSource
from ddl_magics.runtime.run_spec import MonitorSpec, RunSpec
from ddl_magics.session.session import Session
from ddl_magics.store.files import make_private, read_bounded

#: The strategy of a monitor's spec; cells cannot choose it.
STRATEGY = "monitor"


def read_address(option: str, text: str) -> str:
    """The value of --log or --labels."""
    try:
        sources.read(option, text)
    except BadSource as error:
        raise UsageError(f"{error}.") from None
    return text


def monitor(
    kernel: Kernel,
    model: str,
    log: str,
    labels: str | None,
    name: str | None,
    window: float,
    late: float,
    label_delay: float,
    every: float,
    once: bool,
    checkpoint: str | None,
) -> str:
    """Start the monitor, which is a run like a training: state, events, live view, panel; define its variable.

    Times are in seconds.

    Raises:
        UsageError, LookupError: there is no such model, it has no reference, or the cluster refuses.
    """
    session, namespace, cluster = kernel.session, kernel.namespace, kernel.session.cluster
    reference, trained = _reference(model, session)
    log = _address(log, cluster)
    watched = {
        "model": trained.name if trained is not None else Path(model.rstrip("/")).name,
        "reference": reference,
        "log": log,
        "labels": None if labels is None else _labels(labels, cluster, namespace),
        "window": window,
        "delay": f"{late:g} seconds",
        "label_delay": f"{label_delay:g} seconds",
        "every": every,
        "once": once,
        "checkpoint": checkpoint or _checkpoint([reference["run"], log, labels, window], cluster),
        "cell": "" if trained is None else cell_of(trained.spec, trained.name),
        "error": {} if trained is None else _error(trained, reference),
    }
    spec = RunSpec(name=name or "", cell="", strategy=STRATEGY, workers=0, monitor=MonitorSpec.from_record(watched))
    run = session.monitor(spec, namespace)
    namespace[run.name] = run
    if kernel.display.show_live(run):
        return ""
    return f"{run.name} watches the log; {run.name}.stop() or %ddl stop {run.name} ends it"


def _labels(labels: str, cluster: Cluster, namespace: Mapping[str, Any]) -> str:
    """The full address of a folder or topic; a DataFrame's name stays as it is."""
    if labels in namespace:
        return labels
    if "/" in labels or (cluster.in_kernel and Path(labels).is_dir()):
        return _address(labels, cluster)
    if cluster.in_kernel:
        raise UsageError(f"--labels {labels}: there is no DataFrame of that name, and it is no folder.")
    return labels  # a DataFrame of the Livy session: its names cannot be checked here


def _reference(model_name: str, session: Session) -> tuple[Mapping[str, Any], Run | None]:
    """The reference of a run or of an export, and the run if this machine has it."""
    model = run_or_path(model_name, session.find)
    if isinstance(model, Path):
        try:
            record = store.find_run(str(description_of(model).get("run", "")))
        except CannotExport as error:
            raise UsageError(f"{model_name} cannot be monitored: {error}") from None
        if not (model / REFERENCE_FILE).is_file():
            raise UsageError(f"{model_name} has no {REFERENCE_FILE}: export it again from a run with --data.")
        return _read(model / REFERENCE_FILE), None if record is None else Run.stored(record)
    try:
        path = model.reference_file()
    except DistributedCellError as error:
        raise UsageError(f"{model_name} cannot be monitored: {error}") from None
    return _read(path), model


def _read(path: Path) -> Mapping[str, Any]:
    """The reference in a file, which may be a stranger's."""
    try:
        return checked(json.loads(read_bounded(path, MAX_BYTES)))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError):
        raise UsageError(f"{path} is damaged, or of another version: train the model again, and export it.") from None


def _address(address: str, cluster: Cluster) -> str:
    """Make a path on this machine absolute. Spark resolves the paths of a cluster, so they stay as they are."""
    if not cluster.in_kernel or sources.read("", address).topic or ":" in address.partition("/")[0]:
        return address
    return str(Path(address).expanduser().absolute())


def _checkpoint(key: list[Any], cluster: Cluster) -> str:
    """The default checkpoint. key: the model, log, labels and window; the state of no other stream fits to it."""
    name = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]
    if not cluster.in_kernel:
        return f".ddl_magics/monitors/{name}"
    # Spark makes it with the modes of any folder, and it has inputs and outputs of requests.
    return f"file://{make_private(store.runs_folder().with_name('monitors') / name)}"


#: Keras metric -> kind and name of the error that is computed from labels.
_ERRORS = {
    "accuracy": ("wrong", "wrong, share"),
    "sparse_categorical_accuracy": ("wrong", "wrong, share"),
    "binary_accuracy": ("binary", "wrong, share"),
    "mape": ("percent", "MAPE, %"),
    "mean_absolute_percentage_error": ("percent", "MAPE, %"),
    "mae": ("absolute", "MAE"),
    "mean_absolute_error": ("absolute", "MAE"),
}


def _error(run: Run, reference: Mapping[str, Any]) -> dict[str, Any]:
    """The error that is computed from labels, with its value in training as `before`."""
    outputs = reference["outputs"]
    classes = bool(outputs) and outputs[0]["view"] == "largest"
    history = run.history
    for metric, (kind, name) in _ERRORS.items():
        for key in (f"val_{metric}", metric):
            if history.get(key):
                if kind == "wrong" and not classes:
                    kind = "binary"
                value = float(history[key][-1])
                return {"kind": kind, "name": name, "before": 1 - value if kind in ("wrong", "binary") else value}
    return {"kind": "wrong" if classes else "absolute", "name": "wrong, share" if classes else "MAE", "before": None}
