"""The state of a fit as arrays and JSON: what model, optimizer and callbacks remember, taken and put back."""

from __future__ import annotations

import contextlib
import inspect
from typing import Any, Iterable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from ..keras_types import Model, Variable, array_of
from . import best_files
from .keras_access import KerasAccess

#: {name: array}
Arrays = Mapping[str, np.ndarray]


class CheckpointMismatch(Exception):
    """A state that does not fit the model: one line."""


def of_model(model: Model, access: KerasAccess) -> dict[str, np.ndarray]:
    """{name: array}, no copies: the weights, the optimizer's variables, and the seeds of dropout and noise layers."""
    groups = _groups(model, access)
    return {_key(group, i): array_of(variable) for group in groups for i, variable in enumerate(groups[group])}


def put_in_model(model: Model, access: KerasAccess, arrays: Arrays, source: str) -> None:
    """Put `of_model`'s arrays back. source: words for a `CheckpointMismatch`, which leaves the model as it was."""
    groups = _groups(model, access)
    assignments = []
    for group, variables in groups.items():
        count = sum(key.startswith(group + "/") for key in arrays)
        if count != len(variables):
            raise CheckpointMismatch(
                "%s has %d %s, this model has %d%s" % (source, count, group, len(variables), _REMEDY)
            )
        for i, variable in enumerate(variables):
            array = arrays[_key(group, i)]
            if array.shape != tuple(variable.shape):
                words = (source, i, group, array.shape, tuple(variable.shape), _REMEDY)
                raise CheckpointMismatch("%s: number %d of its %s has the shape %s, this model's has %s%s" % words)
            assignments.append((variable, array))
    for variable, array in assignments:
        dtype = tf.as_dtype(variable.dtype).as_numpy_dtype
        variable.assign(array.view(dtype) if array.dtype.kind == "V" else array)


_REMEDY = "; give the cell that model and optimizer, or leave --resume out"


def _groups(model: Model, access: KerasAccess) -> dict[str, list[Variable]]:
    return {
        "weights": access.weights(model),
        "optimizer variables": access.optimizer_variables(model),
        "seeds": access.seeds(model),
    }


def _key(group: str, number: int) -> str:
    return "%s/%d" % (group, number)


class CallbackStates:
    """What the callbacks of a fit have changed in themselves: numbers, texts, arrays, and lists and dicts of these.

    Other attributes and the arguments of the constructor are not saved, because the cell creates them again: Keras
    changes the sign of `min_delta` when it first monitors, and would change it twice. Beside them goes the file of the
    best epoch: best_files.py.
    """

    def __init__(self, callbacks: Iterable[Any]) -> None:
        self._callbacks = list(callbacks)
        self._before = [_attributes(callback) for callback in self._callbacks]
        self._at_begin = self._before
        self._restored: list[Any] = []
        self._held: list[tuple[Any, dict[str, Any]]] = []

    def note_begin(self) -> None:
        """The fit has begun: callbacks may have put back what an earlier fit had changed in them."""
        self._at_begin = [_attributes(callback) for callback in self._callbacks]

    def take(self, most_bytes: int) -> tuple[list[dict[str, Any]], dict[str, np.ndarray]]:
        """([{"class", "attributes", "file"}], {name: array}).

        most_bytes: of a file of the best epoch that is taken with them.
        """
        arrays: dict[str, np.ndarray] = {}
        states = []
        for number, callback in enumerate(self._callbacks):
            attributes = {}
            for name, value in _attributes(callback).items():
                earlier_values = [
                    values.get(name, _NO_VALUE) for values in (self._before[number], self._at_begin[number])
                ]
                if not all(_are_equal(value_then, value) for value_then in earlier_values):
                    attributes[name] = _encode(value, "callbacks/%d/%s" % (number, name), arrays)
            state: dict[str, Any] = {"class": type(callback).__name__, "attributes": attributes}
            if best_files.has_best(callback, attributes):
                path = best_files.path_of(callback)
                content = None if path is None else best_files.read(path, most_bytes)
                if content is not None:
                    state["file"], arrays[_file_key(number)] = path, content
                    most_bytes -= content.nbytes
            states.append(state)
        return states, arrays

    def restore(self, states: Sequence[Mapping[str, Any]], arrays: Arrays) -> list[str]:
        """Put back what `take` gave; callbacks of another class are left alone.

        Returns the paths of files of a best epoch that the checkpoint does not have: their callbacks begin anew.
        """
        missing = []
        for number, (callback, state) in enumerate(zip(self._callbacks, states)):
            if type(callback).__name__ != state["class"]:
                continue
            attributes, content = dict(state["attributes"]), arrays.get(_file_key(number))
            has_best = best_files.has_best(callback, attributes)
            if (
                has_best
                and not best_files.is_stored_apart(callback)
                and (content is None or not best_files.write(callback, state["file"], content))
            ):
                del attributes[best_files.BEST]
                missing.append(callback.filepath)
            for name, value in attributes.items():
                setattr(callback, name, _decode(value, arrays))
            self._restored.append(callback)
        return missing

    def hold(self) -> None:
        """Remember the callbacks that `restore` has put back as they are now."""
        self._held = [(callback, _attributes(callback)) for callback in self._restored]

    def put_back(self) -> None:
        """Give the callbacks the attributes that they had at `hold`, once."""
        for callback, attributes in self._held:
            for name, value in attributes.items():
                setattr(callback, name, value)
        self._held = []


