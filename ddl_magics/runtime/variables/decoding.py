"""Values of what `encoding.py` has made. It may come from anybody: what is not of that form raises Damaged."""

from __future__ import annotations

import base64
import collections
import datetime
import pathlib
import re
import sys
from typing import Any, Callable, Mapping, Sequence

from . import generators, parts, tables
from .encoding import ARRAY_KINDS, FACTORIES, MAX_DEPTH, SCALAR_KINDS

_SCALAR = re.compile(r"[<>|=][%s][1-8]" % SCALAR_KINDS)
_EMPTY: Mapping[str, Callable[[], Any]] = {
    "list": list,
    "set": set,
    "deque": collections.deque,
    "bytearray": bytearray,
    "dict": dict,
    "ordered": collections.OrderedDict,
    "counter": collections.Counter,
}


class Damaged(Exception):
    """What has arrived is not of this form: one line."""


class Missing(Exception):
    """What a value refers to cannot be had here. The message follows the value's name."""


class Attributes:
    """Of an object of the notebook: values: attribute -> its value now. deleted: attributes that are gone."""

    def __init__(self, values: dict[str, Any], deleted: list[str]) -> None:
        self.values, self.deleted = values, deleted


class KerasState:
    """Of an object of Keras. state: for `keras_state.apply`. attributes: {(key of the owner, name): value}."""

    def __init__(self, state: Any, attributes: dict[tuple[str, str], Any], deleted: Sequence[tuple[str, str]]) -> None:
        self.state, self.attributes, self.deleted = state, attributes, deleted


class History:
    """Keras' History where Keras is not loaded: `history`, `epoch`, `params` and `model`, as there."""

    def __init__(self, history: dict[str, Any], epoch: list[int], params: dict[str, Any], model: Any = None) -> None:
        self.history, self.epoch, self.params, self.model = history, epoch, params, model

    def __repr__(self) -> str:
        return "History of %d epochs: %s" % (len(self.epoch), ", ".join(self.history))


class Decoder:
    """Makes values.

    objects: the table. array(index): of NumPy. notebook(name), model(K): an object; class_named(name): a class, whose
    instances are made without its code. They may raise Missing.
    """

    def __init__(
        self,
        objects: Sequence[Any],
        array: Callable[[int], Any],
        notebook: Callable[[str], Any],
        model: Callable[[int], Any],
        class_named: Callable[[str], type] | None = None,
    ) -> None:
        self._objects, self._array, self._notebook, self._model = objects, array, notebook, model
        self._class_named = class_named
        self._decoded: dict[int, Any] = {}

    def decode(self, encoded: Any) -> Any:
        """The value. Raises Damaged, or Missing."""
        with _damage():
            return self._value(encoded, 0)

    def content(self, encoded: Any) -> Any:
        """The value of {kind: content}, as `Encoder.content` makes it."""
        with _damage():
            kind, content = _entry(encoded)
            return self._fill(kind, content, None, 0)

    def needs_classes(self, encoded: Any) -> bool:
        """Whether there is an instance of a class of the notebook or the cell in it."""
        if not any(type(entry) is dict and "instance" in entry for entry in self._objects):
            return False
        waiting, entered = [encoded], set()
        while waiting:
            part = waiting.pop()
            if type(part) is dict:
                if "instance" in part:
                    return True
                index = part.get("object")
                if type(index) is int and 0 <= index < len(self._objects) and index not in entered:
                    entered.add(index)
                    waiting.append(self._objects[index])
                waiting += part.values()
            elif type(part) is list:
                waiting += part
        return False

    def _value(self, encoded: Any, depth: int) -> Any:
        if depth > 2 * MAX_DEPTH:
            raise ValueError("it is nested too deeply")
        if encoded is None or type(encoded) in (bool, int, float, str):
            return encoded
        kind, content = _entry(encoded)
        if kind == "object":
            return self._object(_index(content, self._objects), depth)
        if kind in ("tuple", "frozenset"):
            return (tuple if kind == "tuple" else frozenset)(self._all(content, depth))
        if kind == "notebook":
            return self._notebook(_text(content))
        if kind == "model":
            return self._model(_number(content))
        if kind == "tensor":
            return _tensor(self._array(_number(content)))
        simple = _SIMPLE.get(kind)
        if simple is None:
            raise ValueError("there is no kind %.40r" % kind)
        return simple(content)

    def _all(self, encoded: Any, depth: int) -> list[Any]:
        return [self._value(value, depth + 1) for value in _list(encoded)]

    def _object(self, index: int, depth: int) -> Any:
        if index in self._decoded:
            return self._decoded[index]
        kind, content = _entry(self._objects[index])
        if kind in _EMPTY or kind == "defaultdict":
            empty = self._decoded[index] = _empty(kind, content)  # first, as it may contain itself
            return self._fill(kind, content, empty, depth)
        if kind == "instance":
            name, pairs = _list(content)
            instance = self._decoded[index] = self._instance(_text(name))
            for attribute, value in map(_list, _list(pairs)):
                parts.set_attribute(instance, _text(attribute), self._value(value, depth + 1))
            return instance
        value = self._decoded[index] = self._fill(kind, content, None, depth)
        return value

    def _fill(self, kind: str, content: Any, target: Any, depth: int) -> Any:
        """The object of {kind: content}; in `target`, where that is none, in a new one."""
        if kind in _EMPTY or kind == "defaultdict":
            target = _empty(kind, content) if target is None else target
            if kind == "bytearray":
                target += _bytes(content)
            elif kind in ("list", "deque"):
                target.extend(self._all(content, depth))
            elif kind == "set":
                target.update(self._all(content, depth))
            else:
                pairs = content[1] if kind == "defaultdict" else content
                for key, value in map(_list, _list(pairs)):
                    target[self._value(key, depth + 1)] = self._value(value, depth + 1)
            return target
        if kind == "array":
            return self._array(_number(content))
        if kind == "objects":
            return self._array_of_objects(content, depth)
        if kind == "history":
            return self._history(content, depth)
        if kind == "attributes":
            pairs, deleted = _list(content)
            values = {_text(name): self._value(value, depth + 1) for name, value in map(_list, _list(pairs))}
            return Attributes(values, [_text(name) for name in _list(deleted)])
        if kind == "keras":
            attributes = [_list(attribute) for attribute in _list(content["attributes"])]
            set_now = {(_text(key), _text(name)): self._value(value, depth + 1) for key, name, value in attributes}
            deleted = [(_text(key), _text(name)) for key, name in map(_list, _list(content["deleted"]))]
            return KerasState(content, set_now, deleted)
        if kind == "random":
            return generators.State(self._value(content, depth + 1))
        if kind in ("frame", "series", "index"):
            return tables.decode(kind, content, lambda encoded: self._value(encoded, depth + 1))
        raise ValueError("there is no kind %.40r" % kind)

    def _instance(self, name: str) -> Any:
        if self._class_named is None:
            raise Missing("an instance of %s, which is made in the notebook alone" % name)
        return object.__new__(self._class_named(name))

    def _array_of_objects(self, content: Any, depth: int) -> Any:
        import numpy as np

        shape, encoded = _list(content)
        values = self._all(encoded, depth)
        array = np.empty(len(values), dtype=object)
        for number, value in enumerate(values):
            array[number] = value
        return array.reshape([_number(size) for size in _list(shape)])

    def _history(self, content: Any, depth: int) -> Any:
        parts = [self._value(content[name], depth + 1) for name in ("history", "epoch", "params")]
        history, epoch, params = parts
        if type(history) is not dict or type(epoch) is not list or type(params) is not dict:
            raise ValueError("a history of another form")
        model = None if content["model"] is None else self._value(content["model"], depth + 1)
        keras = sys.modules.get("keras")
        if keras is None:
            return History(history, epoch, params, model)
        restored = keras.callbacks.History()
        restored.history, restored.epoch = history, epoch
        restored.set_params(params)
        if model is not None:
            restored.set_model(model)
        return restored


