"""Evaluation on Spark's executors: the metric states and the counts of a partition's rows.

States of Keras' own metrics add up: their sum over the partitions is the state that one process would have. Other
metrics may not add up, so a single task updates them with the outputs of all rows.

Travels to executors by value (`by_value.py`), and needs numpy, TensorFlow and Keras.
"""

from __future__ import annotations

import itertools
import pickle
import traceback
import types
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, Iterator, List, Mapping, Tuple

import numpy as np

if TYPE_CHECKING:
    from .records import OutputCounts, Partial

#: A model or a metric of Keras 2 or 3.
Model = Any
Metric = Any
#: (features, label, weight) of some rows, each an array or a dict of arrays; the weight may be None.
Batch = Tuple[Any, Any, Any]
#: ((index of the partition, number of the batch), label, output, weight)
Gathered = Tuple[Tuple[int, int], Any, Any, Any]
#: The batches of rows for a model: `scorer.labelled`.
Batches = Callable[[Iterable[Any], Model], Iterator[Batch]]

#: Bins of scores 0..1 for the ROC curve. A score above 0.5 predicts the class.
BINS = 1000
#: An output with more classes gets no confusion matrix, or no ROC curves.
MOST_CLASSES, MOST_CURVES = 1000, 50


def partial(
    rows: Iterable[Any], get: Callable[[], Model], batches: Batches, batch_rows: int, label: str
) -> Iterator[Partial]:
    """Evaluate a partition: what its rows add to the metric states of `get()` and to the counts.

    batch_rows: rows of a full batch of `batches`. label: the column, where there is one.
    """
    totals: Partial = {"rows": 0, "states": [], "gathered": [], "sample": None, "outputs": {}, "nan": []}
    rows, initial = iter(rows), []
    first_row = list(itertools.islice(rows, 1))
    if not first_row:
        yield totals
        return
    rows, model = itertools.chain(first_row, rows), get()
    for x, y, weight in batches(rows, model):
        totals["nan"] = sorted({*totals["nan"], *holding_nan(y, label)})
        try:
            if not totals["rows"]:
                sample = first_rows((x, y, weight), 1)
                totals["sample"] = pickle.dumps(sample)  # the driver may have no TensorFlow
                initial = begin(model, sample)
                totals["gathered"] = to_gather(model)
            outputs = step(model, x, y, weight, batch_rows)
        except Exception as error:
            if totals["nan"]:  # TensorFlow names the integer that its cast makes of NaN
                raise ValueError(of_nan(totals["nan"], "and so the model cannot be evaluated")) from error
            raise
        size = len(first_array(y))
        totals["rows"] += size
        for name, values, labels in pairs(model, outputs, y):
            counts = count(values, labels)
            before = totals["outputs"].get(name)
            totals["outputs"][name] = counts if before is None else added(before, counts)
    totals["states"] = [state - start for state, start in zip(states(model), initial)]
    yield totals


def holding_nan(labels: Any, label: str) -> List[str]:
    """The names of labels that hold NaN: of outputs, or `label`, the only one."""
    arrays = labels if isinstance(labels, dict) else {label: labels}
    arrays = {name: np.asarray(values) for name, values in arrays.items()}
    return [name for name, array in arrays.items() if array.dtype.kind == "f" and np.isnan(array).any()]


def of_nan(labels: List[str], consequence: str) -> str:
    """What labels with NaN do, in the words of training. labels: of `holding_nan`."""
    return "the label %s holds NaN, %s: fill these rows, or leave them out" % (", ".join(labels), consequence)


def or_problem(results: Iterator[Any]) -> Iterator[Any]:
    """Yield `results`, and an error as text: Spark would retry a task that raises, and load the model again."""
    try:
        yield from results
    except Exception as error:
        yield "".join(traceback.format_exception_only(type(error), error))


def result(payloads: Iterable[Tuple[List[np.ndarray], bytes]], get: Callable[[], Model]) -> Iterator[Dict[str, Any]]:
    """{name: value} of the model's metrics with these states. A payload: (states, sample) as in `records.Partial`."""
    for added_states, sample in payloads:
        model = get()
        initial = begin(model, pickle.loads(sample))
        for variable, start, added_state in zip(variables(model), initial, added_states):
            variable.assign((start + added_state).astype(np.asarray(variable).dtype))
        yield values_of(model.get_metrics_result() if is_compiled(model) else {})


