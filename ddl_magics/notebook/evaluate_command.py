"""`%ddl evaluate`: the metrics of a run's model over a DataFrame, which is in the notebook or in the Livy session."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

from IPython.core.error import UsageError

from ddl_magics.clusters.base import Cluster
from ddl_magics.clusters.livy import LivyCluster
from ddl_magics.clusters.scoring import training_inputs
from ddl_magics.dashboard.evaluation import Evaluation
from ddl_magics.errors import CannotScore, RunInterrupted
from ddl_magics.notebook import scoring_words
from ddl_magics.notebook.predict_command import frame_here
from ddl_magics.runs import Run

USAGE = "%ddl evaluate RUN --data DATAFRAME [--label y] [--weight w] [--features a b] [--batch-size N] [--name NEW]"
OPTIONS = ("--data", "--label", "--weight", "--features", "--batch-size", "--name")


@dataclass(frozen=True)
class Request:
    """What to evaluate the model on, and the variable that the result becomes."""

    run: str
    data: str
    name: str
    label: str | None = None
    weight: str | None = None
    features: tuple[str, ...] = ()
    batch_rows: int = 1024


def parse(arguments: Sequence[str]) -> Request:
    """UsageError, one line, where the words are no request."""
    run, given = scoring_words.read("evaluate", OPTIONS, USAGE, arguments)
    if "--data" not in given:
        raise UsageError(f"--data is missing. Write: {USAGE}")
    return Request(
        run,
        given["--data"][0],
        scoring_words.variable(given["--name"][0]) if "--name" in given else "",
        given.get("--label", [None])[0],
        given.get("--weight", [None])[0],
        tuple(scoring_words.columns(given.get("--features", ()))),
        scoring_words.batch_rows(given.get("--batch-size", [str(Request.batch_rows)])[0]),
    )


def evaluate(request: Request, run: Run, cluster: Cluster, namespace: MutableMapping[str, Any]) -> str:
    """Define the variable, RUN_evaluation if it has no name; returns a line with the metrics.

    Raises:
        UsageError: there is no such DataFrame, the model cannot be evaluated on it, or the variable is another thing's.
        RunInterrupted: the kernel was interrupted, which stops the evaluation.
    """
    name = request.name or f"{run.name}_evaluation"
    if not isinstance(namespace.get(name, None), Evaluation | None):
        raise UsageError(f"your variable {name} would be replaced: choose another with --name")
    try:
        found = _found(request, run, cluster, namespace)
    except (CannotScore, LookupError) as error:
        raise UsageError(str(error)) from None
    except KeyboardInterrupt:
        raise RunInterrupted("the evaluation has been stopped") from None
    namespace[name] = found
    return f"{name}: {found!r}"


def _found(request: Request, run: Run, cluster: Cluster, namespace: MutableMapping[str, Any]) -> Evaluation:
    label, weight = request.label or run.spec.label, request.weight or run.spec.weight
    if label is None:
        raise CannotScore(f"name the column of the labels: --label y. Write: {USAGE}")
    if not isinstance(cluster, LivyCluster):
        features, rows = list(request.features) or None, request.batch_rows
        frame = frame_here(request.data, namespace)
        function = scoring_words.transform(run, namespace)
        return run.evaluate(frame, label, features=features, transform=function, weight=weight, batch_size=rows)
    asked = {
        "data": request.data,
        "features": list(request.features) or training_inputs(run.name, run.spec, run.events),
        "label": label,
        "weight": weight,
        "batch_rows": request.batch_rows,
        "transform": run.spec.transform,
    }
    return Evaluation(cluster.evaluate(run.id, run.trained().file, asked)["found"])
