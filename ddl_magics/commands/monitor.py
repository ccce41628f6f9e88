"""`%ddl monitor`: a stream on the cluster compares the requests to a model with the data that it was trained on."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from IPython.core.error import UsageError

from ddl_magics import store
from ddl_magics.clusters.base import Cluster
from ddl_magics.clusters.monitoring import REFERENCE_FILE, BadSource, source
from ddl_magics.clusters.scoring import description_of
from ddl_magics.commands import scoring_words
from ddl_magics.commands.run_or_path import run_or_path
from ddl_magics.errors import CannotExport, DistributedCellError
from ddl_magics.options.line import cell_of
from ddl_magics.runs import Run
from ddl_magics.runtime.run_spec import MonitorSpec, RunSpec
from ddl_magics.session.session import Session

USAGE = (
    "%ddl monitor RUN|FOLDER --log FOLDER|kafka://HOST:PORT/TOPIC [--labels DATAFRAME|FOLDER|kafka://...] [--name NEW] "
    "[--window 1m] [--late 10m] [--every 2s] [--once yes] [--checkpoint URI]"
)
OPTIONS = ("--log", "--labels", "--name", "--window", "--late", "--label-delay", "--every", "--once", "--checkpoint")

_SPAN = re.compile(r"([0-9]+(?:\.[0-9]+)?)(s|m|h|d)")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
#: The strategy of a monitor's spec, which no cell can ask for.
STRATEGY = "monitor"


@dataclass(frozen=True)
class Request:
    """What to watch. Times are in seconds."""

    model: str
    log: str
    name: str = ""
    labels: str | None = None
    window: float = 60.0
    late: float = 600.0
    label_delay: float = 86400.0
    every: float = 2.0
    once: bool = False
    checkpoint: str | None = None


def parse(arguments: Sequence[str]) -> Request:
    """UsageError, one line, where the words are no request."""
    model, given = scoring_words.read("monitor", OPTIONS, USAGE, arguments)
    if "--log" not in given:
        raise UsageError(f"--log is missing: where the requests are logged. Write: {USAGE}")

    def one(option: str, default: str) -> str:
        return given.get(option, [default])[0]

    for option in ("--log", "--labels"):
        try:
            source(option, one(option, ""))
        except BadSource as error:
            raise UsageError(f"{error}.") from None
    once = one("--once", "no")
    if once not in ("yes", "no"):
        raise UsageError("--once is yes or no: yes catches up with the log, and ends.")
    return Request(
        model,
        one("--log", ""),
        scoring_words.variable(given["--name"][0]) if "--name" in given else "",
        given.get("--labels", [None])[0],
        _seconds("--window", one("--window", "1m")),
        _seconds("--late", one("--late", "10m")),
        _seconds("--label-delay", one("--label-delay", "1d")),
        _seconds("--every", one("--every", "2s")),
        once == "yes",
        given.get("--checkpoint", [None])[0],
    )


def _seconds(option: str, text: str) -> float:
    match = _SPAN.fullmatch(text)
    if match is None or not float(match[1]):
        raise UsageError(f"{option} {text}: write a time, such as 30s, 5m, 2h or 1d.")
    return float(match[1]) * _SECONDS[match[2]]


def monitor(request: Request, session: Session, namespace: Mapping[str, Any]) -> Run:
    """Start the monitor, which is a run like a training: state, events, live view, panel.

    Raises:
        UsageError: there is no such model, it has no reference, or the cluster refuses.
    """
    reference, run = _found(request.model, session)
    cluster = session.cluster
    name = run.name if run is not None else Path(request.model.rstrip("/")).name
    asked = {
        "model": name,
        "reference": reference,
        "log": _address(request.log, cluster),
        "labels": None if request.labels is None else _labels(request.labels, cluster, namespace),
        "window": request.window,
        "delay": f"{request.late:g} seconds",
        "label_delay": f"{request.label_delay:g} seconds",
        "every": request.every,
        "once": request.once,
        "checkpoint": request.checkpoint or _checkpoint(request, reference, cluster),
        "cell": "" if run is None else cell_of(run.spec, run.name),
        "error": _error(run, reference) if run is not None else {},
    }
    spec = RunSpec(name=request.name, cell="", strategy=STRATEGY, workers=0, monitor=MonitorSpec.from_record(asked))
    return session.monitor(spec, namespace)


def _labels(word: str, cluster: Cluster, namespace: Mapping[str, Any]) -> str:
    """The name of a DataFrame as it is, a folder or topic with its whole address."""
    if word in namespace:
        return word
    if "/" in word or (cluster.in_kernel and Path(word).is_dir()):
        return _address(word, cluster)
    if cluster.in_kernel:
        raise UsageError(f"--labels {word}: there is no DataFrame of that name, and it is no folder.")
    return word  # a DataFrame of the Livy session, whose names are not known here


def _found(word: str, session: Session) -> tuple[Mapping[str, Any], Run | None]:
    """The reference of a run or of an export, and the run if it is known here."""
    found = run_or_path(word, session.find)
    if isinstance(found, Path):
        try:
            record = store.find_run(str(description_of(found).get("run", "")))
        except CannotExport as error:
            raise UsageError(f"{word} cannot be monitored: {error}") from None
        if not (found / REFERENCE_FILE).is_file():
            raise UsageError(f"{word} has no {REFERENCE_FILE}: export it again from a run with --data.")
        return _read(found / REFERENCE_FILE), None if record is None else Run.stored(record)
    try:
        path = found.reference_file()
    except DistributedCellError as error:
        raise UsageError(f"{word} cannot be monitored: {error}") from None
    except LookupError as error:
        raise UsageError(str(error)) from None
    return _read(path), found


def _read(path: Path) -> Mapping[str, Any]:
    reference: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return reference


def _address(word: str, cluster: Cluster) -> str:
    """A folder of this machine with its whole path. On a cluster, a path is what Spark makes of it there."""
    if not cluster.in_kernel or source("", word).topic or ":" in word.partition("/")[0]:
        return word
    return str(Path(word).expanduser().absolute())


def _checkpoint(request: Request, reference: Mapping[str, Any], cluster: Cluster) -> str:
    """Of the same model and log, always the same: a monitor that is started again continues."""
    key = json.dumps([reference["run"], _address(request.log, cluster), request.labels, request.window])
    name = hashlib.sha256(key.encode()).hexdigest()[:16]
    if not cluster.in_kernel:
        return f".ddl_magics/monitors/{name}"
    return f"file://{store.runs_folder().parent / 'monitors' / name}"


#: Metrics of Keras -> the error that is measured with labels, and what it is called.
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
    """Which error of a row is compared with that of the training."""
    outputs = reference["outputs"]
    classes = bool(outputs) and outputs[0]["view"] == "largest"
    history = run.history
    for metric, (kind, name) in _ERRORS.items():
        for found in (f"val_{metric}", metric):
            if history.get(found):
                if kind == "wrong" and not classes:
                    kind = "binary"
                last = float(history[found][-1])
                return {"kind": kind, "name": name, "before": 1 - last if kind in ("wrong", "binary") else last}
    return {"kind": "wrong" if classes else "absolute", "name": "wrong, share" if classes else "MAE", "before": None}
