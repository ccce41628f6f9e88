"""What a cell keeps in Python in objects of Keras: attributes of layers and models, optimizers and metrics.

Keras' own attributes are left out where they are graphs of one process, or come with the state of a model.
"""

from __future__ import annotations

import functools
import types
from typing import Any, Dict, Iterator, Mapping, Sequence, Tuple

from . import fingerprint, refilling

#: Of an attribute: the key of its owner, and its name.
Address = Tuple[str, str]
#: {key: object}: "" is the object of the notebook itself, a layer in it has its name.
Owners = Mapping[str, Any]
Prints = Dict[Address, Any]

#: Of layers and models: what a build or `compile` sets.
_OF_BUILD = frozenset(
    ("built", "input_spec", "inputs", "outputs", "input_names", "output_names", "bin_boundaries", "idf_weights_const")
)
_OF_COMPILE = frozenset(
    ("compiled", "compiled_loss", "compiled_metrics", "loss", "loss_weights", "optimizer", "run_eagerly", "jit_compile")
).union(("steps_per_execution", "predict_function", "test_function", "train_function", "train_tf_function"))
_OF_FIT = frozenset(("history", "stop_evaluating", "stop_training"))
_OF_KERAS = _OF_BUILD | _OF_COMPILE | _OF_FIT

_PACKAGES = frozenset(("keras", "tensorflow", "tf_keras"))
_CODE = (type, types.FunctionType, types.BuiltinFunctionType)


def owners_of(value: Any, layers: Sequence[Any]) -> Owners:
    """By keys that stay where a build adds layers. layers: of a model, itself first."""
    owners = {"": value}
    for layer in layers[1:]:
        key, number = str(layer.name), 1
        while key in owners:
            number += 1
            key = "%s, %d" % (layer.name, number)
        owners[key] = layer
    return owners


def values(owners: Owners) -> dict[Address, Any]:
    """The attributes of the objects that a cell may have set."""
    return {
        (key, name): content
        for key, owner in owners.items()
        for name, content in getattr(owner, "__dict__", {}).items()
        if is_settable(owner, name) and _is_kept_in_python(content)
    }


def prints(owners: Owners) -> Prints:
    """A fingerprint of each."""
    return {address: fingerprint.of(content) for address, content in values(owners).items()}


def changed(before: Prints, after: Prints) -> list[Address]:
    """The attributes that are others now, or gone; none of a layer that was not there before."""
    keys = {key for key, _ in before} | {""}
    different = (address for address in {**before, **after} if before.get(address, ...) != after.get(address, ...))
    return sorted(address for address in different if address[0] in keys)


def is_settable(owner: Any, name: str) -> bool:
    """Whether it may be an attribute of the cell's: no method, and nothing of Keras' own."""
    if name.startswith("_"):
        return name in _private_names(type(owner))  # type: ignore[arg-type]  # a class can be hashed
    return name not in _OF_KERAS and not callable(getattr(type(owner), name, None))


@functools.lru_cache(maxsize=256)
def _private_names(kind: type) -> frozenset[str]:
    """Those that classes of a cell mention, and no other class that they are derived from."""
    of_cell: set[str] = set()
    of_libraries: set[str] = set()
    for cls in kind.__mro__:
        (of_cell if cls.__module__ == "__main__" else of_libraries).update(_mentioned(cls))
    return frozenset(name for name in of_cell - of_libraries if name.startswith("_") and not name.startswith("__"))


def _mentioned(cls: type) -> Iterator[str]:
    for member in vars(cls).values():
        function = getattr(member, "__func__", getattr(member, "fget", member))
        code = getattr(getattr(function, "__wrapped__", function), "__code__", None)
        if code is not None:
            yield from code.co_names


def _is_kept_in_python(content: Any) -> bool:
    """Not what Keras and TensorFlow make in a build or a step: variables, layers, tables, graphs."""
    if isinstance(content, _CODE):
        return True
    kind = type(content)
    if str(kind.__module__).partition(".")[0] not in _PACKAGES:
        return not isinstance(content, (types.ModuleType, types.MethodType))
    if isinstance(content, (list, dict, set, tuple)) or kind.__name__ == "EagerTensor":
        return True
    return hasattr(kind, "get_config") and not hasattr(content, "variables")  # such as a regularizer


def text(of_object: str, address: Address) -> str:
    """What a cell calls the attribute."""
    key, name = address
    return "%s.%s" % (of_object, name) if not key else "%s.%s within %s" % (key, name, of_object)


def set_value(owner: Any, name: str, content: Any) -> None:
    """As a cell sets it; a list, a dict, a set or an array keeps its identity. Raises ValueError for what is none of a
    cell's attributes."""
    if not is_settable(owner, name):
        raise ValueError("%.40r is no attribute of a cell" % name)
    if not refilling.refill(vars(owner).get(name), content):
        setattr(owner, name, content)


def delete(owner: Any, name: str) -> None:
    if is_settable(owner, name) and name in vars(owner):
        delattr(owner, name)
