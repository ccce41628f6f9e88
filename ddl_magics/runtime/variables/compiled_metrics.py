"""The states of a trained model's metrics, as its last epoch or evaluation has left them."""

from __future__ import annotations

from typing import Any, Callable, Iterator, Sequence

from ..keras_types import Metric, Model, Variable, array_of
from ..training import metric_shapes
from . import keras_attributes
from .trained import CannotRestore


def states(model: Model) -> list[Any]:
    import numpy as np

    return [np.array(array_of(variable)) for variable in _variables(model)]


def shapes(model: Model) -> Any:
    """For `restore`, where the metrics of the model are not built: of targets and outputs."""
    return metric_shapes.noted(_container(model))


def restore(model: Model, arrays: Sequence[Any], built_for: Any) -> None:
    """Give the metrics their states. built_for: of `shapes`. Raises CannotRestore; ValueError for what is no shape."""
    if len(_variables(model)) != len(arrays) and built_for is not None:
        _build(model, built_for)
    variables = _variables(model)
    if [tuple(variable.shape) for variable in variables] != [array.shape for array in arrays]:
        raise CannotRestore("their states have other shapes here: evaluate() sets them")
    for variable, array in zip(variables, arrays):
        variable.assign(array)


def objects(model: Any) -> Iterator[tuple[str, Metric]]:
    """(what follows the model's text, the metric) of those objects that `compile` has got: no names, no functions."""
    container = _container(model)
    waiting: list[Any] = [getattr(container, name, None) for name in ("_user_weighted_metrics", "_user_metrics")]
    while waiting:
        entry = waiting.pop()
        if isinstance(entry, (list, tuple)):
            waiting.extend(reversed(entry))
        elif isinstance(entry, dict):
            waiting.extend(reversed(list(entry.values())))
        elif hasattr(entry, "update_state"):
            yield ".metrics[%r]" % entry.name, entry


def attributes_of_new(metric: Metric) -> Iterator[str]:
    """The attributes in which a metric that the cell has made differs from the one that the notebook makes of its
    configuration."""
    kind: Any = type(metric)
    try:
        new = kind.from_config(metric.get_config())
    except Exception:  # of the cell's own class, of any kind: the model cannot be compiled in the notebook either
        return
    prints = [keras_attributes.prints(keras_attributes.owners_of(value, ())) for value in (new, metric)]
    yield from (name for _, name in keras_attributes.changed(*prints))


def compilation(model: Any) -> Any:
    """An object that each `compile` makes anew; None of a model that is not compiled."""
    return vars(model).get("_compile_config", vars(model).get("compiled_loss"))


def _variables(model: Model) -> list[Variable]:
    metrics = getattr(model, "metrics", ())
    return list({id(variable): variable for metric in metrics for variable in metric.variables}.values())


def _container(model: Model) -> Any:
    """Keras' own object, of either generation, in which the compiled metrics are."""
    return getattr(model, "_compile_metrics", None) or getattr(model, "compiled_metrics", None)


def _build(model: Model, built_for: Any) -> None:
    import tensorflow as tf

    container = _container(model)
    tensors = tf.nest.map_structure(metric_shapes.of_text, built_for)
    if container is None or type(tensors) is not tuple or len(tensors) != 2:
        return
    builds: list[Callable[[], None]] = [lambda: container.build(*tensors)]
    if hasattr(model, "compiled_loss") and hasattr(model.compiled_loss, "build"):  # Keras 2
        builds.append(lambda: model.compiled_loss.build(tensors[0]))
    try:
        for build in builds:
            build()
    except Exception as error:  # of the notebook's own metrics, of any kind
        raise CannotRestore("they cannot be built here: evaluate() does it") from error
