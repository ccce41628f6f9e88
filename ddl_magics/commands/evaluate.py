"""`%ddl evaluate`: the metrics of a model over a DataFrame, which is in the notebook or in the Livy session."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

from IPython.core.error import UsageError

from ddl_magics.clusters.base import Cluster
from ddl_magics.commands import scored_model, scoring_words
from ddl_magics.commands.scored_model import ScoredModel
from ddl_magics.dashboard.evaluation import Evaluation
from ddl_magics.errors import CannotScore, RunInterrupted
from ddl_magics.session.session import Session

USAGE = (
    "%ddl evaluate RUN|PATH --data DATAFRAME [--label y] [--weight w] [--features a b] [--batch-size N] [--name NEW]"
)
OPTIONS = ("--data", "--label", "--weight", "--features", "--batch-size", "--name")


@dataclass(frozen=True)
class Request:
    """What to evaluate the model on, and the variable that the result becomes."""

    model: str
    data: str
    name: str
    label: str | None = None
    weight: str | None = None
    features: tuple[str, ...] = ()
    batch_rows: int = 1024


def parse(arguments: Sequence[str]) -> Request:
    """UsageError, one line, where the words are no request."""
    model, given = scoring_words.read("evaluate", OPTIONS, USAGE, arguments)
    if "--data" not in given:
        raise UsageError(f"--data is missing. Write: {USAGE}")
    return Request(
        model,
        given["--data"][0],
        scoring_words.variable(given["--name"][0]) if "--name" in given else "",
        given.get("--label", [None])[0],
        given.get("--weight", [None])[0],
        tuple(scoring_words.columns(given.get("--features", ()))),
        scoring_words.batch_rows(given.get("--batch-size", [str(Request.batch_rows)])[0]),
    )


def evaluate(request: Request, session: Session, namespace: MutableMapping[str, Any]) -> str:
    """Define the variable, RUN_evaluation or evaluation if it has no name; returns a line with the metrics.

    Raises:
        UsageError: there is no such model or DataFrame, they do not fit, or the variable is another thing's.
        RunInterrupted: the kernel was interrupted, which stops the evaluation.
    """
    _check_free(request.name, namespace)
    try:
        model = scored_model.find(request.model, session)
        name = request.name or (f"{model.run.name}_evaluation" if model.run else "evaluation")
        _check_free(name, namespace)
        found = _found(request, model, session.cluster, namespace)
    except (CannotScore, LookupError) as error:
        raise UsageError(str(error)) from None
    except KeyboardInterrupt:
        raise RunInterrupted("the evaluation has been stopped") from None
    namespace[name] = found
    return f"{name}: {found!r}"


def _check_free(name: str, namespace: Mapping[str, Any]) -> None:
    if not isinstance(namespace.get(name, None), Evaluation | None):
        raise UsageError(f"your variable {name} would be replaced: choose another with --name")


def _found(request: Request, model: ScoredModel, cluster: Cluster, namespace: MutableMapping[str, Any]) -> Evaluation:
    label, weight = request.label or model.label, request.weight or model.weight
    if label is None:
        raise CannotScore(f"name the column of the labels: --label y. Write: {USAGE}")
    scoring = model.request(request.data, request.features, request.batch_rows)
    return Evaluation(cluster.evaluate(scoring, label, weight, namespace))