def outputs_of(
    index: int, rows: Iterable[Any], get: Callable[[], Model], batches: Batches, batch_rows: int
) -> Iterator[Gathered]:
    """The outputs of a partition's rows, for `gathered_result`."""
    model = get()
    for number, (x, y, weight) in enumerate(batches(rows, model)):
        if number == 0:
            begin(model, first_rows((x, y, weight), 1))
        yield (index, number), y, step(model, x, y, weight, batch_rows), weight


def gathered_result(records: Iterable[Gathered], get: Callable[[], Model], batch_rows: int) -> Iterator[Dict[str, Any]]:
    """{name: value} of the compiled metrics, updated with all rows in their order, `batch_rows` at a time."""
    import tensorflow as tf

    ordered = sorted(records, key=lambda record: record[0])
    model = get()
    y, outputs, weight = (joined([record[index] for record in ordered]) for index in (1, 2, 3))
    set_floatx(model)
    for metric in model.metrics:
        metric.reset_state()
    for start in range(0, len(first_array(y)), batch_rows):
        batch = tf.nest.map_structure(
            lambda array: tf.constant(array[start : start + batch_rows]),  # noqa: B023 - called at once
            (y, outputs),
        )
        batch_weight = None if weight is None else tf.constant(weight[start : start + batch_rows])
        model.compute_metrics(None, batch[0], batch[1], batch_weight)
    yield values_of(compiled_results(model))


# -- the model's step


def set_floatx(model: Model) -> None:
    """Metrics are made in Keras' floatx, which is that of the model's training."""
    import keras

    weights = [weight for weight in model.weights if hasattr(weight, "dtype")]  # no vocabularies of Keras 2
    names = [str(getattr(weight.dtype, "name", weight.dtype)) for weight in weights]
    keras.backend.set_floatx(next((name for name in names if name in ("float32", "float64")), "float32"))


def begin(model: Model, sample: Batch) -> List[np.ndarray]:
    """Make the variables of all metrics by a step with one row, and reset them: their initial states."""
    set_floatx(model)
    if is_compiled(model):
        test_step(model, *sample)
    for metric in model.metrics:
        metric.reset_state()
    return states(model)


def is_compiled(model: Model) -> bool:
    """Whether the model has a loss. A model trained by a custom loop has none."""
    return bool(getattr(model, "compiled", getattr(model, "_is_compiled", False)))


def step(model: Model, x: Any, y: Any, weight: Any, batch_rows: int) -> Any:
    """Update the metrics with a batch and return its outputs. The step of a full batch is traced once per model.

    A shorter batch runs eagerly: each length would need a trace, and in a trace of unknown length Keras weighs a short
    batch like a full one in the losses of several outputs.
    """
    import tensorflow as tf

    traced_step = model.__dict__.get("_ddl_evaluation_step")
    if traced_step is None:
        traced_step = tf.function(lambda x, y, weight: test_step(model, x, y, weight), autograph=False)
        object.__setattr__(model, "_ddl_evaluation_step", traced_step)
    outputs = traced_step(x, y, weight) if len(first_array(y)) == batch_rows else test_step(model, x, y, weight)
    return tf.nest.map_structure(lambda tensor: tensor.numpy(), outputs)


def test_step(model: Model, x: Any, y: Any, weight: Any) -> Any:
    """Run the model's `test_step`. Returns its outputs, or () if it does not call `compute_metrics`."""
    import tensorflow as tf

    x, y, weight = tf.nest.map_structure(
        lambda value: value if value is None or tf.is_tensor(value) else tf.convert_to_tensor(value), (x, y, weight)
    )
    if not is_compiled(model):
        return model(x, training=False)
    captured_outputs: List[Any] = [()]
    original = model.compute_metrics

    def compute_metrics(*args: Any, **kwargs: Any) -> Any:
        captured_outputs[0] = kwargs["y_pred"] if "y_pred" in kwargs else args[2]
        return original(*args, **kwargs)

    object.__setattr__(model, "compute_metrics", compute_metrics)
    try:
        model.test_step((x, y) if weight is None else (x, y, weight))
    finally:
        object.__delattr__(model, "compute_metrics")
    return captured_outputs[0]


# -- metrics


