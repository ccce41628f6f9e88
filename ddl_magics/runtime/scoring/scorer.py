"""Scoring on Spark's executors: convert rows to tensors, call the model, append its outputs to each row.

Travels to executors by value (`by_value.py`), and needs numpy, TensorFlow and Keras.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import logging
import os
import sys
import tempfile
import traceback
import types
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator, List, Sequence, Tuple, Union

import numpy as np

if TYPE_CHECKING:
    from ..data.records import Features, Inputs
    from .records import Labels, Plan

Row = Sequence[Any]
Arrays = List[np.ndarray]
#: Makes the arrays of rows: `packing.row_arrays`.
MakeArrays = Callable[[Sequence[Row], Any, Any], Arrays]
#: A model of Keras 2 or 3.
Model = Any
Description = Tuple[List[List[int]], List[Tuple[str, str, int]]]

#: Holds the models that a Python worker of Spark has loaded. Spark keeps the worker for other tasks.
_MODULE = "_ddl_scoring_models"
#: Models that a worker keeps: each takes memory of the executor.
_MODELS = 2


def loaded(key: str, read: Callable[[], Model]) -> Model:
    """The model of that key, which a Python worker reads once."""
    module = sys.modules.setdefault(_MODULE, types.ModuleType(_MODULE))
    models: dict[str, Model] = module.__dict__.setdefault("models", {})
    if key not in models:
        while len(models) >= _MODELS:
            del models[next(iter(models))]
        models[key] = read()
    return models[key]


def read_model(content: bytes, threads: int, compiled: bool, load: Callable[..., Model]) -> Model:
    """The model of a `.keras` file. threads: of an operation on the CPU; other tasks of the executor have the rest.

    compiled: with its loss and its metrics, whose dtype is Keras' floatx when the model was made. load: Keras'
    `load_model`, with what the model needs.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow as tf

    with contextlib.suppress(RuntimeError):  # TensorFlow has computed in this process before
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        for gpu in tf.config.list_physical_devices("GPU"):
            tf.config.experimental.set_memory_growth(gpu, True)
    import keras

    # Models come and go in a worker, and batches have several sizes: TensorFlow warns of the traces that this takes.
    logging.getLogger("tensorflow").addFilter(worth_reading)
    temporary = tempfile.TemporaryDirectory(prefix="ddl-scoring-")
    with temporary as folder, open(os.path.join(folder, ".owner"), "w") as owner:
        fcntl.flock(owner, fcntl.LOCK_EX)  # as scratch.py, which cannot be imported here
        path = os.path.join(folder, "model.keras")
        with open(path, "wb") as file:
            file.write(content)
        model = load(path, compile=False)
        if compiled:
            keras.backend.set_floatx(weights_dtype(model))
            model = load(path)
        return model


def worth_reading(record: logging.LogRecord) -> bool:
    """Whether a line of TensorFlow's log is not about traced functions."""
    return "triggered tf.function retracing" not in record.getMessage()


def labelled(
    rows: Iterable[Row], model: Model, plan: Plan, labels: Labels, make_arrays: MakeArrays
) -> Iterator[Tuple[Any, Any, Any]]:
    """Yield (features, label, weight) of each batch of rows, as --data gives them to the model.

    ValueError, one line, for a row that cannot be read.
    """
    rows, inputs = iter(rows), plan["inputs"]
    for batch in iter(lambda: list(itertools.islice(rows, plan["batch_rows"])), []):
        floatx = weights_dtype(model)
        input_tensors = as_inputs(tensors(batch, plan, make_arrays, floatx)[1], inputs, floatx)
        weight = labels["weight"]
        yield (
            transformed(input_tensors, inputs),
            picked(input_tensors, labels["label"]),
            None if weight is None else input_tensors[weight],
        )


def score(
    rows: Iterable[Row], model: Callable[[], Model], plan: Plan, make_arrays: MakeArrays, outputs: int
) -> Iterator[Tuple[Any, ...]]:
    """Yield the rows of a partition, each followed by its values of the `outputs` outputs of `model()`.

    ValueError, one line, for a row that cannot be read; where the plan is lenient, its values are None instead.
    """
    rows = iter(rows)
    for batch in iter(lambda: list(itertools.islice(rows, plan["batch_rows"])), []):
        readable, arrays = tensors(batch, plan, make_arrays, weights_dtype(model()))
        columns = [as_values(array) for _, array in call(model(), arrays, plan["inputs"])] if readable else []
        outputs_by_row = dict(zip(readable, zip(*columns)))
        for index, row in enumerate(batch):
            yield (*row, *outputs_by_row.get(index, (None,) * outputs))


