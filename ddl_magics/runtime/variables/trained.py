"""A model that a run has trained: loaded, or given back to the notebook's own model, which keeps its identity."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import zipfile
from types import ModuleType
from typing import Any, Iterator, Mapping, Sequence

from .. import native_chatter
from ..keras_types import Model, Optimizer, Variable, inner_optimizer
from ..lambda_layers import functions_in

#: The first Keras without a published way around its safe mode: docs/security.md. An older one loads nothing unasked.
SAFE_KERAS = (3, 13, 2)


class CannotRestore(Exception):
    """The message follows the model's name, in one line."""


def load(path: str, custom_objects: Mapping[str, Any]) -> Model:
    """The model of a .keras file, in Keras' safe mode. custom_objects: the notebook's classes and functions, by name.

    Raises CannotRestore.
    """
    with native_chatter.left_out():
        return _load(path, custom_objects)


def _load(path: str, custom_objects: Mapping[str, Any]) -> Model:
    try:
        import keras
    except ImportError:
        raise CannotRestore("Keras is not installed here") from None
    if tuple(map(int, re.findall(r"[0-9]+", keras.__version__)[:3])) < SAFE_KERAS:
        raise CannotRestore("Keras %s here does not load models by itself" % keras.__version__)
    if functions_in(path)[0]:
        raise CannotRestore("the code of its Lambda layers is not loaded unasked: model() of the run loads it")
    try:
        with tempfile.TemporaryDirectory() as folder:
            named = os.path.join(folder, "model.keras")  # Keras tells the format by the name; a driver's file has none
            os.symlink(os.path.abspath(path), named)
            return keras.models.load_model(named, custom_objects=dict(custom_objects))
    except Exception as error:  # of Keras and of the notebook's own classes, of many kinds
        raise CannotRestore(first_line(error)) from error


def restore(
    model: Model,
    weights_path: str,
    model_path: str | None,
    custom_objects: Mapping[str, Any],
    optimizer: Optimizer | None = None,
) -> None:
    """Give `model` the weights, and the optimizer with its state, of a trained model that was pickled from it.

    model_path: of the trained one's .keras file; None where it could not be saved. custom_objects: as for `load`.
    optimizer: of the notebook, which is the model's; None: a new one.

    Raises CannotRestore: the model has other weights, and stays as it is; or it has the weights alone.
    """
    import numpy as np

    with np.load(weights_path, allow_pickle=False) as arrays:
        weights = [arrays["arr_%d" % number] for number in range(len(arrays.files))]
    config = _config(model_path)
    shapes = [tuple(array.shape) for array in weights]
    if not _weights(model) and config.get("build_config"):
        try:
            model.build_from_config(config["build_config"])
        except Exception as error:  # of Keras and of the notebook's own classes, of many kinds
            raise CannotRestore("it cannot be built here (%s)" % first_line(error)) from error
    if [tuple(variable.shape) for variable in _weights(model)] != shapes:
        raise CannotRestore("its weights have other shapes here")
    model.set_weights(weights)
    if model_path is None:
        if getattr(model, "optimizer", None) is None:
            return
        raise CannotRestore("its weights have come, its optimizer has not")
    try:
        with _keras_of(model).utils.custom_object_scope(dict(custom_objects)):
            _restore_optimizer(model, model_path, config.get("compile_config"), optimizer)
    except Exception as error:  # of Keras and of the notebook's own classes, of many kinds
        raise CannotRestore("its weights have come, its optimizer has not (%s)" % first_line(error)) from error


def _weights(model: Model) -> Sequence[Variable]:
    try:
        return list(model.weights)
    except ValueError:  # of a model of Keras 2 that is not built
        return []


