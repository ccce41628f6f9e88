"""The state of a layer, model, optimizer, metric or variable that a cell has changed, for the same object elsewhere.

It is JSON and arrays: what `Encoder` makes, and `apply` gives to the object of the notebook, which keeps its identity.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from typing import Any, Callable, Collection, Iterable, Iterator, Mapping, NamedTuple, Sequence, Tuple

from ..keras_types import Layer, Model, Variable, array_of
from . import fingerprint, keras_attributes
from .trained import CannotRestore

#: (package, class) of what has such a state.
_STATEFUL = frozenset(
    (package, name)
    for package in ("keras", "tf_keras")
    for name in ("Layer", "Optimizer", "BaseOptimizer", "Metric", "SeedGenerator", "Variable", "KerasVariable")
).union((("tensorflow", "BaseResourceVariable"), ("tensorflow", "Generator")))

#: Of a variable of the notebook: its object's text, and its index there.
VariableAddress = Tuple[str, int]


def classes(value: Any) -> frozenset[tuple[str, str]]:
    """(package, name) of its class and of those that this is derived from."""
    return _bases(type(value))  # type: ignore[arg-type]  # a class can be hashed


@functools.lru_cache(maxsize=256)
def _bases(kind: type) -> frozenset[tuple[str, str]]:
    return frozenset((str(cls.__module__).partition(".")[0], cls.__name__) for cls in kind.__mro__)


def has_state(value: Any) -> bool:
    """Whether it is such an object."""
    return not isinstance(value, type) and not _STATEFUL.isdisjoint(classes(value))


def is_a(value: Any, name: str) -> bool:
    """Whether it is of Keras' class of this name."""
    return not classes(value).isdisjoint((("keras", name), ("tf_keras", name)))


def is_optimizer(value: Any) -> bool:
    return is_a(value, "Optimizer") or is_a(value, "BaseOptimizer")


def variables(value: Any) -> list[Variable]:
    """All variables of its state, also of random numbers; those of a layer or model without its metrics."""
    if not is_a(value, "Layer"):
        if is_a(value, "SeedGenerator") or type(value).__name__ == "Generator":
            return [value.state]
        if not any(is_a(value, name) for name in ("Optimizer", "BaseOptimizer", "Metric")):
            return [value]
        listed = value.variables
        return [*_rate(value), *(listed() if callable(listed) else listed)]  # a method of optimizers of Keras 2
    metrics = {id(variable) for metric in getattr(value, "metrics", ()) for variable in metric.variables}
    try:
        listed = value.variables
    except ValueError:  # of a model of Keras 2 that is not built
        return []
    return [variable for variable in listed if id(variable) not in metrics and hasattr(variable, "shape")]


def _rate(value: Any) -> list[Variable]:
    """The learning rate of an optimizer of Keras 2, which is none of its listed variables."""
    rate = getattr(value, "_learning_rate", None)
    is_of_keras2 = is_a(value, "Optimizer") and not is_a(value, "BaseOptimizer")
    return [rate] if is_of_keras2 and hasattr(rate, "assign") else []


class Print(NamedTuple):
    """A fingerprint of a state. attributes: of what the cell keeps in Python."""

    arrays: Sequence[Any]
    tables: Sequence[Any]
    trainable: Sequence[bool]
    attributes: keras_attributes.Prints


def print_of(value: Any) -> Print:
    arrays = [fingerprint.of(array_of(variable)) for variable in variables(value)]
    tables = [fingerprint.of(content) for _, content in _tables(value)]
    return Print(arrays, tables, _trainable(value), keras_attributes.prints(owners(value)))


def owners(value: Any) -> keras_attributes.Owners:
    """Whose attributes are compared: a layer or model and all layers in it; an optimizer, a metric."""
    names = ("Layer", "Optimizer", "BaseOptimizer", "Metric")
    return keras_attributes.owners_of(value, layers(value)) if any(is_a(value, name) for name in names) else {}


def layers(value: Any) -> Sequence[Layer]:
    """Itself and all that are in it; none of what is no layer or model."""
    flatten: Callable[[], Iterator[Layer]] = getattr(value, "_flatten_layers", lambda: iter(()))
    return list(flatten())


def _trainable(value: Any) -> list[bool]:
    return [bool(layer.trainable) for layer in layers(value)]


def _tables(value: Any) -> Iterator[tuple[int, Any]]:
    """(index of a layer in it, what the layer has learned of data besides variables)."""
    return _tables_of(layers(value))


def _tables_of(flat: Sequence[Layer]) -> Iterator[tuple[int, Any]]:
    for index, layer in enumerate(flat):
        name = type(layer).__name__
        if is_a(layer, "IndexLookup"):
            yield index, _vocabulary(layer)
        elif name == "Discretization" and getattr(layer, "bin_boundaries", None) is not None:
            yield index, list(layer.bin_boundaries)


def _vocabulary(layer: Layer) -> Any:
    """Its tokens; with TF-IDF {"tokens": those without special ones, "weights": of all that it counts}."""
    if getattr(layer, "idf_weights", None) is None:
        return [_plain(token) for token in layer.get_vocabulary()]
    tokens = [_plain(token) for token in layer.get_vocabulary(include_special_tokens=False)]
    return {"tokens": tokens, "weights": [float(weight) for weight in array_of(layer.idf_weights)]}


def _plain(token: Any) -> Any:
    return str(token) if isinstance(token, str) else int(token)


