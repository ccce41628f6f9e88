"""On rank 0: what the cell has left in its variables, as one file for the namespace in which the next cell runs."""

from __future__ import annotations

import functools
import io
import json
import types
import zipfile
from typing import Any, Collection, Mapping, Sequence

from ..keras_types import Model, array_of, is_of_keras
from ..random_streams import CellStreams
from . import cell_names, compiled_metrics, fingerprint, generators, keras_attributes, keras_state, parts
from .definitions import CellDefinitions
from .encoding import CannotTravel, Encoder

#: The artifact, and in it the JSON; array K is K.npy.
FILE = "variables.zip"
INDEX = "variables.json"
#: The values of a run travel up to this size together, the smallest first.
MAX_BYTES = 32 << 20

#: What a cell defines and imports stays there, however it is assigned.
_CODE = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType)
#: Of these types two equal values are one: what is the notebook's own needs no name.
_VALUES = (type(None), bool, int, float, complex, str, bytes, tuple, frozenset, range)


class CellVariables:
    """What the cell's names are before it runs, and what has become of them. For one cell, on one rank."""

    def __init__(
        self,
        source: str,
        of_notebook: Collection[str],
        namespace: Mapping[str, Any],
        streams: CellStreams | None = None,
    ) -> None:
        """of_notebook: names that the cell or its functions have from the notebook. namespace: with their values.
        streams: the rank's random numbers."""
        self._streams = streams
        self._final_states: dict[str, Any] = {}
        self._assigned, written = cell_names.assigned(source), cell_names.written(source)
        self._definitions = CellDefinitions(source)
        self._code_before = {name: namespace.get(name) for name in self._definitions.names}
        objects = {name: namespace[name] for name in of_notebook if name in namespace and is_object(namespace[name])}
        self._notebooks = parts.of(objects)
        self._before = {
            text: print_of(value, text in written) for text, value in self._notebooks.items() if is_compared(value)
        }
        self._written = written
        self._compilations = {
            text: compiled_metrics.compilation(value)
            for text, value in self._notebooks.items()
            if keras_state.is_a(value, "Model")
        }

    def note_streams(self) -> None:
        """At the end of the cell, before a model is saved: Keras draws a number for that."""
        if self._streams is not None:
            self._final_states = self._streams.final_states()

    def packed(self, namespace: Mapping[str, Any], models: Sequence[Model], finished: bool) -> bytes | None:
        """The file, or None where there is nothing to tell.

        namespace: after the cell. models: that it has trained, in the order of their artifacts. finished: otherwise
        the cell was stopped, and a name without a value may be one that it has not come to.
        """
        names = {id(value): name for name, value in reversed(list(self._notebooks.items()))}
        classes = {id(value): name for name, value in namespace.items() if parts.is_plain_class(value)}
        encoder = Encoder(names, {id(model): number for number, model in enumerate(models)}, classes)
        budget = _Budget(encoder)
        trained = {
            names[id(model)]: {
                "model": number,
                "optimizer": names.get(id(getattr(model, "optimizer", None))),
                "history": _history(encoder, model),
                **_metrics(encoder, budget, model),
            }
            for number, model in enumerate(models)
            if id(model) in names
        }
        changed: dict[str, Any] = {}
        values: dict[str, Any] = {}
        absent: dict[str, str] = {}
        of_keras: dict[str, str] = {}  # callbacks, optimizers: missed where the notebook has another of the name
        for name, value in self._by_size(namespace, models):
            try:
                if self._is_new(name, value):
                    values[name] = budget.fitting(value, encoder.encode)
                elif parts.is_instance(value):
                    changed[name] = self._attributes(name, value, budget, encoder, absent)
                elif generators.is_generator(value):
                    changed[name] = {"random": budget.fitting(generators.state(value), encoder.encode)}
                elif keras_state.has_state(value):
                    changed[name] = self._state(name, value, models, budget, encoder, absent)
                else:
                    changed[name] = budget.fitting(value, encoder.content)
            except CannotTravel as error:
                is_tool = is_of_keras(type(value)) or type(value).__name__ == "GradientTape"
                is_new = self._is_new(name, value)
                (of_keras if is_tool and is_new else absent)[name] = str(error)
        absent.update(self._copied(models, values))
        absent.update(self._compiled(models))
        deleted = [name for name in sorted(self._assigned) if name not in namespace] if finished else []
        defined = self._defined(namespace)
        if not finished:
            repeated = self._definitions.repeated.intersection(defined)
            absent.update(dict.fromkeys(sorted(repeated), "the cell defines it again, and was stopped"))
            defined = [name for name in defined if name not in repeated]
        if not (trained or changed or values or absent or of_keras or deleted or defined or self._final_states):
            return None
        index: dict[str, Any] = {
            "values": values,
            "changed": changed,
            "trained": trained,
            "deleted": deleted,
            "defined": defined,
            "absent": absent,
        }
        index.update(of_keras=of_keras, objects=encoder.objects, streams=self._final_states)
        return _zipped(index, encoder.arrays)

    def _defined(self, namespace: Mapping[str, Any]) -> list[str]:
        """The names of functions, classes and imports of the cell, whose values the notebook makes of the source."""
        return sorted(
            name
            for name, before in self._code_before.items()
            if not name.isidentifier() or (name in namespace and namespace[name] is not before)
        )

    def _by_size(self, namespace: Mapping[str, Any], models: Sequence[Model]) -> list[tuple[str, Any]]:
        """The names whose values are new or have changed, the smallest first."""
        assigned = {name: namespace[name] for name in self._assigned if name in namespace}
        assigned = {name: value for name, value in assigned.items() if not isinstance(value, _CODE)}
        new = [(name, value) for name, value in assigned.items() if self._is_new(name, value)]
        changed = []
        objects = list(self._notebooks.values())
        restored = keras_state.restored_with(model for model in models if any(model is value for value in objects))
        for text, before in self._before.items():
            value = self._notebooks[text]
            after = None if before is None else print_of(value, text in self._written)
            if after != before and not keras_state.comes_with(restored, value, before, after):
                changed.append((text, value))
        return sorted(new + changed, key=lambda pair: size(pair[1]))

    def _compiled(self, models: Sequence[Model]) -> dict[str, str]:
        """What does not come of a `compile` in the cell."""
        absent = {}
        for text, compilation in self._compilations.items():
            model = self._notebooks[text]
            if compiled_metrics.compilation(model) is compilation:
                continue
            if not any(model is trained for trained in models):
                absent["%s.compile" % text] = (
                    "a model that the cell does not fit is not compiled here: compile it again"
                )
            for step, metric in compiled_metrics.objects(model):
                if not any(metric is value for value in self._notebooks.values()):
                    reason = "a new metric has only its configuration here: make it in a cell before"
                    names = compiled_metrics.attributes_of_new(metric)
                    absent.update({"%s%s.%s" % (text, step, name): reason for name in names})
        return absent

    def _is_new(self, name: str, value: Any) -> bool:
        """Whether the value is none of the notebook's objects of this name; None is no object."""
        return value is None or self._notebooks.get(name) is not value

    def _copied(self, models: Sequence[Model], values: Mapping[str, Any]) -> dict[str, str]:
        """The notebook's layers and models that are in a model which the cell has made: that one comes with copies."""
        layers = {id(value): text for text, value in self._notebooks.items() if keras_state.is_a(value, "Layer")}
        copied = {}
        for name, encoded in values.items():
            model = models[encoded["model"]] if isinstance(encoded, dict) and "model" in encoded else None
            for layer in keras_state.layers(model):
                text = layers.get(id(layer))
                if text is not None:
                    copied["%s within %s" % (text, name)] = "a copy is there: take %s.get_layer(%r)" % (
                        name,
                        layer.name,
                    )
        return copied

    def _attributes(
        self, text: str, instance: Any, budget: _Budget, encoder: Encoder, absent: dict[str, str]
    ) -> dict[str, Any]:
        """Those that have changed. absent: gets those that cannot travel."""
        before, after = self._before[text], print_of(instance)
        encoded = []
        for name, value in parts.attributes(instance).items():
            if name not in before or before[name] != after[name]:
                try:
                    encoded.append([name, budget.fitting(value, encoder.encode)])
                except CannotTravel as error:
                    absent["%s.%s" % (text, name)] = str(error)
        return {"attributes": [encoded, sorted(before.keys() - after.keys())]}

    def _state(
        self,
        text: str,
        value: Any,
        models: Sequence[Model],
        budget: _Budget,
        encoder: Encoder,
        absent: dict[str, str],
    ) -> dict[str, Any]:
        """Of an object of Keras. absent: gets the attributes that cannot travel."""
        addresses = {
            id(variable): (text, index)
            for text, owner in self._notebooks.items()
            if keras_state.is_a(owner, "Layer")
            for index, variable in enumerate(keras_state.variables(owner))
        }
        before, after = self._before[text], print_of(value)
        is_apart = before.arrays == after.arrays or any(value is model for model in models)
        encode = functools.partial(keras_state.encoded, array=encoder.array, addresses=addresses, is_trained=is_apart)
        state = budget.fitting(value, encode, is_apart)
        state.update(attributes=[], deleted=[])
        values = keras_attributes.values(keras_state.owners(value))
        for address in keras_attributes.changed(before.attributes, after.attributes):
            if address not in values:
                state["deleted"].append(address)
                continue
            try:
                state["attributes"].append([*address, budget.fitting(values[address], encoder.encode)])
            except CannotTravel as error:
                absent[keras_attributes.text(text, address)] = str(error)
        return {"keras": state}


