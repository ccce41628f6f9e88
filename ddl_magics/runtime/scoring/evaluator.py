"""What Spark's executors do to evaluate a model: the states of its metrics, and counts, for the rows of a partition.

The state of a metric of Keras adds up over rows, so that the sum over the partitions is the state of one process. Of
other metrics that is not known: they are updated in one task, with the outputs of all rows.

Executors cannot import this package: the functions here travel to them by value (`by_value.py`). Hence no class, no
relative import but for the type checker, and nothing but numpy, TensorFlow, Keras and the standard library.
"""

from __future__ import annotations

import itertools
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

#: Of the values 0..1 of an output, for the ROC curve; a class is predicted above the middle of them.
BINS = 1000
#: So many classes have a confusion matrix, and so many a ROC curve.
MOST_CLASSES, MOST_CURVES = 1000, 50


def partial(rows: Iterable[Any], get: Callable[[], Model], batches: Batches, batch_rows: int) -> Iterator[Partial]:
    """What the rows of a partition add to the states of `get()`'s metrics and to the counts.

    batch_rows: of a whole batch of `batches`.
    """
    found: Partial = {"rows": 0, "states": [], "gathered": [], "sample": None, "outputs": {}}
    rows, initial = iter(rows), []
    first = list(itertools.islice(rows, 1))
    if not first:
        yield found
        return
    rows, model = itertools.chain(first, rows), get()
    for x, y, weight in batches(rows, model):
        if not found["rows"]:
            found["sample"] = sample = first_rows((x, y, weight), 1)
            initial = begin(model, sample)
            found["gathered"] = to_gather(model)
        outputs = step(model, x, y, weight, batch_rows)
        size = len(first_array(y))
        found["rows"] += size
        for name, values, labels in pairs(model, outputs, y):
            counts = count(values, labels)
            before = found["outputs"].get(name)
            found["outputs"][name] = counts if before is None else added(before, counts)
    found["states"] = [state - start for state, start in zip(states(model), initial)]
    yield found


def or_problem(found: Iterator[Any]) -> Iterator[Any]:
    """`found`, and an error as text: Spark would repeat a task that raises it, and load the model anew."""
    try:
        yield from found
    except Exception as error:
        yield "".join(traceback.format_exception_only(type(error), error))


def result(payloads: Iterable[Tuple[List[np.ndarray], Any]], get: Callable[[], Model]) -> Iterator[Dict[str, Any]]:
    """{name: value} of the model's metrics with these states. A payload: (states, sample) as in `records.Partial`."""
    for added_states, sample in payloads:
        model = get()
        initial = begin(model, sample)
        for variable, start, more in zip(variables(model), initial, added_states):
            variable.assign((start + more).astype(np.asarray(variable).dtype))
        yield values_of(all_results(model))


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
    y, outputs, weight = (joined([record[place] for record in ordered]) for place in (1, 2, 3))
    set_floatx(model)
    for metric in model.metrics:
        metric.reset_state()
    for start in range(0, len(first_array(y)), batch_rows):
        part = tf.nest.map_structure(
            lambda array: tf.constant(array[start : start + batch_rows]),  # noqa: B023 - called at once
            (y, outputs),
        )
        own_weight = None if weight is None else tf.constant(weight[start : start + batch_rows])
        model.compute_metrics(None, part[0], part[1], own_weight)
    yield values_of(results_of(compiled_metrics(model), model))


# -- the model's step


def set_floatx(model: Model) -> None:
    """Metrics are made in Keras' floatx, which is that of the model's training."""
    import keras

    names = [str(getattr(weight.dtype, "name", weight.dtype)) for weight in model.weights]
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
    """Whether the model has a loss: one of a training loop of the cell's own has none."""
    return bool(getattr(model, "compiled", getattr(model, "_is_compiled", False)))


def step(model: Model, x: Any, y: Any, weight: Any, batch_rows: int) -> Any:
    """The outputs for a batch, which updates the metrics. The step of a whole batch is traced once for each model.

    A batch of fewer rows is computed eagerly: each length would be traced, and where a trace does not know the length,
    Keras counts a short batch as much as a whole one in the losses of several outputs.
    """
    import tensorflow as tf

    known = model.__dict__.get("_ddl_evaluation_step")
    if known is None:
        known = tf.function(lambda x, y, weight: test_step(model, x, y, weight), autograph=False)
        object.__setattr__(model, "_ddl_evaluation_step", known)
    outputs = known(x, y, weight) if len(first_array(y)) == batch_rows else test_step(model, x, y, weight)
    return tf.nest.map_structure(lambda tensor: tensor.numpy(), outputs)


def test_step(model: Model, x: Any, y: Any, weight: Any) -> Any:
    """The model's own `test_step`; returns its outputs, which are () where it does not call `compute_metrics`."""
    import tensorflow as tf

    x, y, weight = tf.nest.map_structure(
        lambda value: None if value is None else tf.convert_to_tensor(value), (x, y, weight)
    )
    if not is_compiled(model):
        return model(x, training=False)
    seen: List[Any] = [()]
    original = model.compute_metrics

    def compute_metrics(*args: Any, **kwargs: Any) -> Any:
        seen[0] = kwargs["y_pred"] if "y_pred" in kwargs else args[2]
        return original(*args, **kwargs)

    object.__setattr__(model, "compute_metrics", compute_metrics)
    try:
        model.test_step((x, y) if weight is None else (x, y, weight))
    finally:
        object.__delattr__(model, "compute_metrics")
    return seen[0]


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
    unknown, own = [metric for metric in metrics(model) if not adds_up(metric)], compiled_metrics(model)
    for metric in unknown:
        if not any(metric is one for one in own):
            raise ValueError(
                "the metric %r of the model's own test_step may not add up over partitions: give it to compile, or "
                "write it with keras.metrics.Mean" % metric.name
            )
    return [metric.name for metric in unknown]


