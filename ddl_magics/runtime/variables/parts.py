"""The objects that the notebook's values consist of: each has the text with which a cell would name it.

The process that has the values and a rank that has got them walk alike, so that a text names the same object in both.
"""

from __future__ import annotations

import types
from typing import Any, Iterator, Mapping

from . import compiled_metrics
from .keras_state import classes, has_state, is_a

#: More are not looked at: a list of many objects is compared as one value.
MAX_OBJECTS = 1000
_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_PLAIN_TYPES = frozenset(_PLAIN)
#: (library, class) of objects that keep what they have learned in attributes.
_LEARNING = frozenset((("keras", "Callback"), ("tf_keras", "Callback"), ("sklearn", "BaseEstimator")))
#: Of a callback: what its fit sets.
_OF_FIT = frozenset(("_model", "model", "_params", "params", "monitor_op"))
#: Of classes that add no state to the instances of a cell's class.
_MODULES_WITHOUT_STATE = frozenset(("__main__", "abc", "typing"))
_CODE = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType)


def of(values: Mapping[str, Any]) -> dict[str, Any]:
    """{text: object} of the values, and of what is reached from them: objects of the notebook's classes, what their
    attributes are, and objects of Keras in lists, dicts and attributes. Each once, by its first text.

    values: by their names.
    """
    objects = {name: values[name] for name in sorted(values)}
    seen = {id(value) for value in objects.values()}
    waiting = [(name, values[name], False) for name in sorted(values, reverse=True)]
    while waiting and len(objects) < len(values) + MAX_OBJECTS:
        text, value, inside = waiting.pop()
        entered = []
        for step, content in _contents(value):
            if isinstance(content, (*_PLAIN, *_CODE)) or id(content) in seen:
                continue
            seen.add(id(content))
            within = inside or is_instance(value)
            if within or has_state(content) or is_instance(content):
                objects[text + step] = content
            entered.append((text + step, content, within))
        waiting += reversed(entered)
    return objects


def _contents(value: Any) -> Iterator[tuple[str, Any]]:
    """(what follows a value's text, the content) of what is entered, and named so in a cell."""
    if is_instance(value):
        yield from ((".%s" % name, content) for name, content in sorted(attributes(value).items()))
    elif is_a(value, "Layer"):
        yield from ((".%s" % name, content) for name, content in _state_beside_layers(value))
        yield from compiled_metrics.objects(value)
    elif isinstance(value, (dict, list, tuple)) and _PLAIN_TYPES.issuperset(
        map(type, value.values() if isinstance(value, dict) else value)
    ):
        return
    elif isinstance(value, dict) and len(value) <= MAX_OBJECTS:
        yield from (("[%r]" % (key,), content) for key, content in list(value.items()) if type(key) in (str, int))
    elif isinstance(value, (list, tuple)) and len(value) <= MAX_OBJECTS:
        yield from (("[%d]" % index, content) for index, content in enumerate(value))


def _state_beside_layers(layer: Any) -> Iterator[tuple[str, Any]]:
    """Attributes: the optimizer of a model, objects of the notebook's classes; of a cell's layer or model also other
    optimizers, and metrics."""
    of_cell = type(layer).__module__ == "__main__"
    own = {**vars(layer), "optimizer": getattr(layer, "optimizer", None)}
    for name, value in sorted(own.items()):
        if name.startswith("_") or name == "history" or is_a(value, "Layer"):
            continue
        if is_instance(value) or (has_state(value) and (of_cell or name == "optimizer")):
            yield name, value


def is_instance(value: Any) -> bool:
    """Whether its attributes are compared: it is of a class that a cell has defined, or of a library's class that keeps
    in them what it has learned; and no object of Keras with variables."""
    if isinstance(value, (type, dict, list)) or has_state(value):
        return False
    return type(value).__module__ == "__main__" or not _LEARNING.isdisjoint(classes(value))


def is_plain_class(value: Any) -> bool:
    """Whether it is a class of the notebook or the cell whose instances consist of their attributes."""
    if not isinstance(value, type):
        return False
    return value.__module__ == "__main__" and all(
        cls.__module__ in _MODULES_WITHOUT_STATE for cls in value.__mro__[:-1]
    )


def attributes(instance: Any) -> dict[str, Any]:
    """Those that are its own, in slots as well."""
    slots = [name for cls in type(instance).__mro__ for name in _slots(cls) if hasattr(instance, name)]
    own = {**{name: getattr(instance, name) for name in slots}, **getattr(instance, "__dict__", {})}
    if is_a(instance, "Callback"):
        own = {name: value for name, value in own.items() if name not in _OF_FIT}
    return own


def _slots(cls: type) -> Iterator[str]:
    for name, member in vars(cls).items():
        if isinstance(member, types.MemberDescriptorType):
            yield name


def set_attribute(instance: Any, name: str, value: Any) -> None:
    """Without what the class may do when it is set, as a frozen one does."""
    if name in getattr(instance, "__dict__", {}) or not any(name in vars(cls) for cls in type(instance).__mro__):
        vars(instance)[name] = value
        return
    for cls in type(instance).__mro__:
        member = vars(cls).get(name)
        if isinstance(member, types.MemberDescriptorType):
            member.__set__(instance, value)
            return
    vars(instance)[name] = value


def delete_attribute(instance: Any, name: str) -> None:
    if name in getattr(instance, "__dict__", {}):
        del vars(instance)[name]
