"""`%ddl evaluate`: the metrics of a model over a DataFrame, which is in the notebook or in the Livy session."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

from IPython.core.error import UsageError

from ddl_magics.clusters.base import Cluster
from ddl_magics.commands import scored_model
from ddl_magics.commands.kernel import Kernel
from ddl_magics.commands.scored_model import ScoredModel
from ddl_magics.dashboard.evaluation import Evaluation
from ddl_magics.errors import CannotScore, RunInterrupted


@dataclass(frozen=True)
class EvaluateRequest:
    """The model and the DataFrame by their names; `name` is the variable of the result, None for its default."""

    model: str
    data: str
    name: str | None
    label: str | None
    weight: str | None
    features: tuple[str, ...]
    batch_size: int


def evaluate(request: EvaluateRequest, kernel: Kernel) -> str:
    """Define the variable, RUN_evaluation or evaluation if it has no name; returns a line with the metrics.

    Raises:
        UsageError: there is no such model or DataFrame, they do not fit, or the variable holds something else.
        RunInterrupted: the kernel was interrupted, which stops the evaluation.
    """
    namespace = kernel.namespace
    _check_free(request.name or "", namespace)
    try:
        model = scored_model.find(request.model, kernel.session)
        name = request.name or (f"{model.run.name}_evaluation" if model.run else "evaluation")
        _check_free(name, namespace)
        evaluation = _evaluated(request, model, kernel.session.cluster, namespace)
    except (CannotScore, LookupError) as error:
        raise UsageError(str(error)) from None
    except KeyboardInterrupt:
        raise RunInterrupted("the evaluation has been stopped") from None
    namespace[name] = evaluation
    return f"{name}: {evaluation!r}"


def _check_free(name: str, namespace: Mapping[str, Any]) -> None:
    if not isinstance(namespace.get(name, None), Evaluation | None):
        raise UsageError(f"your variable {name} would be replaced: choose another with --name")


def _evaluated(
    request: EvaluateRequest, model: ScoredModel, cluster: Cluster, namespace: MutableMapping[str, Any]
) -> Evaluation:
    label, weight = request.label or model.label, request.weight or model.weight
    if label is None:
        raise CannotScore("name the column of the labels: --label y")
    scoring = model.request(request.data, request.features, request.batch_size)
    return Evaluation(cluster.evaluate(scoring, label, weight, namespace))
