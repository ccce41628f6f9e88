"""How objects of Keras 3 travel: by their state, as other objects of Python do, and not as saved files.

Keras' own pickles are its saved files: these lose functions and classes of the notebook, what an optimizer or a metric
that belongs to no model has counted, seeds of layers, and that an encoder is the one within the autoencoder. State has
all of it. What Keras keeps by the addresses of objects is made again by `complete`, once all of them are there.
"""

from __future__ import annotations

import collections
import copy
import itertools
import sys
from typing import Any, Callable, Dict, List, Mapping, Tuple

_Reduction = Tuple[Any, ...]

#: What a model or a layer has of its last step, or makes anew when it is needed: graphs of this process.
_OF_PROCESS: Dict[str, Callable[[], Any]] = {
    "_inbound_nodes": list,  # a model brings those of its layers
    "_outbound_nodes": list,
    "_losses": list,
    "_loss_ids": set,
    "_losses_override": list,
    "train_function": lambda: None,
    "test_function": lambda: None,
    "predict_function": lambda: None,
    "_distribute_strategy": lambda: None,
}


def reduction(value: Any) -> _Reduction | None:
    """What a pickler's `reducer_override` returns for `value`; None unless it is Keras 3's or a table of TensorFlow."""
    kind = type(value)
    for module, name, reduce in _REDUCTIONS:
        cls = getattr(sys.modules.get(module), name, None)
        if cls is not None and isinstance(value, cls):
            return reduce(value, kind)
    return None


def new(cls: Any) -> Any:
    """An instance without state. A layer's `__new__` wraps its methods."""
    return cls.__new__(cls)


def set_state(instance: Any, state: Mapping[str, Any]) -> None:
    """Without Keras' `__setattr__`, which would track what is tracked already."""
    vars(instance).update(state)


def static_table(kind: type, keys: Any, values: Any, default: Any) -> Any:
    """A `tf.lookup.StaticHashTable` with these pairs."""
    import tensorflow as tf

    return kind(tf.lookup.KeyValueTensorInitializer(keys, values), default)


def empty_table(kind: type, dtypes: Tuple[str, str], default: Any) -> Any:
    """A `tf.lookup.StaticHashTable` that is not initialized, as that of a layer without a vocabulary."""
    import tensorflow as tf
    from keras.src.layers.preprocessing import index_lookup

    return kind(index_lookup.get_null_initializer(*map(tf.as_dtype, dtypes)), default)


def mutable_table(kind: type, dtypes: Tuple[str, str], keys: Any, values: Any, default: Any) -> Any:
    """A `tf.lookup.experimental.MutableHashTable` with these pairs."""
    import tensorflow as tf

    table = kind(*map(tf.as_dtype, dtypes), default)
    table.insert(keys, values)
    return table


def _of_saveable(value: Any, kind: type) -> _Reduction:
    state = {key: item for key, item in vars(value).items() if not _wraps_method_of(value, item)}
    state.update((key, empty()) for key, empty in _OF_PROCESS.items() if key in state)
    state.pop("_distribution_strategy", None)  # the optimizer's
    return new, (kind,), state, None, None, set_state


def _wraps_method_of(layer: Any, item: Any) -> bool:
    """Whether `item` is what `Layer.__new__` has made of a method."""
    return callable(item) and getattr(getattr(item, "__wrapped__", None), "__self__", None) is layer


def _of_keras_tensor(value: Any, kind: type) -> _Reduction:
    return new, (kind,), vars(value), None, None, set_state


def _of_tracker(value: Any, kind: type) -> _Reduction:
    return new, (kind,), {**vars(value), "stored_ids": {name: set() for name in value.config}}, None, None, set_state


def _of_tracked_list(value: Any, kind: type) -> _Reduction:
    """Keras' containers without a tracker first: it would track what is tracked already."""
    return kind, (), vars(value), iter(value), None, set_state


def _of_tracked_dict(value: Any, kind: type) -> _Reduction:
    return kind, (), vars(value), None, iter(value.items()), set_state


def _of_dynamic_backend(value: Any, kind: type) -> _Reduction:
    return kind, (value._backend,)  # its __getattr__ never ends without


