"""A model is evaluated on a DataFrame: partitions find states and counts, the driver adds these up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterable, Mapping, Sequence

import numpy as np

from ..data import by_value
from ..data.columns import DataError, check_column, describe, quoted
from ..data.roles import Choice, TensorColumns, indices, label_texts, used_as
from ..spark import jvm_gateway, spark_error
from . import evaluator
from .predictor import FRAME, bounded, check_frame, inputs_of, session_of
from .tasks import Tasks
from .windows import with_labelled_windows

if TYPE_CHECKING:
    from ..data.records import DataFrame, Features, Inputs
    from ..data.transform import Transform
    from .records import Evaluated, Labels, OutputCounts, Partial, Plan

_LABEL, _WEIGHT = "label", "weight"


def evaluate(
    frame: DataFrame,
    model: bytes,
    features: Sequence[str] | Inputs,
    *,
    label: str,
    weight: str | None,
    batch_rows: int,
    custom_objects: Mapping[str, Any] | None = None,
    transform: Transform | None = None,
) -> Evaluated:
    """The model's metrics over all rows of a DataFrame, which stay with the executors.

    Args:
        frame: of Spark.
        model: the bytes of a `.keras` file.
        features: as `Predictor` takes them.
        label: a column, or `y1=a,y2=b`, as --label takes it.
        weight: a column, as --weight takes it.
        batch_rows: rows that the model is called with at once.
        custom_objects: as Keras' `load_model` takes them.
        transform: of `predictor.prepared`.

    Raises `DataError`, one line.
    """
    check_frame(frame)
    if batch_rows < 1:
        raise DataError("batch_size must be 1 or more, not %d" % batch_rows)
    inputs = inputs_of(frame, features, transform)
    if "window" in inputs:
        names = _choice(frame, label, weight).names()
        frame, inputs, read = with_labelled_windows(frame, FRAME, inputs, names)
    else:
        read = [column["name"] for column in inputs["columns"]]
    batch_rows = bounded(batch_rows, inputs["shapes"] or [])
    known, labels = _with_labels(frame, inputs, label, weight)
    names = [*read, *(column["name"] for column in known["columns"][len(read) :])]
    plan: Plan = {"inputs": known, "places": list(range(len(names))), "batch_rows": batch_rows, "lenient": False}
    rows = frame.select(*map(quoted, names)).rdd
    sc = session_of(frame).sparkContext
    tasks, shipped = Tasks(sc, model, custom_objects or {}, compiled=True), by_value.functions_of(evaluator)
    get, batches = tasks.getter(), tasks.batches(plan=plan, labels=labels)
    partial, or_problem, outputs_of = shipped["partial"], shipped["or_problem"], shipped["outputs_of"]
    result, gathered_result = shipped["result"], shipped["gathered_result"]

    texts = [column["name"] for column in known["columns"][len(inputs["columns"]) :] if column["dtype"] == "S"]
    hint = "; the label %s is text: index it, as with StringIndexer of pyspark.ml" % texts[0] if texts else ""
    found: list[Partial] = _collect(
        rows.mapPartitions(lambda part: or_problem(partial(part, get, batches, batch_rows))), hint
    )
    some = [part for part in found if part["rows"]]
    if not some:
        raise DataError("%s has no rows to evaluate the model on" % FRAME)
    states = [sum(variable) for variable in zip(*(part["states"] for part in some))]
    metrics: dict[str, Any] = _collect(
        sc.parallelize([(states, some[0]["sample"])], 1).mapPartitions(lambda part: result(part, get))
    )[0]
    if some[0]["gathered"]:
        # Shuffled, as without that one task would call the model for all rows.
        outputs = rows.mapPartitionsWithIndex(
            lambda index, part: outputs_of(index, part, get, batches, batch_rows)
        ).repartition(1)
        metrics.update(_collect(outputs.mapPartitions(lambda part: gathered_result(part, get, batch_rows)))[0])
    return {"metrics": metrics, "rows": sum(part["rows"] for part in some), "outputs": _outputs(some)}


def _choice(frame: DataFrame, label: str, weight: str | None) -> Choice:
    """The columns of label and weight."""
    columns = [str(name) for name in frame.columns]
    choice = Choice((), [TensorColumns.read(text, columns) for text in label_texts(label, columns)], weight)
    for name in choice.names():
        check_column(_WEIGHT if name == weight else _LABEL, name, FRAME, columns)
    return choice


def _with_labels(frame: DataFrame, known: Inputs, label: str, weight: str | None) -> tuple[Inputs, Labels]:
    """`known` with the columns and the tensors of label and weight behind those of the features."""
    choice = _choice(frame, label, weight)
    described = [describe(FRAME, frame, name) for name in choice.names()]
    arranged = choice.arrange(described)
    first_column, first_tensor = len(known["columns"]), len(known["tensors"])

    def moved(shown: Features) -> Features:
        return shown + first_tensor if isinstance(shown, int) else {k: v + first_tensor for k, v in shown.items()}

    dtypes = [np.result_type(*(np.dtype(described[i]["dtype"]) for i in own)) for own in arranged["tensors"]]
    more: Inputs = {
        **known,
        "columns": [*known["columns"], *described],
        "tensors": [*known["tensors"], *([first_column + i for i in own] for own in arranged["tensors"])],
        "uses": [*known["uses"], *(used_as(d, len(own) > 1) for d, own in zip(dtypes, arranged["tensors"]))],
    }
    assert arranged["label"] is not None and indices(arranged["label"])
    own_weight = arranged["weight"]
    return more, {
        "label": moved(arranged["label"]),
        "weight": None if own_weight is None else own_weight + first_tensor,
    }


def _collect(rdd: Any, hint: str = "") -> list[Any]:
    try:
        found: list[Any] = jvm_gateway.collect_until_interrupted(rdd, "evaluation of a model")
    except Exception as error:  # pyspark turns some of Java's exceptions into its own, and others not
        raise DataError("%s cannot be evaluated: %s" % (FRAME, spark_error.cause(error))) from error
    problem = next((each for each in found if isinstance(each, str)), None)
    if problem is not None:
        raise DataError("%s cannot be evaluated: %s%s" % (FRAME, spark_error.cause(problem), hint))
    return found


def _outputs(found: Iterable[Partial]) -> dict[str, OutputCounts]:
    sums: dict[str, OutputCounts] = {}
    for part in found:
        for name, counts in part["outputs"].items():
            sums[name] = counts if name not in sums else evaluator.added(sums[name], counts)
    return sums
