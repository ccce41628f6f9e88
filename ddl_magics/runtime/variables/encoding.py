"""Values as JSON and arrays: what a cell's variables travel as.

JSON has None, booleans, numbers, texts and lists of values. Any other value is an object of one entry, {kind: content},
of the kinds below. What can be referred to twice stands once in the table of objects, and is {"object": its index}: two
names of one list are two names of one list in the notebook, too. {"notebook": name} is the object that the notebook's
name had when the run began.

    kind of a value    content
    tuple, frozenset   [value, ...]
    bytes              base64
    complex            [real, imaginary]
    range              [start, stop, step]
    scalar             [dtype, value], of NumPy
    path               text
    date, datetime     in ISO's format
    timedelta          [days, seconds, microseconds]
    model              K, of model-K.keras
    tensor             index of an array

    kind of an object  content
    list, set, deque   [value, ...]
    bytearray          base64
    dict, ordered, counter   [[key, value], ...]
    defaultdict        [name of a builtin type or null, [[key, value], ...]]
    array              index of an array
    objects            [shape, [value, ...]]: an array of objects
    frame, series, index   of pandas: tables.py
    history            {"history", "epoch", "params", "model"}: Keras' History
    instance           [name of a class of the notebook or the cell, [[attribute, value], ...]]

    what has changed   content, beside that of an object
    attributes         [[[name, value], ...], [name, ...]]: set and deleted, of an object of the notebook's classes
    keras              keras_state.py; its attributes are [[key of the owner, name, value], ...]
    random             value: generators.py
"""

from __future__ import annotations

import base64
import collections
import datetime
import pathlib
from typing import Any, Mapping

from . import parts, tables

#: Kinds of arrays that travel as .npy: booleans, numbers, times, texts, bytes.
ARRAY_KINDS = "biufcMmUS"
SCALAR_KINDS = "biuf"
#: The factories of a defaultdict that travel.
FACTORIES: Mapping[str, Any] = {kind.__name__: kind for kind in (list, dict, set, tuple, int, float, str, bool)}
#: Of values in values.
MAX_DEPTH = 100

#: What Keras makes of containers that are attributes of its objects.
_CONTAINERS_OF_KERAS: Mapping[str, type] = {
    "TrackedList": list,
    "TrackedDict": dict,
    "TrackedOrderedDict": collections.OrderedDict,
    "TrackedSet": set,
    "ListWrapper": list,
    "_DictWrapper": dict,
    "_TupleWrapper": tuple,
}

_PLAIN = (type(None), bool, int, float, str)
_SEQUENCES: Mapping[Any, str] = {list: "list", set: "set", collections.deque: "deque"}
_MAPPINGS: Mapping[Any, str] = {dict: "dict", collections.OrderedDict: "ordered", collections.Counter: "counter"}


class CannotTravel(Exception):
    """A value that has no such form. The message follows the value's name: "a generator"."""