#: In place of the value of an attribute that was not there.
_NO_VALUE = object()


def _file_key(number: int) -> str:
    return "callbacks/%d/file" % number


#: Attributes that Keras sets in every callback.
_KERAS_OWN = frozenset(("model", "_model", "params", "validation_data", "_chief_worker_only", "_supports_tf_logs"))


def _attributes(callback: Any) -> dict[str, Any]:
    attributes = {}
    constructors = [vars(kind)["__init__"] for kind in type(callback).__mro__ if "__init__" in vars(kind)]
    arguments = {name for constructor in constructors for name in inspect.signature(constructor).parameters}
    for name, value in vars(callback).items():
        if name not in _KERAS_OWN and name not in arguments:
            with contextlib.suppress(TypeError):
                attributes[name] = _copy(value)
    return attributes


def _copy(value: Any) -> Any:
    """A copy of a value of the kinds that are kept; TypeError for any other."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biuf":
        return np.array(value)
    if isinstance(value, (list, tuple)):
        return type(value)([_copy(item) for item in value])
    if type(value) is dict and all(isinstance(key, str) for key in value):
        return {key: _copy(item) for key, item in value.items()}
    raise TypeError(type(value).__name__)


def _are_equal(left: Any, right: Any) -> bool:
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        return np.array_equal(left, right)
    if isinstance(left, (list, tuple)) and type(left) is type(right):
        return len(left) == len(right) and all(map(_are_equal, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_are_equal(left[key], right[key]) for key in left)
    return type(left) is type(right) and left == right


def _encode(value: Any, name: str, arrays: dict[str, np.ndarray]) -> Any:
    """A value as JSON: {"type", "value"} for a kind that JSON does not know; arrays are put into `arrays` by name."""
    if isinstance(value, np.ndarray):
        arrays[name] = value
        return {"type": "array", "value": name}
    if isinstance(value, (list, tuple)):
        values = [_encode(item, "%s/%d" % (name, i), arrays) for i, item in enumerate(value)]
        return values if type(value) is list else {"type": "tuple", "value": values}
    if isinstance(value, dict):
        return {
            "type": "dict",
            "value": {key: _encode(item, "%s/%s" % (name, key), arrays) for key, item in value.items()},
        }
    return value


def _decode(value: Any, arrays: Arrays) -> Any:
    if isinstance(value, list):
        return [_decode(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    inner = value["value"]
    if value["type"] == "array":
        array = arrays[inner]
        return array if array.ndim else array[()]
    if value["type"] == "tuple":
        return tuple(_decode(item, arrays) for item in inner)
    return {key: _decode(item, arrays) for key, item in inner.items()}
