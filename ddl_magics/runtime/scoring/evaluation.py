"""Evaluation of a model on a DataFrame: partitions compute metric states and counts, the driver adds them up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterable, Mapping, Sequence

from ..data import by_value
from ..data.columns import DataError, check_column, describe_columns, selected, session_of
from ..data.roles import Choice, TensorColumns, indices, label_texts, uses_of
from ..spark import jvm_gateway, spark_error
from . import evaluator
from .predictor import FRAME, bounded, check_frame, inputs_of
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
    code_python: str | None = None,
    transform: Transform | None = None,
) -> Evaluated:
    """Compute the model's metrics over all rows of a DataFrame. The rows stay on the executors.

    Args:
        frame: of Spark.
        model: the bytes of a `.keras` file.
        features: as `Predictor` takes them.
        label: a column, or `y1=a,y2=b`, as --label takes it.
        weight: a column, as --weight takes it.
        batch_rows: rows that the model is called with at once.
        custom_objects, code_python: as `lambda_layers.load` takes them.
        transform: of `predictor.prepared`.

    Raises:
        DataError: one line.
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
    labelled, labels = _with_labels(frame, inputs, label, weight)
    names = [*read, *(column["name"] for column in labelled["columns"][len(read) :])]
    plan: Plan = {"inputs": labelled, "indices": list(range(len(names))), "batch_rows": batch_rows, "lenient": False}
    rows = selected(frame, names).rdd
    sc = session_of(frame).sparkContext
    tasks = Tasks(sc, model, custom_objects or {}, code_python, compiled=True)
    shipped = by_value.functions_of(evaluator)
    get, batches = tasks.getter(), tasks.batches(plan=plan, labels=labels)
    make_partial, or_problem, outputs_of = shipped["partial"], shipped["or_problem"], shipped["outputs_of"]
    result, gathered_result = shipped["result"], shipped["gathered_result"]

    texts = [column["name"] for column in labelled["columns"][len(inputs["columns"]) :] if column["dtype"] == "S"]
    hint = "; the label %s is text: index it, as with StringIndexer of pyspark.ml" % texts[0] if texts else ""
    partials: list[Partial] = _collect(
        rows.mapPartitions(lambda partition: or_problem(make_partial(partition, get, batches, batch_rows, label))), hint
    )
    nonempty = [partial for partial in partials if partial["rows"]]
    if not nonempty:
        raise DataError("%s has no rows to evaluate the model on" % FRAME)
    states = [sum(variable) for variable in zip(*(partial["states"] for partial in nonempty))]
    metrics: dict[str, Any] = _collect(
        sc.parallelize([(states, nonempty[0]["sample"])], 1).mapPartitions(lambda partition: result(partition, get))
    )[0]
    if nonempty[0]["gathered"]:
        # Shuffle: otherwise a single task would call the model for all rows.
        outputs = rows.mapPartitionsWithIndex(
            lambda index, partition: outputs_of(index, partition, get, batches, batch_rows)
        ).repartition(1)
        gathered = outputs.mapPartitions(lambda partition: gathered_result(partition, get, batch_rows))
        metrics.update(_collect(gathered)[0])
    nan = sorted({output for partial in nonempty for output in partial["nan"]})
    return {
        "metrics": metrics,
        "rows": sum(partial["rows"] for partial in nonempty),
        "outputs": _outputs(nonempty),
        "notices": [evaluator.of_nan(nan, "and so will metrics")] if nan else [],
    }


def _choice(frame: DataFrame, label: str, weight: str | None) -> Choice:
    """The columns of label and weight."""
    columns = [str(name) for name in frame.columns]
    choice = Choice((), [TensorColumns.read(text, columns) for text in label_texts(label, columns)], weight)
    for name in choice.names():
        check_column(_WEIGHT if name == weight else _LABEL, name, FRAME, columns)
    return choice


def _with_labels(frame: DataFrame, inputs: Inputs, label: str, weight: str | None) -> tuple[Inputs, Labels]:
    """`inputs` with the columns and the tensors of label and weight behind those of the features."""
    choice = _choice(frame, label, weight)
    described = describe_columns(FRAME, frame, choice.names())
    for column in described:
        if column["name"] in inputs.get("padding", {}) and column["depth"] == 1:
            column["pad"] = inputs["padding"][column["name"]]
    arranged = choice.arrange(described)
    first_column, first_tensor = len(inputs["columns"]), len(inputs["tensors"])

    def shifted(features: Features) -> Features:
        if isinstance(features, int):
            return features + first_tensor
        return {name: index + first_tensor for name, index in features.items()}

    labelled: Inputs = {
        **inputs,
        "columns": [*inputs["columns"], *described],
        "tensors": [*inputs["tensors"], *([first_column + i for i in columns] for columns in arranged["tensors"])],
        "uses": [*inputs["uses"], *uses_of(described, arranged["tensors"])],
    }
    assert arranged["label"] is not None and indices(arranged["label"])
    weight_tensor = arranged["weight"]
    return labelled, {
        "label": shifted(arranged["label"]),
        "weight": None if weight_tensor is None else weight_tensor + first_tensor,
    }


def _collect(rdd: Any, hint: str = "") -> list[Any]:
    try:
        results: list[Any] = jvm_gateway.collect_until_interrupted(rdd, "evaluation of a model")
    except Exception as error:  # pyspark turns some of Java's exceptions into its own, and others not
        raise DataError("%s cannot be evaluated: %s" % (FRAME, spark_error.cause(error))) from error
    problem = next((result for result in results if isinstance(result, str)), None)
    if problem is not None:
        raise DataError("%s cannot be evaluated: %s%s" % (FRAME, spark_error.cause(problem), hint))
    return results


def _outputs(partials: Iterable[Partial]) -> dict[str, OutputCounts]:
    sums: dict[str, OutputCounts] = {}
    for partial in partials:
        for name, counts in partial["outputs"].items():
            sums[name] = counts if name not in sums else evaluator.added(sums[name], counts)
    return sums
