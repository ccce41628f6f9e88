"""What the code of a cell keeps in Python: numbers, lists and objects that a tried function changes, and gets back.

A loss may count its calls to warm up, a metric may collect rows in a list, and both would begin with what a trial has
left there. So a trial looks through what the tried code can reach: the names that it mentions, its closures, defaults
and attributes, and the cell's objects in these.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import functools
import random
import sys
import types
from typing import Any, Callable, Dict, Iterable, Iterator, MutableMapping

import numpy as np
import tensorflow as tf

from ..keras_types import is_of_keras

_PLAIN = (
    int,
    float,
    complex,
    str,
    bytes,
    type(None),
    np.generic,
    tf.Tensor,
    tf.DType,
    tf.TensorShape,
    types.ModuleType,
)
_LISTS = (list, collections.deque)

#: Contents of more items or numbers are not copied: of a list, the items that a trial appends are dropped.
_MOST_ITEMS = 1_000_000

_INSTALLED = ("site-packages", "dist-packages", "/lib/python")
_PACKAGE = __name__.rsplit(".trial.", 1)[0]
_LIBRARIES = ("keras", "tf_keras", "tensorflow", "numpy", "builtins", _PACKAGE)

_ABSENT = object()

#: {what was changed: the arrays in it}.
Changes = Dict[str, Any]


class PythonState:
    """What the code of `roots` reaches in Python, as it is when this is made.

    roots: functions, losses, metrics, models. Left out are TensorFlow's variables, which `undone_assignments` restores,
    Keras' own attributes, and layers, metrics and variables that are made meanwhile, which stay. A generator does not
    go back.
    """

    def __init__(self, roots: Iterable[Any]) -> None:
        self._visited: dict[int, Any] = {}  # the objects are kept, so that no other gets the id of one
        self._holders: list[_Holder] = []
        self._names: dict[int, str] = {}  # of objects, for messages
        waiting = list(roots)
        while waiting:
            value = waiting.pop()
            if id(value) not in self._visited and not isinstance(value, _PLAIN):
                self._visited[id(value)] = value
                waiting.extend(self._look_into(value))

    @contextlib.contextmanager
    def restored(self) -> Iterator[None]:
        """Put everything back afterwards."""
        try:
            yield
        finally:
            self.restore()

    def restore(self) -> None:
        """Put everything back."""
        for holder in self._holders:
            holder.restore()

    def changes(self, excluded: PythonState | None = None) -> Changes:
        """What differs from its value of before, except for what `excluded` reaches, too."""
        apart = () if excluded is None else excluded._visited
        changed: Changes = {}
        for holder in self._holders:
            if id(holder.owner) not in apart:
                changed.update(holder.changes())
        return changed

    def _look_into(self, value: Any) -> list[Any]:
        """Note a value's contents. Returns what it refers to."""
        if isinstance(value, types.FunctionType):
            return self._look_into_function(value) if is_of_cell(value.__module__) else []
        if isinstance(value, (types.MethodType, staticmethod, classmethod)):
            return [getattr(value, "__self__", None), value.__func__]
        if isinstance(value, functools.partial):
            return [value.func, *value.args, *value.keywords.values()]
        if isinstance(value, property):
            return [value.fget, value.fset]
        if isinstance(value, type):
            return self._look_into_class(value)
        if isinstance(value, tuple):
            return list(value)
        if isinstance(value, (*_LISTS, dict, set)):
            self._note_contents(value)
            return list(value.values() if isinstance(value, dict) else value) if len(value) <= _MOST_ITEMS else []
        if isinstance(value, np.ndarray):
            if value.size <= _MOST_ITEMS and value.dtype != object:
                self._note_contents(value)
            return []
        if isinstance(value, (np.random.Generator, np.random.RandomState, random.Random)):
            self._holders.append(_RandomState(value))
            return []
        return self._look_into_object(value)

    def _look_into_function(self, function: types.FunctionType) -> list[Any]:
        values: list[Any] = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        holders = [_Names(function, function.__globals__, _names_in(function.__code__) - {"__builtins__"})]
        free = zip(function.__code__.co_freevars, function.__closure__ or ())
        holders += [_Names(cell, _Closure(name, cell)) for name, cell in free]
        holders += [_Names(function, vars(function))]
        return values + [value for holder in holders for value in self._note(holder)]

    def _look_into_class(self, kind: type) -> list[Any]:
        if not is_of_cell(kind.__module__):
            return []
        names = {name for name in vars(kind) if not name.startswith("__") or name in ("__init__", "__call__")}
        attributes = _Names(kind, _ClassAttributes(kind), names)
        return [*self._note(attributes), *kind.__bases__]

    def _look_into_object(self, value: Any) -> list[Any]:
        attributes = getattr(value, "__dict__", None)
        kind = type(value)
        if not isinstance(attributes, dict) or isinstance(value, tf.Variable):
            return []
        if hasattr(value, "python_function"):  # a tf.function
            return [value.python_function]
        of_cell = any(is_of_cell(base.__module__) or base is types.SimpleNamespace for base in kind.__mro__)
        if not any(is_of_library(base.__module__) for base in kind.__mro__[:-1]):
            if not of_cell:
                return []
            return [kind, *self._note(_Names(value, attributes))]
        followed = [kind, *(member for member in _members(attributes) if _is_followed(member))]
        if (of_cell or hasattr(value, "train_step")) and getattr(value, "built", True):
            mentioned: set[str] = set().union(*map(_names_in_class, kind.__mro__))
            holder = _Names(value, attributes, lambda name: not name.startswith("_") or name in mentioned)
            followed += self._note(holder)
        return followed

    def _note(self, holder: _Names) -> list[Any]:
        """Note a holder of names. Returns its values."""
        self._holders.append(holder)
        for name, value in holder.before.items():
            self._names.setdefault(id(value), name)
        return list(holder.before.values())

    def _note_contents(self, value: Any) -> None:
        self._holders.append(_Contents(value, self._names.get(id(value), type(value).__name__)))