class Encoder:
    """Makes JSON and arrays of values.

    objects: the table of objects. arrays: of NumPy, which the JSON refers to by index.
    """

    def __init__(
        self, notebook: Mapping[int, str], models: Mapping[int, int], classes: Mapping[int, str] | None = None
    ) -> None:
        """notebook: id of an object of the notebook -> its name. models: id of a trained model -> its K. classes: id of
        a class whose instances are made of their attributes -> its name."""
        self.objects: list[Any] = []
        self.arrays: list[Any] = []
        self._notebook, self._models, self._classes = notebook, models, classes or {}
        self._indices: dict[int, int] = {}  # id of an object -> index in `objects`
        self._values: list[Any] = []  # by this index: an id is one object's as long as it lives

    def encode(self, value: Any) -> Any:
        """Raises CannotTravel, and leaves nothing of the value then."""
        objects, arrays = len(self.objects), len(self.arrays)
        try:
            return self._encode(value, 0)
        except RecursionError:
            self._forget(objects, arrays)
            raise CannotTravel("nested too deeply") from None
        except CannotTravel:
            self._forget(objects, arrays)
            raise

    def content(self, value: Any) -> Any:
        """{kind: content} of an object of the notebook itself, which has changed. Raises CannotTravel."""
        objects, arrays = len(self.objects), len(self.arrays)
        try:
            return self._object(value, 0)
        except CannotTravel:
            self._forget(objects, arrays)
            raise

    def _forget(self, objects: int, arrays: int) -> None:
        del self.objects[objects:], self._values[objects:], self.arrays[arrays:]
        self._indices = {key: index for key, index in self._indices.items() if index < objects}

    def _encode(self, value: Any, depth: int) -> Any:
        if type(value) in _PLAIN:
            return value
        if depth > MAX_DEPTH:
            raise CannotTravel("nested too deeply")
        if id(value) in self._notebook:
            return {"notebook": self._notebook[id(value)]}
        if id(value) in self._models:
            return {"model": self._models[id(value)]}
        if id(value) in self._indices:
            return {"object": self._indices[id(value)]}
        encoded = self._value(value, depth)
        if encoded is not None:
            return encoded
        index = self._indices[id(value)] = len(self.objects)
        self.objects.append(None)
        self._values.append(value)
        self.objects[index] = self._object(value, depth)
        return {"object": index}

    def _all(self, values: Any, depth: int) -> list[Any]:
        return [self._encode(value, depth + 1) for value in values]

    def _value(self, value: Any, depth: int) -> Any:
        """What no other value can tell from an equal one: {kind: content}; None for an object."""
        kind = _kind_of(value)
        if kind is tuple or kind is frozenset:
            return {kind.__name__: self._all(value, depth)}
        if kind is bytes:
            return {"bytes": _text(value)}
        if kind is complex:
            return {"complex": [value.real, value.imag]}
        if kind is range:
            return {"range": [value.start, value.stop, value.step]}
        if kind is datetime.datetime or kind is datetime.date:
            if getattr(value, "tzinfo", None) is not None:
                raise CannotTravel("a time with a time zone")
            return {kind.__name__: value.isoformat()}
        if kind is datetime.timedelta:
            return {"timedelta": [value.days, value.seconds, value.microseconds]}
        if isinstance(value, pathlib.PurePath):
            return {"path": str(value)}
        if kind.__module__ == "numpy" and _is_scalar(value):
            return self._scalar(value)
        if _is_tensor(value):
            return {"tensor": self.array(value.numpy())}
        return None

    def _scalar(self, value: Any) -> Any:
        if value.dtype.kind not in SCALAR_KINDS or value.dtype.itemsize > 8:
            raise CannotTravel("of type numpy.%s" % value.dtype)
        return {"scalar": [value.dtype.str, value.item()]}

    def _object(self, value: Any, depth: int) -> Any:
        kind = _kind_of(value)
        if kind in _SEQUENCES:
            if kind is collections.deque and value.maxlen is not None:
                raise CannotTravel("a deque of bounded length")
            return {_SEQUENCES[kind]: self._all(value, depth)}
        if kind in _MAPPINGS:
            return {_MAPPINGS[kind]: self._pairs(value, depth)}
        if kind is collections.defaultdict:
            factory = value.default_factory
            name = None if factory is None else getattr(factory, "__name__", "")
            if name is not None and FACTORIES.get(name) is not factory:
                raise CannotTravel("a defaultdict with a function of its own")
            return {"defaultdict": [name, self._pairs(value, depth)]}
        if kind is bytearray:
            return {"bytearray": _text(bytes(value))}
        if kind.__module__ == "numpy" and kind.__name__ == "ndarray":
            return self._array_object(value, depth)
        if kind.__module__.startswith("pandas."):
            try:
                return tables.encode(value, lambda content: self._encode(content, depth + 1))
            except tables.Unknown as error:
                raise CannotTravel(str(error)) from None
        if kind.__name__ == "History" and isinstance(getattr(value, "history", None), dict):
            return {"history": self._history(value, depth)}
        if id(kind) in self._classes:
            attributes = parts.attributes(value).items()
            return {"instance": [self._classes[id(kind)], [self._all(pair, depth) for pair in attributes]]}
        raise CannotTravel(_article(kind.__name__))

    def _pairs(self, value: Any, depth: int) -> list[Any]:
        return [self._all(pair, depth) for pair in value.items()]

    def _history(self, history: Any, depth: int) -> Any:
        model = getattr(history, "model", None)
        in_notebook = id(model) in self._notebook
        return {
            "history": self._encode(history.history, depth + 1),
            "epoch": self._encode(list(getattr(history, "epoch", [])), depth + 1),
            "params": self._encode(dict(getattr(history, "params", None) or {}), depth + 1),
            "model": {"notebook": self._notebook[id(model)]} if in_notebook else None,
        }

    def _array_object(self, value: Any, depth: int) -> Any:
        if value.dtype.kind in ARRAY_KINDS:
            return {"array": self.array(value)}
        if value.dtype.kind == "O":
            return {"objects": [list(value.shape), self._all(value.ravel().tolist(), depth)]}
        raise CannotTravel("an array of dtype %s" % value.dtype)

    def array(self, value: Any) -> int:
        if getattr(value, "dtype", None) is None or value.dtype.kind not in ARRAY_KINDS:
            raise CannotTravel("a tensor of dtype %s" % getattr(value, "dtype", type(value).__name__))
        self.arrays.append(value)
        return len(self.arrays) - 1


def _kind_of(value: Any) -> Any:
    kind = type(value)
    if kind.__module__.startswith(("keras.", "tensorflow.", "tf_keras.")):
        return _CONTAINERS_OF_KERAS.get(kind.__name__, kind)
    return kind


def _is_scalar(value: Any) -> bool:
    import numpy as np

    return isinstance(value, np.generic)


def _is_tensor(value: Any) -> bool:
    """Whether it is an eager tensor of TensorFlow."""
    return type(value).__name__ == "EagerTensor" and type(value).__module__.startswith("tensorflow.")


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


def _article(noun: str) -> str:
    return ("an " if noun[:1].lower() in ("a", "e", "i", "o", "u") else "a ") + noun