def is_compared(value: Any) -> bool:
    """Whether its changes are noticed."""
    return any(test(value) for test in (can_change, parts.is_instance, keras_state.has_state, generators.is_generator))


def print_of(value: Any, every_element: bool = False) -> Any:
    """A fingerprint of what `is_compared`; of an object of a cell's class {attribute: fingerprint}."""
    if keras_state.has_state(value):
        return keras_state.print_of(value)
    if generators.is_generator(value):
        return fingerprint.of(generators.state(value), every_element)
    if not parts.is_instance(value):
        return fingerprint.of(value, every_element)
    attributes = parts.attributes(value)
    return {
        name: id(attribute) if is_compared(attribute) else fingerprint.of(attribute)
        for name, attribute in attributes.items()
    }


def is_object(value: Any) -> bool:
    """Whether it matters which object it is."""
    return type(value) not in _VALUES


def can_change(value: Any) -> bool:
    """Whether it is of a type whose changes are found."""
    kind = type(value)
    return isinstance(value, (dict, list, set, bytearray)) or (
        (kind.__module__ == "numpy" and kind.__name__ == "ndarray")
        or (kind.__module__.startswith("pandas.") and kind.__name__ in ("DataFrame", "Series"))
        or (kind.__module__ == "collections" and kind.__name__ == "deque")
    )


