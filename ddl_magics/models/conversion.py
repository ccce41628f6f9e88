"""Keras' own export of a model as a SavedModel, for ONNX and for LiteRT, with what their converters do not see to."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ddl_magics.errors import CannotExport

#: Operations that LiteRT leaves to TensorFlow have such names, in the file's table of operations.
_OF_TENSORFLOW = re.compile(rb"(?<![A-Za-z])Flex([A-Z][A-Za-z0-9]+)\0")


def write(model: Any, path: Path, format: str, specs: Any) -> None:
    """Write the model's file, of a SavedModel its folder.

    Args:
        model: of Keras.
        path: of the file or folder.
        format: `saved_model`, `onnx` or `litert`.
        specs: what it takes, as `signature.input_specs` has it.

    Raises:
        CannotExport: the format does not have all that the model does.
        ImportError, and what the converters raise.
    """
    if format == "onnx":
        import onnx  # noqa: F401 - Keras' own message for a missing one is a page
        import tf2onnx  # noqa: F401
    name = "tf_saved_model" if format == "saved_model" else format
    with _PREPARED.get(format, contextlib.nullcontext)(model), _silent():
        model.export(str(path), format=name, verbose=False, input_signature=specs)
    if format in _CHECKS:
        _CHECKS[format](path)


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """TensorFlow does not say which files it writes: these are in a folder that is renamed afterwards."""
    loggers = [logging.getLogger(name) for name in ("tensorflow", "absl")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.WARNING)
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextlib.contextmanager
def _as_constants(model: Any) -> Iterator[None]:
    """Tensors that layers keep beside their weights are arrays of NumPy: of tensors, tf2onnx makes further inputs.

    Mean and variance of `Normalization` are such tensors.
    """
    import tensorflow as tf

    arrays = [
        (layer, name, value.numpy())
        for layer in model._flatten_layers()
        for name, value in vars(layer).items()
        if tf.is_tensor(value) and hasattr(value, "numpy") and not isinstance(value, tf.Variable)
    ]
    with _replaced(arrays):
        yield


@contextlib.contextmanager
def _unrolled(model: Any) -> Iterator[None]:
    """Recurrent layers are unrolled if the model's input has a known length: LiteRT has no lists of tensors."""
    import keras

    recurrent = [layer for layer in model._flatten_layers() if isinstance(layer, keras.layers.RNN)]
    length_is_known = all(None not in tensor.shape[1:] for tensor in getattr(model, "inputs", None) or ())
    with _replaced([(layer, "unroll", True) for layer in recurrent if length_is_known]):
        yield


@contextlib.contextmanager
def _replaced(changes: list[tuple[Any, str, Any]]) -> Iterator[None]:
    """(layer, attribute, value): the attribute has the value within. Keras' own `__setattr__` would track it."""
    originals = [(layer, name, getattr(layer, name)) for layer, name, _ in changes]
    try:
        for layer, name, value in changes:
            object.__setattr__(layer, name, value)
        yield
    finally:
        for layer, name, value in originals:
            object.__setattr__(layer, name, value)


def _check_onnx(path: Path) -> None:
    """tf2onnx leaves operations as they are that ONNX does not have."""
    import onnx

    unknown = {node.op_type for node in _nodes(onnx.load(str(path)).graph) if not onnx.defs.has(node.op_type)}
    _refuse("ONNX", unknown, "saved_model")


def _nodes(graph: Any) -> Iterator[Any]:
    """The operations of an ONNX graph, and of its loops and branches, that are of no library of their own."""
    for node in graph.node:
        if node.domain in ("", "ai.onnx"):
            yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _nodes(inner)


def _check_litert(path: Path) -> None:
    _refuse("LiteRT", {name.decode() for name in _OF_TENSORFLOW.findall(path.read_bytes())}, "onnx or saved_model")


def _refuse(format: str, operations: set[str], alternatives: str) -> None:
    if operations:
        names = ", ".join(sorted(operations))
        raise CannotExport(
            f"{format} does not have all that the model does ({names} of TensorFlow): choose {alternatives}"
        )


_PREPARED: dict[str, Callable[[Any], contextlib.AbstractContextManager[None]]] = {
    "onnx": _as_constants,
    "litert": _unrolled,
}
_CHECKS: dict[str, Callable[[Path], None]] = {"onnx": _check_onnx, "litert": _check_litert}