def is_of_cell(module: str) -> bool:
    """Whether a module is the cell or a file of the user's, not one that is installed."""
    if is_of_library(module):
        return False
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        return module not in sys.modules or module == "__main__"
    return not any(folder in file for folder in _INSTALLED)


def is_of_library(module: str) -> bool:
    """Whether it is a module of Keras, TensorFlow, NumPy, or this library."""
    return any(module == library or module.startswith(library + ".") for library in _LIBRARIES)


def _names_in(code: types.CodeType) -> set[str]:
    inner = [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return set(code.co_names).union(*map(_names_in, inner))


def _names_in_class(kind: type) -> set[str]:
    """The names that the methods of a class of the cell mention."""
    if not is_of_cell(kind.__module__):
        return set()
    functions = [getattr(value, "__func__", value) for value in vars(kind).values()]
    return set().union(*(_names_in(function.__code__) for function in functions if hasattr(function, "__code__")))


def _members(attributes: dict[str, Any]) -> Iterator[Any]:
    """The values of attributes, and what lies in lists, tuples and dicts of them."""
    for value in attributes.values():
        yield value
        if isinstance(value, (list, tuple, dict)) and len(value) <= _MOST_ITEMS:
            yield from value.values() if isinstance(value, dict) else value


def _is_followed(value: Any) -> bool:
    """Whether an object of Keras may lead to code or state of the cell by this attribute."""
    if isinstance(value, (types.FunctionType, types.MethodType, functools.partial)):
        return True
    kind = type(value)
    return hasattr(kind, "get_config") or is_of_cell(kind.__module__) or kind.__name__.endswith("Container")


class _Holder:
    """Where something may change. owner: the object it belongs to."""

    owner: Any

    def restore(self) -> None: ...

    def changes(self) -> Changes:
        return {}


class _Names(_Holder):
    """Values by name: of a module's variables, of attributes, or of a closure.

    names: those that count, all by default: a set, or a function that says it of one. before: their values.
    """

    def __init__(
        self, owner: Any, namespace: MutableMapping[str, Any], names: set[str] | Callable[[str], bool] | None = None
    ) -> None:
        self.owner, self._namespace = owner, namespace
        self._counts = names if callable(names) else None
        self._names = names if isinstance(names, set) else None
        self.before = self._current()

    def _current(self) -> dict[str, Any]:
        namespace, counts = self._namespace, self._counts
        if self._names is not None:
            return {name: namespace[name] for name in self._names if name in namespace}
        return {name: value for name, value in list(namespace.items()) if counts is None or counts(name)}

    def _changed(self) -> Iterator[tuple[str, Any]]:
        """(name, value before), which is _ABSENT for a new name."""
        current = self._current()
        for name in {**self.before, **current}:
            before = self.before.get(name, _ABSENT)
            if current.get(name, _ABSENT) is not before and not _is_made(current.get(name)):
                yield name, before

    def restore(self) -> None:
        for name, before in self._changed():
            if before is _ABSENT:
                del self._namespace[name]
            else:
                self._namespace[name] = before

    def changes(self) -> Changes:
        current = self._current()
        return {name: _copied(current.get(name)) for name, _ in self._changed()}


class _Closure(MutableMapping[str, Any]):
    """One variable of a closure."""

    def __init__(self, name: str, cell: Any) -> None:
        self._name, self._cell = name, cell

    def __getitem__(self, name: str) -> Any:
        try:
            return self._cell.cell_contents
        except ValueError:  # it has no value yet
            raise KeyError(name) from None

    def __setitem__(self, name: str, value: Any) -> None:
        self._cell.cell_contents = value

    def __delitem__(self, name: str) -> None:
        del self._cell.cell_contents

    def __iter__(self) -> Iterator[str]:
        return iter((self._name,) if self.get(self._name, _ABSENT) is not _ABSENT else ())

    def __len__(self) -> int:
        return sum(1 for _ in self)


class _ClassAttributes(MutableMapping[str, Any]):
    def __init__(self, kind: type) -> None:
        self._kind = kind

    def __getitem__(self, name: str) -> Any:
        return vars(self._kind)[name]

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self._kind, name, value)

    def __delitem__(self, name: str) -> None:
        delattr(self._kind, name)

    def __iter__(self) -> Iterator[str]:
        return iter(vars(self._kind))

    def __len__(self) -> int:
        return len(vars(self._kind))