def metrics(model: Model) -> List[Metric]:
    """The model's metrics, those of `compile` one by one."""
    flat: List[Metric] = []
    for metric in model.metrics:
        flat.extend(metric.metrics if hasattr(metric, "_flat_metrics") else [metric])
    return flat


def compiled_metrics(model: Model) -> List[Metric]:
    """Those of `compile`."""
    container = getattr(model, "_compile_metrics", None)  # of Keras 3
    if container is None:
        container = getattr(model, "compiled_metrics", None)  # of Keras 2
    return list(getattr(container, "metrics", None) or ())


def to_gather(model: Model) -> List[str]:
    """The names of metrics that may not add up. ValueError where they are not of `compile`."""
    unknown, compiled = [metric for metric in metrics(model) if not adds_up(metric)], compiled_metrics(model)
    for metric in unknown:
        if not any(metric is compiled_metric for compiled_metric in compiled):
            raise ValueError(
                "the metric %r of the model's own test_step may not add up over partitions: give it to compile, or "
                "write it with keras.metrics.Mean" % metric.name
            )
    return [metric.name for metric in unknown]


def adds_up(metric: Metric) -> bool:
    """Whether a metric is Keras' own, averages only a Keras function, and does not reduce over rows.

    The same rule as in whole_metrics.py, which executors cannot import.
    """
    function, axis = getattr(metric, "_fn", None), getattr(metric, "_fn_kwargs", {}).get("axis")
    symbols = [type(metric)] if function is None else [type(metric), function]
    plain = function is None or isinstance(function, types.FunctionType)
    axes = axis if isinstance(axis, (list, tuple)) else [axis]
    along_rows = any(isinstance(dimension, int) and (dimension == 0 or dimension < -1) for dimension in axes)
    return plain and not along_rows and all(str(symbol.__module__).partition(".")[0] == "keras" for symbol in symbols)


def variables(model: Model) -> List[Any]:
    """Those of all metrics, in an order that is the same in each process."""
    return [variable for metric in metrics(model) for variable in metric.variables]


def states(model: Model) -> List[np.ndarray]:
    """The values of `variables`; floats as float64, as they are added up over partitions."""
    arrays = [np.asarray(variable) for variable in variables(model)]
    return [array.astype(np.float64) if array.dtype.kind == "f" else array for array in arrays]


def compiled_results(model: Model) -> Mapping[str, Any]:
    """{name: tensor} of the metrics of `compile`."""
    container = getattr(model, "_compile_metrics", None)  # of Keras 3
    if container is not None:
        return dict(container.result())
    return {metric.name: metric.result() for metric in compiled_metrics(model)}


def values_of(results: Mapping[str, Any]) -> Dict[str, Any]:
    """Numbers, or lists of them where a metric has a value for each class."""
    return {name: np.asarray(value).tolist() for name, value in results.items()}


# -- rows


def first_array(value: Any) -> Any:
    """An array, or the first of a dict."""
    return next(iter(value.values())) if isinstance(value, dict) else value


