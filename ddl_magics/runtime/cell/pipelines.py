"""How a `tf.data` pipeline of the notebook travels: as the graph that TensorFlow makes of it.

Arrays, vocabularies and the seeds that were drawn when it was made are in the graph; files are read by each rank. What
has no seed in the notebook gets one of the run's, the same on each rank. What calls Python or reads a variable, whose
values change outside of the graph, cannot travel.
"""

from __future__ import annotations

import itertools
import os
import re
import sys
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Set, Tuple

#: Of `DatasetToGraphV2`: operations with a state are no error; `_refuse` knows them better.
_IGNORE = 1

#: Operations with a state that do the same on each rank.
_HARMLESS = re.compile(
    r"Dataset(V\d+)?$|^(_Retval|Dummy(SeedGenerator|MemoryCache)|HashTableV2|LookupTable(Import|Find|Size)V2|Assert|PrintV2)$"
)
_PYTHON = re.compile("PyFunc")
_VARIABLE = re.compile("Variable|VarHandle|^Rng|StatefulUniform|Stateful.*Normal")
_READS_FILES = re.compile("^(ReadFile|(TextLine|TFRecord|FixedLengthRecord|CSV).*Dataset.*)$")

#: On a rank: name in the notebook -> (resource, what deletes it), for the life of the process.
_resources: Dict[str, Any] = {}
_numbers = itertools.count()

#: At most so many files of a list are looked for on a rank.
_LOOKED_FOR = 100


class MissingFile(Exception):
    """A file that a pipeline reads is not on this machine. The message is its path."""


def is_pipeline(value: Any) -> bool:
    datasets = sys.modules.get("tensorflow.python.data.ops.dataset_ops")
    return datasets is not None and isinstance(value, datasets.DatasetV2)


def reduction(value: Any) -> Tuple[Callable[..., Any], Tuple[Any, ...]] | None:
    """What a pickler's `reducer_override` returns for a pipeline; None for others. TypeError where it has no graph."""
    if not is_pipeline(value):
        return None
    import tensorflow as tf

    try:
        graph = tf.raw_ops.DatasetToGraphV2(
            input_dataset=value._variant_tensor, external_state_policy=_IGNORE, strip_device_assignment=True
        ).numpy()
    except tf.errors.OpError as error:
        raise TypeError(error.message.rpartition("graph: ")[2].partition(" [Op:")[0]) from None
    definition = tf.compat.v1.GraphDef.FromString(graph)
    _refuse(definition)
    files = _files(definition)
    del definition
    own = {name: item for name, item in vars(value).items() if not name.startswith("_")}  # such as class_names
    return pipeline, (graph, value.element_spec, files, own)


def _refuse(definition: Any) -> None:
    """TypeError for what is not in the graph as it is in the notebook."""
    from tensorflow.python.framework import op_def_registry

    for node in itertools.chain(*_scopes(definition)):
        operation = op_def_registry.get(node.op)
        if operation is not None and not operation.is_stateful:
            continue
        if _PYTHON.search(node.op):
            raise TypeError("it calls functions of Python, by a generator, tf.py_function or tf.numpy_function")
        if _VARIABLE.search(node.op):
            raise TypeError("it reads variables, as layers that draw at random and tf.random.Generator do")
        if "seed2" not in node.attr and not _HARMLESS.search(node.op):
            raise TypeError("its operation %s has a state" % node.op)
        if node.op.startswith("CacheDataset") and _cache_file(node, definition):
            raise TypeError("it caches in a file, and all workers would write it: cache() keeps rows in memory")


def _scopes(definition: Any) -> Iterator[Any]:
    """The nodes of the graph, and those of each of its functions."""
    yield definition.node
    for function in definition.library.function:
        yield function.node_def


def _cache_file(cache: Any, definition: Any) -> bool:
    name = cache.input[1].partition(":")[0]
    nodes = itertools.chain(*_scopes(definition))
    return any(node.name == name and node.op == "Const" and _texts(node)[0] for node in nodes)


def _texts(constant: Any) -> Any:
    """The strings of a node, from whose bytes `tf.make_ndarray` makes none."""
    import tensorflow as tf

    return tf.reshape(tf.io.parse_tensor(constant.attr["value"].tensor.SerializeToString(), tf.string), [-1]).numpy()