class _Contents(_Holder):
    """What lies in a list, a dict, a set or an array."""

    def __init__(self, owner: Any, name: str) -> None:
        self.owner, self._name = owner, name
        self._length = len(owner) if isinstance(owner, _LISTS) and len(owner) > _MOST_ITEMS else None
        self._before: Any = None if self._length is not None else _copied(owner)

    def restore(self) -> None:
        owner, before = self.owner, self._before
        if self._length is not None:
            while len(owner) > self._length:
                owner.pop()
        elif isinstance(owner, np.ndarray):
            if owner.flags.writeable:
                owner[...] = before
        elif self._differs() and not any(map(_is_made, _items(owner))):
            owner.clear()
            owner.extend(before) if isinstance(owner, _LISTS) else owner.update(before)

    def _differs(self) -> bool:
        if self._length is not None:
            return len(self.owner) != self._length
        if isinstance(self.owner, np.ndarray):
            return not np.array_equal(self.owner, self._before)
        if isinstance(self.owner, set):
            return bool(self.owner != self._before)
        before, current = _items(self._before), _items(self.owner)
        return len(before) != len(current) or any(item is not item_now for item, item_now in zip(before, current))

    def changes(self) -> Changes:
        return {self._name: list(_items(self.owner))} if self._differs() else {}


class _RandomState(_Holder):
    def __init__(self, owner: Any) -> None:
        self.owner = owner
        self._before = copy.deepcopy(owner.bit_generator.state if hasattr(owner, "bit_generator") else self._read())

    def _read(self) -> Any:
        return self.owner.getstate() if isinstance(self.owner, random.Random) else self.owner.get_state()

    def restore(self) -> None:
        if hasattr(self.owner, "bit_generator"):
            self.owner.bit_generator.state = self._before
        elif isinstance(self.owner, random.Random):
            self.owner.setstate(self._before)
        else:
            self.owner.set_state(self._before)


def _copied(value: Any) -> Any:
    """A copy of a list, a dict, a set or an array; anything else itself."""
    if isinstance(value, np.ndarray):
        return value.copy()
    for kind, basic in ((dict, dict), (set, set), (_LISTS, list)):
        if isinstance(value, kind):
            return basic(value)
    return value


def _items(value: Any) -> list[Any]:
    return [item for pair in value.items() for item in pair] if isinstance(value, dict) else list(value)


def differing(first: Changes, second: Changes) -> set[str]:
    """The names of what is not the same in both, as far as it is made of numbers."""
    return {name for name in {**first, **second} if not _equal(first.get(name), second.get(name))}


def _equal(value: Any, other_value: Any) -> bool:
    try:
        leaves, other_leaves = tf.nest.flatten(value), tf.nest.flatten(other_value)
        return len(leaves) == len(other_leaves) and all(
            np.array_equal(np.asarray(a), np.asarray(b)) for a, b in zip(leaves, other_leaves)
        )
    except Exception:  # whatever an object raises that is no number
        return True


def _is_made(value: Any) -> bool:
    """Whether it is a layer, a metric or a variable, or lies in a list: what a model makes in its first call.

    A method of such a metric that this library has replaced is, too.
    """
    if isinstance(value, (list, tuple, dict)):
        return any(_is_made(item) for item in (value.values() if isinstance(value, dict) else value))
    if isinstance(value, types.FunctionType):
        return value.__module__.startswith(_PACKAGE + ".")
    return isinstance(value, tf.Variable) or any(map(is_of_keras, type(value).__mro__))