def loaded_array(data: bytes) -> Any:
    """The array of a .npy file. Raises Damaged."""
    import io

    import numpy as np

    with _damage():
        array = np.load(io.BytesIO(data), allow_pickle=False)
        if type(array) is not np.ndarray or array.dtype.kind not in ARRAY_KINDS:
            raise ValueError("no array of numbers, texts or times")
        return array


class _damage:
    """As a context, raises Damaged where what is read is not of its form."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, _traceback: Any) -> None:
        if isinstance(error, (ValueError, TypeError, KeyError, IndexError, OverflowError, MemoryError, EOFError)):
            raise Damaged(str(error).splitlines()[0] if str(error) else kind.__name__) from error
        if isinstance(error, RecursionError):
            raise Damaged("it is nested too deeply") from error


def _entry(encoded: Any) -> tuple[str, Any]:
    if type(encoded) is not dict or len(encoded) != 1:
        raise ValueError("no value: %.60r" % (encoded,))
    ((kind, content),) = encoded.items()
    return kind, content


def _list(content: Any) -> list[Any]:
    if type(content) is not list:
        raise ValueError("no list: %.60r" % (content,))
    return content


def _text(content: Any) -> str:
    if type(content) is not str:
        raise ValueError("no text: %.60r" % (content,))
    return content


def _number(content: Any) -> int:
    if type(content) is not int or content < 0:
        raise ValueError("no index: %.60r" % (content,))
    return content


def _index(content: Any, table: Sequence[Any]) -> int:
    if _number(content) >= len(table):
        raise ValueError("there is no object %d" % content)
    return int(content)


def _bytes(content: Any) -> bytes:
    return base64.b64decode(_text(content), validate=True)


def _empty(kind: str, content: Any) -> Any:
    if kind != "defaultdict":
        return _EMPTY[kind]()
    name = _list(content)[0]
    return collections.defaultdict(None if name is None else FACTORIES[_text(name)])


def _scalar(content: Any) -> Any:
    import numpy as np

    dtype, value = _list(content)
    if not _SCALAR.fullmatch(_text(dtype)) or type(value) not in (bool, int, float):
        raise ValueError("no number of NumPy: %.60r" % (content,))
    return np.dtype(dtype).type(value)


def _tensor(array: Any) -> Any:
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is None:
        raise Missing("a tensor, and TensorFlow is not loaded here")
    return tensorflow.constant(array)


_SIMPLE: Mapping[str, Callable[[Any], Any]] = {
    "bytes": _bytes,
    "complex": lambda content: complex(*map(float, _list(content))),
    "range": lambda content: range(*map(int, _list(content))),
    "scalar": _scalar,
    "path": lambda content: pathlib.Path(_text(content)),
    "date": lambda content: datetime.date.fromisoformat(_text(content)),
    "datetime": lambda content: datetime.datetime.fromisoformat(_text(content)),
    "timedelta": lambda content: datetime.timedelta(*map(int, _list(content))),
}