def _of_static_table(value: Any, kind: type) -> _Reduction:
    import tensorflow as tf

    try:
        keys, values = value.export()
    except tf.errors.AbortedError:  # of a layer that has learned no vocabulary yet
        return empty_table, (kind, (value.key_dtype.name, value.value_dtype.name), value.default_value)
    return static_table, (kind, keys, values, value.default_value)


def _of_mutable_table(value: Any, kind: type) -> _Reduction:
    keys, values = value.export()
    return mutable_table, (kind, (value.key_dtype.name, value.value_dtype.name), keys, values, value._default_value)


_REDUCTIONS: List[Tuple[str, str, Callable[[Any, type], _Reduction]]] = [
    ("keras.src.saving.keras_saveable", "KerasSaveable", _of_saveable),
    ("keras.src.backend.common.keras_tensor", "KerasTensor", _of_keras_tensor),
    ("keras.src.utils.tracking", "Tracker", _of_tracker),
    ("keras.src.utils.tracking", "TrackedList", _of_tracked_list),
    ("keras.src.utils.tracking", "TrackedDict", _of_tracked_dict),
    ("keras.src.utils.backend_utils", "DynamicBackend", _of_dynamic_backend),
    ("tensorflow.python.ops.lookup_ops", "StaticHashTable", _of_static_table),
    ("tensorflow.python.ops.lookup_ops", "MutableHashTable", _of_mutable_table),
]


def name_counts() -> Dict[str, int] | None:
    """How many names of each kind Keras has given in this process: a new layer's must not be that of one that came."""
    state = sys.modules.get("keras.src.backend.common.global_state")
    counts = state and state.get_global_attribute("object_name_uids")
    return dict(counts) if counts else None


def set_name_counts(counts: Mapping[str, int]) -> None:
    from keras.src.backend.common import global_state

    global_state.set_global_attribute("object_name_uids", collections.defaultdict(int, counts))


def needs_completion(value: Any) -> bool:
    """Whether `nodes_of` or `complete` have something to do for it."""
    names = ("stored_ids", "_nodes_by_depth", "_trainable_variables_indices", "_keras_history")
    return any(name in vars(value) for name in names)


def nodes_of(values: List[Any]) -> List[Any]:
    """The nodes of the graph of the symbolic tensors among `values`, without those that a model among them brings."""
    seen = {node for value in values for node in _nodes_of_model(value)}
    tensors = [value for value in values if "_keras_history" in vars(value)]
    nodes: List[Any] = []
    while tensors:
        operation, index, _ = tensors.pop()._keras_history
        node = operation and operation._inbound_nodes[index]
        if node and node not in seen:
            seen.add(node)
            nodes.append(node)
            tensors += node.input_tensors
    return nodes


def _nodes_of_model(value: Any) -> List[Any]:
    return [node for nodes in vars(value).get("_nodes_by_depth", {}).values() for node in nodes]


def complete(nodes: List[Any], values: List[Any]) -> None:
    """Make again what Keras keeps by addresses: once for all objects whose state is there."""
    for node in itertools.chain(nodes, *map(_nodes_of_model, values)):
        _attach(node)
    for value in values:
        state = vars(value)
        if "stored_ids" in state:
            value.stored_ids = {name: set(map(id, store)) for name, (_, store) in value.config.items()}
        if "_trainable_variables_indices" in state:
            _complete_optimizer(value, state)
        if "_nodes_by_depth" in state:
            from keras.src.ops.function import map_graph

            names = ("_nodes", "_nodes_by_depth", "_operations", "_operations_by_depth")
            state.update(zip(names, map_graph(value._inputs, value._outputs)))


def _complete_optimizer(optimizer: Any, state: Mapping[str, Any]) -> None:
    import tensorflow as tf

    vars(optimizer)["_distribution_strategy"] = tf.distribute.get_strategy()
    variables = state.get("_trainable_variables") or ()
    vars(optimizer)["_trainable_variables_indices"] = {
        optimizer._var_key(variable): index for index, variable in enumerate(variables)
    }


def _attach(node: Any) -> None:
    """Give an operation the node of one of its calls, at its place among the operation's.

    Calls outside of what has come are not there: in their places are copies, until another model brings their nodes.
    """
    attached, index = node.operation._inbound_nodes, node.outputs[0]._keras_history.node_index
    attached.extend(copy.copy(node) for _ in range(len(attached), index + 1))
    attached[index] = node