def describe(
    rows: Iterable[Row], model: Callable[[], Model], plan: Plan, make_arrays: MakeArrays
) -> Iterator[Union[Description, str]]:
    """Of the first row that can be read: (shape of each tensor, (name, dtype, dimensions) of each output).

    An error is yielded as text: Spark would retry a task that raises, and load the model again. All rows are read, as
    Spark ends a Python worker that leaves some, and its model with it.
    """
    rows = iter(rows)
    try:
        for row in rows:
            readable, arrays = tensors([row], plan, make_arrays, weights_dtype(model()))
            if readable:
                outputs = call(model(), arrays, plan["inputs"])
                described = [(name, array.dtype.name, dimensions(array)) for name, array in outputs]
                yield [list(array.shape[1:]) for array in arrays], described
                break
    except Exception as error:
        yield "".join(traceback.format_exception_only(type(error), error))
    for _ in rows:
        pass


def describe_zeros(
    rows: Iterable[Row], model: Callable[[], Model], plan: Plan, make_arrays: MakeArrays
) -> Iterator[Union[Description, str]]:
    """As `describe`, where no row can be read: the model is called with a row of zeros and empty texts.

    Yields nothing where the shape of an array is known neither from training nor from the model.
    """
    inputs = plan["inputs"]
    try:
        shapes = inputs["shapes"] or shapes_of_inputs(model(), inputs)
        if all(shape is not None for shape in shapes):
            arrays = [row_of_zeros(shape, use) for shape, use in zip(shapes, inputs["uses"])]
            outputs = call(model(), arrays, inputs)
            yield shapes, [(name, array.dtype.name, dimensions(array)) for name, array in outputs]
    except Exception as error:
        yield "".join(traceback.format_exception_only(type(error), error))


def row_of_zeros(shape: Sequence[int], use: str) -> np.ndarray:
    """One row of zeros or empty texts, as `MakeArrays` makes it: of a ragged tensor, of one value."""
    values = np.full((1, *shape), b"", object) if use.endswith("string") else np.zeros((1, *shape))
    if not use.startswith("ragged "):
        return values
    array = np.empty(1, object)
    array[0] = values
    return array


def shapes_of_inputs(model: Model, inputs: Inputs) -> List[Any]:
    """The shape of a row's values of each tensor, or None where it is not known."""
    expected = {tensor.name: tensor.shape for tensor in getattr(model, "inputs", None) or ()}
    if len(expected) == 1 and isinstance(inputs["features"], int):
        expected = {"": next(iter(expected.values()))}
    names = {} if isinstance(inputs["features"], int) else {index: name for name, index in inputs["features"].items()}
    shapes: List[Any] = []
    for index, columns in enumerate(inputs["tensors"]):
        if len(columns) > 1:
            shapes.append([len(columns)])
        elif inputs["columns"][columns[0]]["depth"] == 0:
            shapes.append([])
        else:
            sizes = list(expected.get(names.get(index, ""), (None, None)))[1:]
            is_known = "transform" not in inputs and None not in sizes
            shapes.append(sizes if is_known else None)
    return shapes


def tensors(batch: Sequence[Row], plan: Plan, make_arrays: MakeArrays, floatx: str) -> Tuple[Sequence[int], Arrays]:
    """(indices of the rows that can be read, the arrays of these). floatx: of `weights_dtype`."""
    inputs, values = plan["inputs"], [[row[index] for index in plan["indices"]] for row in batch]

    def read(values: Sequence[Row]) -> Arrays:
        return checked(make_arrays(values, inputs["columns"], inputs["tensors"]), inputs, floatx)

    try:
        return range(len(batch)), read(values)
    except ValueError:
        if not plan["lenient"]:
            raise
    readable = []
    for index, value in enumerate(values):
        with contextlib.suppress(ValueError):
            read([value])
            readable.append(index)
    return readable, read([values[index] for index in readable]) if readable else []