def restored_with(models: Iterable[Model]) -> frozenset[int]:
    """The ids of variables that come with trained models."""
    objects = [(model, getattr(model, "optimizer", None), *getattr(model, "metrics", ())) for model in models]
    values = [value for group in objects for value in group if value]
    rates = [id(rate) for value in values for rate in _rate(value)]
    return frozenset(id(variable) for value in values for variable in variables(value)).difference(rates)


def comes_with(restored: Collection[int], value: Any, before: Any, after: Any) -> bool:
    """Whether what has changed of the object comes with a trained model. before, after: of `print_of`."""
    if not isinstance(after, Print) or before[1:] != after[1:]:
        return False
    pairs = itertools.zip_longest(before.arrays, after.arrays)
    weights = [(variable, pair) for variable, pair in zip(variables(value), pairs) if not _is_of_seeds(variable)]
    come = all(
        id(variable) in restored or print_before == print_after for variable, (print_before, print_after) in weights
    )
    return come and len(weights) == len(variables(value))


def _is_of_seeds(variable: Variable) -> bool:
    return "seed_generator" in str(getattr(variable, "name", ""))


def _own_variables(value: Any, is_trained: bool) -> list[Variable]:
    """is_trained: those that a trained model's weights do not have."""
    return [variable for variable in variables(value) if not is_trained or _is_of_seeds(variable)]


def encoded(
    value: Any, array: Callable[[Any], int], addresses: Mapping[int, VariableAddress], is_trained: bool
) -> dict[str, Any]:
    """JSON of its state, without its attributes. array: index of an array that travels. addresses: by the ids of the
    notebook's variables. is_trained: it is a model whose weights travel as a file, or whose variables have not changed.
    """
    import numpy as np

    trained = None
    if is_optimizer(value):
        weights = getattr(value, "_trainable_variables", None) or []
        trained = [addresses.get(id(variable)) for variable in weights]
        trained = None if None in trained else trained
    build: Any = value.get_build_config() if is_a(value, "Layer") else None
    return {
        "variables": [array(np.array(array_of(variable))) for variable in _own_variables(value, is_trained)],
        "is_trained": is_trained,
        "build": _lists(build),
        "trains": trained,
        "tables": list(_tables(value)),
        "trainable": _trainable(value),
    }


def _lists(config: Any) -> Any:
    """As JSON has it, or None where it has no such value."""
    if isinstance(config, dict):
        return {str(key): _lists(content) for key, content in config.items()}
    if isinstance(config, (list, tuple)):
        return [_lists(content) for content in config]
    return config if config is None or type(config) in (bool, int, float, str) else None


def apply(value: Any, state: Any, array: Callable[[int], Any], variable_at: Callable[[str, int], Variable]) -> None:
    """Give it the state, but for its attributes. Raises CannotRestore, an error of Keras, or ValueError, TypeError,
    KeyError for what is no such state, and leaves it as it is then."""
    arrays = [array(index) for index in state["variables"]]
    if len(_own_variables(value, state["is_trained"])) != len(arrays):
        _build(value, state, variable_at)
    targets = _own_variables(value, state["is_trained"])
    if [tuple(variable.shape) for variable in targets] != [content.shape for content in arrays]:
        raise CannotRestore("its variables have other shapes here")
    flat = layers(value)
    _set_tables(flat, state["tables"])
    for variable, content in zip(targets, arrays):
        variable.assign(content)
    if len(flat) == len(state["trainable"]):
        for layer, trainable in zip(flat, state["trainable"]):
            if layer.trainable != trainable:
                layer.trainable = bool(trainable)
    for layer in flat:
        if type(layer).__name__ == "Normalization":
            layer.finalize_state()


def _set_tables(flat: Sequence[Layer], tables: Sequence[Any]) -> None:
    """All of them, or none: what Keras refuses raises its error, before variables are set."""
    before = dict(_tables_of(flat))
    for number, (index, content) in enumerate(tables):
        try:
            _set_table(flat[index], content)
        except Exception:
            for index_before, _ in tables[:number]:
                with contextlib.suppress(ValueError, KeyError):  # it was empty
                    _set_table(flat[index_before], before[index_before])
            raise


def _set_table(layer: Layer, content: Any) -> None:
    lists = [content["tokens"], content["weights"]] if type(content) is dict else [content]
    if not all(
        type(entries) is list and all(type(entry) in (str, int, float) for entry in entries) for entries in lists
    ):
        raise ValueError("no table: %.60r" % (content,))
    if is_a(layer, "IndexLookup"):
        if _vocabulary(layer) == content:
            return
        if type(content) is dict:
            _set_weighted_vocabulary(layer, *lists)
        else:
            layer.set_vocabulary(content)
    else:
        layer.bin_boundaries = content
        layer.built = True


def _set_weighted_vocabulary(layer: Layer, tokens: Sequence[Any], weights: Sequence[float]) -> None:
    """Of TF-IDF. Keras makes the weights of special tokens anew, as means, which differ by rounding."""
    first = int(layer.num_oov_indices)
    layer.set_vocabulary(list(tokens), list(weights[first : first + len(tokens)]))
    layer.idf_weights.assign(weights)
    layer.idf_weights_const = layer.idf_weights.value()


def _build(value: Any, state: Any, variable_at: Callable[[str, int], Variable]) -> None:
    if isinstance(state["build"], dict) and state["build"] and not value.built:
        try:
            value.build_from_config(state["build"])
        except Exception as error:  # of a layer of the notebook, of any kind
            raise CannotRestore("it cannot be built here: call it once, in a cell before") from error
    elif isinstance(state["trains"], list):
        build: Any = value.build
        build([variable_at(*address) for address in state["trains"]])