def _restore_optimizer(model: Model, path: str, compiled: Any, optimizer: Optimizer | None) -> None:
    if not compiled:
        return
    if optimizer is None:
        model.compile_from_config(compiled)
    else:
        _set_hyperparameters(model, optimizer, compiled.get("optimizer"))
        if model.optimizer is not optimizer or not _is_compiled_so(model, compiled):
            settings = _decoded(model, {name: value for name, value in compiled.items() if name != "optimizer"})
            model.compile(optimizer=optimizer, **settings)
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None:
        raise CannotRestore("compile it again")
    import h5py

    with tempfile.TemporaryDirectory() as folder:  # in memory, it would take that of model and optimizer once more
        with zipfile.ZipFile(path) as archive:
            extracted = archive.extract("model.weights.h5", folder)
        with h5py.File(extracted, "r") as file:
            if "optimizer" in file:
                if not _fits(optimizer, file["optimizer"]):
                    optimizer.build(model.trainable_variables)
                for variable, array in list(_states(optimizer, file["optimizer"])):
                    variable.assign(array)


def _set_hyperparameters(model: Model, optimizer: Any, stored: Any) -> None:
    """Those in which its configuration differs from the stored one; the rate is a variable, or a schedule."""
    current = _as_json(optimizer.get_config())
    for name, value in stored["config"].items():
        if name == "inner_optimizer":
            _set_hyperparameters(model, optimizer.inner_optimizer, value)
        elif name != "name" and value != current.get(name, value):
            setattr(optimizer, name, _decoded(model, value))


def _decoded(model: Model, config: Any) -> Any:
    return _keras_of(model).saving.deserialize_keras_object(config) if isinstance(config, dict) else config


def _fits(optimizer: Optimizer, group: Any) -> bool:
    """Whether it has as many variables as the group: one that a loop of the cell does without is never built."""
    inner = inner_optimizer(optimizer)
    same_count = len(optimizer.variables) == len(group["vars"])
    return same_count and (
        inner is optimizer or "inner_optimizer" not in group or _fits(inner, group["inner_optimizer"])
    )


def _states(optimizer: Optimizer, group: Any) -> Iterator[tuple[Variable, Any]]:
    """(variable, its value) of an optimizer, and of the one in it, from a group of the file."""
    variables, stored = list(optimizer.variables), group["vars"]
    if len(variables) != len(stored):
        raise CannotRestore("it has %d variables here, and %d there" % (len(variables), len(stored)))
    for number, variable in enumerate(variables):
        array = _array(stored, str(number))
        if tuple(variable.shape) != array.shape:
            raise CannotRestore("its variables have other shapes here")
        yield variable, array
    inner = inner_optimizer(optimizer)
    if inner is not optimizer and "inner_optimizer" in group:
        yield from _states(inner, group["inner_optimizer"])


def _array(group: Any, name: str) -> Any:
    """An array of the file itself: HDF5 can refer to other files."""
    import h5py

    if not isinstance(group.get(name, getlink=True), h5py.HardLink) or group[name].external:
        raise CannotRestore("its file refers to another one")
    return group[name][()]


def _is_compiled_so(model: Model, compiled: Mapping[str, Any]) -> bool:
    """Whether the cell has left the model compiled as it was; its rate may have changed, which is a variable."""
    if getattr(model, "optimizer", None) is None:
        return False
    try:
        current = _as_json(model.get_compile_config())
    except (TypeError, ValueError, AttributeError):
        return False
    return bool(_without_rate(current) == _without_rate(compiled))


def _as_json(config: Any) -> Any:
    return json.loads(json.dumps(config, default=str))


def _without_rate(compiled: Any) -> Any:
    text = json.dumps(compiled, sort_keys=True)
    return re.sub(r'"learning_rate": [-+.0-9eE]+', '"learning_rate": 0', text)


def _config(path: str | None) -> Any:
    if path is None:
        return {}
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.read("config.json"))


def _keras_of(model: Model) -> ModuleType:
    names = [str(cls.__module__).partition(".")[0] for cls in type(model).__mro__ if cls.__name__ == "Model"]
    return sys.modules[names[-1]]


def first_line(error: Exception) -> str:
    """Of its message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