def checked(arrays: Arrays, inputs: Inputs, floatx: str) -> Arrays:
    """`arrays`, if they have the shapes of the rows before and floatx holds their numbers; else ValueError."""
    for array, use, indices in zip(arrays, inputs["uses"], inputs["tensors"]):
        values = np.concatenate(list(array)) if use.startswith("ragged ") else array
        if use.endswith("floatx") and floatx == "float32" and values.dtype == np.float64:
            check_range(values, [inputs["columns"][index]["name"] for index in indices])
    for array, shape, columns in zip(arrays, inputs["shapes"] or [], inputs["tensors"]):
        if list(array.shape[1:]) != shape:
            name = inputs["columns"][columns[0]]["name"]
            raise ValueError(
                "column %r: a row has values of shape %s, and the model takes %s"
                % (name, tuple(array.shape[1:]), tuple(shape))
            )
    return arrays


def check_range(array: np.ndarray, names: Sequence[str]) -> None:
    """ValueError for a number that would be infinite as float32. names: of the columns."""
    is_too_large = (np.abs(array) > np.finfo(np.float32).max) & ~np.isinf(array)
    if is_too_large.any():
        position = np.argwhere(is_too_large)[0]
        words = names[position[-1] if len(names) > 1 else 0], array[tuple(position)]
        raise ValueError("column %r: it has %s, which float32 does not hold: drop these rows" % words)


def call(model: Model, arrays: Arrays, inputs: Inputs) -> List[Tuple[str, np.ndarray]]:
    """[(name, array of shape (rows, ...))] of the model's outputs; the name of a single one is ""."""
    input_tensors = as_inputs(arrays, inputs, weights_dtype(model))
    outputs = model.predict_on_batch(transformed(input_tensors, inputs))
    if isinstance(outputs, dict):
        named_outputs = list(outputs.items())
    elif isinstance(outputs, (list, tuple)):
        names = getattr(model, "output_names", None) or ()
        named_outputs = list(zip(names if len(set(names)) == len(outputs) else map(str, range(len(outputs))), outputs))
    else:
        named_outputs = [("", outputs)]
    return [(name, in_sparks_dtype(np.asarray(output))) for name, output in named_outputs]


def weights_dtype(model: Model) -> str:
    """Keras' floatx when the model was made, to which its dataset was cast: "float32" for a model without weights."""
    weights = [weight for weight in model.weights if hasattr(weight, "dtype")]  # no vocabularies of Keras 2
    names = [str(getattr(weight.dtype, "name", weight.dtype)) for weight in weights]  # of Keras 2 and 3
    return next((name for name in names if name in ("float32", "float64")), "float32")


def as_inputs(arrays: Arrays, inputs: Inputs, floatx: str) -> List[Any]:
    """The arrays as --data gives them to the model."""
    return [as_input(array, use, floatx) for array, use in zip(arrays, inputs["uses"])]


def transformed(tensors: Sequence[Any], inputs: Inputs) -> Any:
    """What the model is called with: the features, or what --transform makes of them."""
    features = picked(tensors, inputs["features"])
    return inputs["transform"](features) if "transform" in inputs else features


def picked(tensors: Sequence[Any], features: Features) -> Any:
    """The tensors of features, or of a label: one, or a dict of them."""
    return tensors[features] if isinstance(features, int) else {name: tensors[i] for name, i in features.items()}


def as_input(array: np.ndarray, use: str, floatx: str) -> Any:
    """One of them. use: as `records.Inputs` has it."""
    _, ragged, use = use.rpartition("ragged ")
    if use != "string" and not ragged:
        return array.astype(floatx if use == "floatx" else use, copy=False)
    import tensorflow as tf

    if ragged:  # the array of each row
        dtype = tf.as_dtype(floatx if use == "floatx" else use)
        values = np.concatenate(list(array)).astype(dtype.as_numpy_dtype)
        return tf.RaggedTensor.from_row_lengths(tf.constant(values, dtype), list(map(len, array)), validate=False)
    return tf.constant(array, tf.string)


def in_sparks_dtype(array: np.ndarray) -> np.ndarray:
    """Spark has no floats of 16 bits."""
    if array.dtype.kind in "iubO" or array.dtype in (np.float32, np.float64):
        return array
    return array.astype(np.float32)


def dimensions(array: np.ndarray) -> int:
    """Of a row's value: 0 for one number, also where the model makes an array of one."""
    return 0 if array.shape[1:] in ((), (1,)) else array.ndim - 1


def as_values(array: np.ndarray) -> Sequence[Any]:
    """Of each row, a number or nested lists; of text, str."""
    if array.dtype.kind == "O":
        array = np.vectorize(lambda text: text.decode("utf-8", "replace"), otypes=[object])(array)
    values: Sequence[Any] = (array if dimensions(array) else array.reshape(len(array))).tolist()
    return values