def first_rows(value: Any, rows: int) -> Any:
    """The first rows of arrays and ragged tensors in tuples and dicts."""
    if isinstance(value, dict):
        return {name: first_rows(array, rows) for name, array in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(first_rows(array, rows) for array in value)
    return value if value is None else (value if hasattr(value, "row_lengths") else np.asarray(value))[:rows]


def joined(structures: List[Any]) -> Any:
    """Arrays in dicts, tuples and lists, one after the other."""
    template = structures[0]
    if template is None:
        return None
    if isinstance(template, dict):
        return {name: joined([structure[name] for structure in structures]) for name in template}
    if isinstance(template, (tuple, list)):
        return type(template)(joined([structure[index] for structure in structures]) for index in range(len(template)))
    return np.concatenate(structures)


def pairs(model: Model, outputs: Any, y: Any) -> Iterator[Tuple[str, np.ndarray, np.ndarray]]:
    """(name, values, labels) of each output that has labels of its own; the name of the only one is ""."""
    if isinstance(outputs, (tuple, list)):
        names = list(getattr(model, "output_names", None) or map(str, range(len(outputs))))
        outputs = dict(zip(names, outputs))
    if not isinstance(outputs, dict):
        outputs, y = {"": outputs}, {"": first_array(y)}
    if not isinstance(y, dict):
        return
    for name, values in outputs.items():
        if name in y and isinstance(values, np.ndarray) and values.dtype.kind == "f":
            labels = np.asarray(y[name])
            if labels.dtype.kind in "iufb":
                yield name, values, labels


# -- counts


def count(values: np.ndarray, labels: np.ndarray) -> OutputCounts:
    """The counts of an output. values: of shape (rows, ...). labels: of the same shape, or classes of shape (rows,)."""
    values = values.reshape(len(values)) if values.shape[1:] == (1,) else values
    if labels.size == len(labels):
        labels = labels.reshape(len(labels))
    counts: OutputCounts = {"errors": None, "confusion": None, "scores": None, "classes": 0}
    if values.shape == labels.shape:
        counts["errors"] = errors(values, labels)
    if values.ndim == 1 and values.shape == labels.shape and np.isin(labels, (0, 1)).all():
        counts["classes"] = 2
        if within_one(values):
            truth = labels.astype(np.int64)
            counts["scores"] = np.stack([bins(values, truth == 1)])
            counts["confusion"] = confusion(truth, (values > 0.5).astype(np.int64), 2)
    elif values.ndim == 2 and 2 <= values.shape[1] <= MOST_CLASSES:
        classes = values.shape[1]
        label_classes = class_of(labels, classes)
        if label_classes is not None:
            counts["classes"] = classes
            counts["confusion"] = confusion(label_classes, values.argmax(axis=1), classes)
            if classes <= MOST_CURVES and within_one(values):
                counts["scores"] = np.stack([bins(values[:, k], label_classes == k) for k in range(classes)])
    return counts


def errors(values: np.ndarray, labels: np.ndarray) -> List[float]:
    """As `OutputCounts` has them."""
    targets = labels.astype(np.float64).ravel()
    off = np.abs(values.astype(np.float64).ravel() - targets)
    present = targets != 0
    relative = off[present] / np.abs(targets[present])
    return [float(off.size), float(off.sum()), float((off**2).sum()), float(present.sum()), float(relative.sum())]


def within_one(values: np.ndarray) -> bool:
    """Whether they can be probabilities."""
    return bool(((values >= 0) & (values <= 1)).all())


def class_of(labels: np.ndarray, classes: int) -> np.ndarray | None:
    """The class of each row, of numbers or of one-hot rows; None where the labels are neither."""
    if labels.ndim == 2 and labels.shape[1] == classes:
        hot = np.isin(labels, (0, 1)).all() and (labels.sum(axis=1) == 1).all()
        return labels.argmax(axis=1) if hot else None
    if labels.ndim != 1 or (labels != np.floor(labels)).any() or (labels < 0).any() or (labels >= classes).any():
        return None
    return labels.astype(np.int64)


def confusion(truth: np.ndarray, predicted: np.ndarray, classes: int) -> Dict[int, int]:
    """{label * classes + prediction: rows}."""
    cells, rows = np.unique(truth * classes + predicted, return_counts=True)
    return dict(zip(cells.tolist(), rows.tolist()))


def bins(values: np.ndarray, is_class: np.ndarray) -> np.ndarray:
    """Rows by [is of the class, bin of the value], int64. A bin includes its upper bound, the first also 0."""
    indices = np.clip(np.ceil(values.astype(np.float64) * BINS).astype(np.int64) - 1, 0, BINS - 1)
    return np.bincount(is_class * BINS + indices, minlength=2 * BINS).reshape(2, BINS)


def added(counts: OutputCounts, addend: OutputCounts) -> OutputCounts:
    """The counts of the rows of both."""
    sums: OutputCounts = {"errors": None, "confusion": None, "scores": None, "classes": counts["classes"]}
    if counts["errors"] is not None and addend["errors"] is not None:
        sums["errors"] = [a + b for a, b in zip(counts["errors"], addend["errors"])]
    if counts["classes"] != addend["classes"]:  # labels of another kind: numbers that are no classes
        sums["classes"] = 0
        return sums
    if counts["confusion"] is not None and addend["confusion"] is not None:
        cells = [*counts["confusion"], *addend["confusion"]]
        sums["confusion"] = {c: counts["confusion"].get(c, 0) + addend["confusion"].get(c, 0) for c in cells}
    if counts["scores"] is not None and addend["scores"] is not None:
        sums["scores"] = counts["scores"] + addend["scores"]
    return sums
