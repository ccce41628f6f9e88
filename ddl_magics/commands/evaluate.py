"""`%ddl evaluate`: the metrics of a model over a DataFrame, which is in the notebook or in the Livy session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from IPython.core.error import UsageError

from ddl_magics.commands import scored_model
from ddl_magics.commands.kernel import Kernel
from ddl_magics.dashboard.evaluation import Evaluation
from ddl_magics.errors import CannotScore, RunInterrupted


def evaluate(
    kernel: Kernel,
    model: str,
    data: str,
    label: str | None,
    weight: str | None,
    features: tuple[str, ...],
    batch_size: int,
    name: str | None,
) -> str:
    """Define the variable `name`, by default RUN_evaluation or evaluation; returns a line with the metrics.

    Raises:
        UsageError, CannotScore, LookupError: there is no such model or DataFrame, they do not fit, or the variable
            holds something else.
        RunInterrupted: the kernel was interrupted, which stops the evaluation.
    """
    namespace = kernel.namespace
    _check_free(name or "", namespace)
    try:
        scored = scored_model.find(model, kernel.session)
        name = name or (f"{scored.run.name}_evaluation" if scored.run else "evaluation")
        _check_free(name, namespace)
        label, weight = label or scored.label, weight or scored.weight
        if label is None:
            raise CannotScore("name the column of the labels: --label y")
        scoring = scored.request(data, features, batch_size)
        evaluation = Evaluation(kernel.session.cluster.evaluate(scoring, label, weight, namespace))
    except KeyboardInterrupt:
        raise RunInterrupted("the evaluation has been stopped") from None
    namespace[name] = evaluation
    return f"{name}: {evaluation!r}"


def _check_free(name: str, namespace: Mapping[str, Any]) -> None:
    if not isinstance(namespace.get(name, None), Evaluation | None):
        raise UsageError(f"your variable {name} would be replaced: choose another with --name")