def _files(definition: Any) -> List[str]:
    """Some of the files of this machine that the pipeline reads."""
    import tensorflow as tf

    nodes = list(itertools.chain(*_scopes(definition)))
    if not any(_READS_FILES.match(node.op) for node in nodes):
        return []
    files: List[str] = []
    for node in nodes:
        if node.op == "Const" and node.attr["dtype"].type == tf.string.as_datatype_enum:
            paths = _texts(node)
            some = paths[:: len(paths) // _LOOKED_FOR + 1].tolist()
            files += [os.fsdecode(path) for path in some if b"\0" not in path and os.path.isfile(path)]
    return files


def pipeline(graph: bytes, element_spec: Any, files: Iterable[str], own: Mapping[str, Any]) -> Any:
    """The `tf.data.Dataset` of a graph, on a rank. MissingFile."""
    import tensorflow as tf
    from tensorflow.python.data.ops import dataset_ops

    missing = next((path for path in files if not os.path.exists(path)), None)
    if missing is not None:
        raise MissingFile(missing)
    definition = tf.compat.v1.GraphDef.FromString(graph)
    goes_on = any(_keeps_shuffling(node, definition.node) for node in definition.node)
    unseeded = [_seed(nodes, in_function=nodes is not definition.node) for nodes in _scopes(definition)]
    _rename_functions(definition)
    (output,) = [node.input[0] for node in definition.node if node.op == "_Retval"]
    resources = dict(_shared_resources(definition.node))

    def imported() -> Any:
        inputs = {name: tf.identity(resource) for name, resource in resources.items()}
        return tf.graph_util.import_graph_def(definition, inputs, [output if ":" in output else output + ":0"])[0]

    dataset = dataset_ops._VariantDataset(tf.compat.v1.wrap_function(imported, [])(), element_spec)
    vars(dataset).update(own, _ddl_graph=_without_values(definition), _ddl_goes_on=goes_on)
    vars(dataset).update(_ddl_is_seeded=not any(unseeded))
    return dataset


def begin_anew(namespace: Mapping[str, Any]) -> List[str]:
    """The names of pipelines that have travelled, and of their lists and dicts, whose order goes on from iteration to
    iteration in the notebook."""
    names = []
    for name, value in namespace.items():
        items = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else [value]
        if any(is_pipeline(item) and getattr(item, "_ddl_goes_on", False) for item in items):
            names.append(name)
    return names


def _keeps_shuffling(node: Any, nodes: Any) -> bool:
    """Whether it shuffles in an order that follows from its seed and its iterations before."""
    if not node.op.startswith("Shuffle") or not node.attr["reshuffle_each_iteration"].b:
        return False
    return not {name.partition(":")[0] for name in node.input[2:4]} <= _zeros(nodes)


def _zeros(nodes: Any) -> Set[str]:
    """The names of constants of 0, of seeds among others."""
    return {node.name for node in nodes if node.op == "Const" and _is_zero(node)}


def _seed(nodes: Any, in_function: bool) -> bool:
    """Give what draws without a seed one of this process, as if it had been made here.

    Returns whether there are such operations in functions, as `tf.random.uniform`.
    """
    import tensorflow as tf

    draws = False
    zeros = _zeros(nodes)
    for number, node in enumerate(list(nodes)):
        if "seed2" in node.attr:
            if not node.attr["seed"].i and not node.attr["seed2"].i:
                node.attr["seed"].i, node.attr["seed2"].i = _next_seeds()
                draws = True
            continue
        first = {"S": 2, "R": 0}.get(node.op[0]) if node.op.startswith(("Shuffle", "SamplingD", "RandomD")) else None
        if first is None or not {name.partition(":")[0] for name in node.input[first : first + 2]} <= zeros:
            continue
        for place, seed in enumerate(_next_seeds()):
            constant = nodes.add()
            constant.name, constant.op = "run_seed_%d_%d" % (number, place), "Const"
            constant.attr["dtype"].type = tf.int64.as_datatype_enum
            constant.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(seed, tf.int64))
            node.input[first + place] = constant.name + (":output:0" if in_function else "")
    return draws


def _next_seeds() -> Tuple[int, int]:
    import tensorflow as tf

    seed, seed2 = tf.compat.v1.random.get_seed(None)
    return seed or 0, seed2 or 0


def _is_zero(constant: Any) -> bool:
    import tensorflow as tf

    tensor = constant.attr["value"].tensor
    is_scalar = tensor.dtype == tf.int64.as_datatype_enum and not tensor.tensor_shape.dim
    return is_scalar and not tf.make_ndarray(tensor).any()


def _rename_functions(definition: Any) -> None:
    """TensorFlow numbers functions in each process from 0: those of the notebook have names of others here."""
    number = next(_numbers)
    old_names = [function.signature.name for function in definition.library.function]
    names = {name: "notebook_%d_%s" % (number, name) for name in old_names}
    for function in definition.library.function:
        function.signature.name = names[function.signature.name]
    for node in itertools.chain(*_scopes(definition)):
        node.op = names.get(node.op, node.op)
        for value in node.attr.values():
            for called in [value.func] if value.HasField("func") else value.list.func:
                called.name = names.get(called.name, called.name)


def _shared_resources(nodes: Any) -> Iterator[Tuple[str, Any]]:
    """(the constant that a dataset's generator of seeds or cache is in the graph, one of this process): one for all
    pipelines that share it in the notebook."""
    import tensorflow as tf

    constants = {node.name: node.attr["value"].tensor for node in nodes if node.op == "Const"}
    for node in nodes:
        tensors = [constants.get(name.partition(":")[0]) for name in node.input]
        if not tensors or tensors[-1] is None or not tensors[-1].resource_handle_val:
            continue
        key = tensors[-1].resource_handle_val[0].name
        if key not in _resources and node.op.startswith("Cache"):
            _resources[key] = tf.raw_ops.AnonymousMemoryCache()
        elif key not in _resources:
            seed, seed2 = [tf.make_ndarray(tensor) for tensor in tensors[-3:-1]]
            names = ("reshuffle_each_iteration", "rerandomize_each_iteration")
            anew = any(name in node.attr and node.attr[name].b for name in names)
            _resources[key] = tf.raw_ops.AnonymousSeedGenerator(seed=seed, seed2=seed2, reshuffle=anew)
        yield node.input[-1], _resources[key][0]


def _without_values(definition: Any) -> Any:
    """The graph without its arrays, for `share.operations`."""
    for node in definition.node:
        if node.op == "Const":
            node.attr["value"].Clear()
    return definition