def adds_up(metric: Metric) -> bool:
    """Whether it is a metric of Keras, of a function of Keras if it averages one, and not along the rows.

    As whole_metrics.py has it, which an executor does not have.
    """
    function, axis = getattr(metric, "_fn", None), getattr(metric, "_fn_kwargs", {}).get("axis")
    parts = [type(metric)] if function is None else [type(metric), function]
    plain = function is None or isinstance(function, types.FunctionType)
    axes = axis if isinstance(axis, (list, tuple)) else [axis]
    along_rows = any(isinstance(one, int) and (one == 0 or one < -1) for one in axes)
    return plain and not along_rows and all(str(part.__module__).partition(".")[0] == "keras" for part in parts)


def variables(model: Model) -> List[Any]:
    """Those of all metrics, in an order that is the same in each process."""
    return [variable for metric in metrics(model) for variable in metric.variables]


def states(model: Model) -> List[np.ndarray]:
    """The values of `variables`; floats as float64, as they are added up over partitions."""
    found = [np.asarray(variable) for variable in variables(model)]
    return [array.astype(np.float64) if array.dtype.kind == "f" else array for array in found]


def all_results(model: Model) -> Mapping[str, Any]:
    """{name: tensor} as `evaluate` returns it."""
    if not is_compiled(model):
        return {}
    found: Mapping[str, Any] = model.get_metrics_result()
    return found


def results_of(of_compile: List[Metric], model: Model) -> Mapping[str, Any]:
    """{name: tensor} of the metrics of `compile`."""
    container = getattr(model, "_compile_metrics", None)
    if container is not None:
        found: Mapping[str, Any] = container.result()
        return found
    return {metric.name: metric.result() for metric in of_compile}


def values_of(results: Mapping[str, Any]) -> Dict[str, Any]:
    """Numbers, or lists of them where a metric has a value for each class."""
    return {name: np.asarray(value).tolist() for name, value in results.items()}


# -- rows


def first_array(value: Any) -> Any:
    """An array, or the first of a dict."""
    return next(iter(value.values())) if isinstance(value, dict) else value


def first_rows(value: Any, rows: int) -> Any:
    """The first rows of arrays in tuples and dicts."""
    if isinstance(value, dict):
        return {name: first_rows(part, rows) for name, part in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(first_rows(part, rows) for part in value)
    return None if value is None else np.asarray(value)[:rows]


def joined(parts: List[Any]) -> Any:
    """Arrays in dicts, tuples and lists, one after the other."""
    first = parts[0]
    if first is None:
        return None
    if isinstance(first, dict):
        return {name: joined([part[name] for part in parts]) for name in first}
    if isinstance(first, (tuple, list)):
        return type(first)(joined([part[place] for part in parts]) for place in range(len(first)))
    return np.concatenate(parts)


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
        known = class_of(labels, classes)
        if known is not None:
            counts["classes"] = classes
            counts["confusion"] = confusion(known, values.argmax(axis=1), classes)
            if classes <= MOST_CURVES and within_one(values):
                counts["scores"] = np.stack([bins(values[:, k], known == k) for k in range(classes)])
    return counts


def errors(values: np.ndarray, labels: np.ndarray) -> List[float]:
    """As `OutputCounts` has them."""
    wanted = labels.astype(np.float64).ravel()
    off = np.abs(values.astype(np.float64).ravel() - wanted)
    present = wanted != 0
    relative = off[present] / np.abs(wanted[present])
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
    """Rows by [whether they are of the class, bin of the value], int64; a bin has its upper bound, the first also 0."""
    places = np.clip(np.ceil(values.astype(np.float64) * BINS).astype(np.int64) - 1, 0, BINS - 1)
    return np.bincount(is_class * BINS + places, minlength=2 * BINS).reshape(2, BINS)


def added(one: OutputCounts, other: OutputCounts) -> OutputCounts:
    """The counts of the rows of both."""
    sums: OutputCounts = {"errors": None, "confusion": None, "scores": None, "classes": one["classes"]}
    if one["errors"] is not None and other["errors"] is not None:
        sums["errors"] = [mine + its for mine, its in zip(one["errors"], other["errors"])]
    if one["classes"] != other["classes"]:  # labels of another kind: numbers that are no classes
        sums["classes"] = 0
        return sums
    if one["confusion"] is not None and other["confusion"] is not None:
        cells = [*one["confusion"], *other["confusion"]]
        sums["confusion"] = {c: one["confusion"].get(c, 0) + other["confusion"].get(c, 0) for c in cells}
    if one["scores"] is not None and other["scores"] is not None:
        sums["scores"] = one["scores"] + other["scores"]
    return sums