def size(value: Any, depth: int = 3) -> int:
    """About how many bytes the value is."""
    if keras_state.has_state(value):
        return sum(array_of(variable).nbytes for variable in keras_state.variables(value))
    if hasattr(value, "nbytes") and isinstance(value.nbytes, int):
        return int(value.nbytes)
    if type(value).__name__ == "DataFrame" and type(value).__module__.startswith("pandas."):
        return int(value.memory_usage(index=True).sum())
    if isinstance(value, (str, bytes, bytearray)):
        return len(value)
    if depth and parts.is_plain_class(type(value)):
        return sum(size(content, depth - 1) for content in parts.attributes(value).values())
    if depth and isinstance(value, dict):
        return sum(size(content, depth - 1) for content in value.values())
    if depth and isinstance(value, (list, tuple, set, frozenset)):
        return sum(size(content, depth - 1) for content in value)
    return 8


class _Budget:
    """Encodes values as long as they fit into MAX_BYTES together."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder, self._free_bytes = encoder, MAX_BYTES

    def fitting(self, value: Any, encode: Any, is_apart: bool = False) -> Any:
        """is_apart: the variables of an object of Keras do not travel with it."""
        value_bytes = 8 if is_apart else size(value)
        if value_bytes > self._free_bytes:
            text = "%.0f MB, and the variables of a run come back up to %d MB: write it to a file in the cell"
            raise CannotTravel(text % (max(1.0, value_bytes / 1e6), MAX_BYTES >> 20))
        encoded = encode(value)
        self._free_bytes -= value_bytes
        return encoded


def _history(encoder: Encoder, model: Model) -> Any:
    """Keras' `model.history`, which a fit leaves there."""
    history = getattr(model, "history", None)
    if type(history).__name__ != "History":
        return None
    try:
        return encoder.encode(history)
    except CannotTravel:
        return None


def _metrics(encoder: Encoder, budget: _Budget, model: Model) -> dict[str, Any]:
    """The states of its metrics."""
    indices = budget.fitting(compiled_metrics.states(model), lambda states: [encoder.array(state) for state in states])
    return {"metrics": indices, "metric_shapes": encoder.encode(compiled_metrics.shapes(model))}


def _zipped(index: Mapping[str, Any], arrays: Sequence[Any]) -> bytes:
    import numpy as np

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(INDEX, json.dumps(index), zipfile.ZIP_DEFLATED)
        for number, array in enumerate(arrays):
            with archive.open("%d.npy" % number, "w") as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
    return buffer.getvalue()
