"""Puts the variables that a run has brought back into the namespace in which its cell was executed.

It is called where that namespace is: in the kernel with an embedded Spark, in the driver's Python with Livy, between
two cells. A name is set only if the cell assigns it, and if it still is what it was when the run began.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import sys
import types
import weakref
import zipfile
from dataclasses import dataclass, field
from typing import Any, Callable, Collection, Dict, Iterator, Mapping, MutableMapping, Sequence, cast

from .. import native_chatter, random_streams
from ..keras_types import Model
from . import cell_names, compiled_metrics, generators, index, keras_attributes, keras_state, parts, refilling, trained
from .decoding import Attributes, Damaged, Decoder, KerasState, Missing, loaded_array
from .definitions import CellDefinitions, Definition
from .left import FILE, is_compared, is_object, print_of

MAX_REASON_CHARACTERS = 200

_orders = itertools.count()
#: Of so many runs variables are awaited at once; those of older ones, whose notebook is gone, do not come.
MAX_AWAITED = 100
#: The runs whose variables may come yet.
_awaited: dict[str, Bindings] = {}

#: A cell that has one of these words imports Keras or TensorFlow anyway.
_FRAMEWORKS = frozenset(("keras", "tensorflow", "tf"))

#: The path of an artifact of the run, or None where there is none.
PathOf = Callable[[str], "str | None"]


@dataclass
class Placed:
    """placed: names that are set now. kept: names that later cells have assigned or changed. absent: name -> why it
    has not come. waiting: names of models and definitions that take an import of Keras, which come when a cell mentions
    them, and random numbers of Keras."""

    placed: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)
    waiting: list[str] = field(default_factory=list)


class Bindings:
    """What the names of a cell are when its run begins. It keeps no arrays and models alive."""

    def __init__(self, run: str, source: str, captured: Mapping[str, Any], namespace: Mapping[str, Any]) -> None:
        """captured: the variables that the cell uses."""
        self.order = next(_orders)
        self.assigned = cell_names.assigned(source)
        self.definitions = CellDefinitions(source, "<cell of %s>" % run)
        objects = parts.of({name: value for name, value in captured.items() if is_object(value)})
        self._names = [name for name in captured if name in objects]
        self._before = {name: _reference(value) for name, value in objects.items()}
        bound = self.assigned | self.definitions.names
        self._before.update({name: _reference(namespace[name]) for name in bound if name in namespace})
        self._fingerprints = {text: print_of(value) for text, value in objects.items() if is_compared(value)}
        self.streams = random_streams.Launched()
        #: Models that are loaded when they are mentioned: name -> K. None before the first values have come.
        self.waiting: dict[str, int] | None = None

    def is_current(self, name: str, namespace: Mapping[str, Any]) -> bool:
        """Whether no later cell has assigned or deleted the name."""
        if name not in self._before:
            return name not in namespace
        if not name.isidentifier():  # a part of an object
            objects = parts.of({root: namespace[root] for root in self._names if root in namespace})
            return name in objects and objects[name] is self._before[name]()
        return name in namespace and namespace[name] is self._before[name]()

    def unchanged(self, name: str, namespace: Mapping[str, Any]) -> Any:
        """The name's object, if it is the same with the same content; else None."""
        value = self._before[name]() if name in self._before else None
        if value is None or not self.is_current(name, namespace):
            return None
        before = self._fingerprints.get(name)
        return value if before is not None and _as_whole(print_of(value)) == _as_whole(before) else None

    def attributes_changed_since(self, name: str) -> frozenset[keras_attributes.Address]:
        """Those of an object of Keras that later cells have changed."""
        value, before = self._before.get(name, lambda: None)(), self._fingerprints.get(name)
        if value is None or not isinstance(before, keras_state.Print):
            return frozenset()
        current = keras_attributes.prints(keras_state.owners(value))
        return frozenset(keras_attributes.changed(before.attributes, current))

    def object(self, name: str) -> Any:
        """The name's object. Raises Missing where it is gone."""
        value = self._before[name]() if name in self._before else None
        if value is None:
            raise Missing("part of it is %s, which is gone" % name)
        return value

    def note(self, name: str, replaced: Any, new: Any) -> None:
        """An earlier run has brought `new`, in place of `replaced` (None: of nothing): that is no later cell's."""
        before = self._before[name]() if name in self._before else None
        if before is replaced:
            self._before[name] = _reference(new)


def awaiting(run: str, source: str, captured: Mapping[str, Any], namespace: Mapping[str, Any]) -> None:
    """A run begins, whose variables `place` may set."""
    _awaited[run] = Bindings(run, source, captured, namespace)
    while len(_awaited) > MAX_AWAITED:
        del _awaited[next(iter(_awaited))]


def place(
    run: str, namespace: MutableMapping[str, Any], path_of: PathOf, mentioned: Collection[str] | None = None
) -> Placed:
    """Set what the run has brought. Returns nothing for a run that is not awaited, or has brought nothing.

    mentioned: names of which models are loaded, also where Keras must be imported for it; None: of all.
    """
    bindings, path = _awaited.get(run), path_of(FILE)
    if bindings is None:
        return Placed()
    if path is None:
        del _awaited[run]
        return Placed()
    try:
        with zipfile.ZipFile(path) as archive:
            answer = _Placing(bindings, namespace, path_of, archive, mentioned).answer()
    except (Damaged, zipfile.BadZipFile, OSError) as error:
        del _awaited[run]
        return Placed(absent={"the variables of the run": "cannot be read (%s)" % error})
    if not answer.waiting:
        del _awaited[run]
    return answer


class _Instance:
    """In place of an instance of a class, whose definition has not been executed yet."""


class _Placing:
    """One call of `place`."""

    def __init__(
        self,
        bindings: Bindings,
        namespace: MutableMapping[str, Any],
        path_of: PathOf,
        archive: zipfile.ZipFile,
        mentioned: Collection[str] | None,
    ) -> None:
        self._bindings, self._namespace, self._path_of = bindings, namespace, path_of
        self._archive, self._mentioned = archive, mentioned
        self._models: dict[int, Model] = {}
        self._index = index.checked(archive)
        self._decoder = Decoder(self._index["objects"], self._array, bindings.object, self._model, self._class)
        self._answer = Placed()

    def answer(self) -> Placed:
        advanced = self._bindings.streams.advanced()  # before models are loaded, which may draw numbers
        if self._bindings.waiting is None:
            self._place_all()
        else:
            self._define()
            self._place_models(self._bindings.waiting)
        self._bindings.waiting = {name: self._model_number(name) for name in self._answer.waiting}
        self._answer.waiting += self._bindings.definitions.waiting
        self._place_streams(self._bindings.streams, advanced)
        return self._answer

    def _place_streams(self, streams: random_streams.Launched, advanced: Collection[str]) -> None:
        """Have the session draw random numbers from where the cell has stopped. advanced: by later cells."""
        at_first = streams.pending is None
        if streams.pending is None:
            streams.pending = dict(self._index["streams"])
        can_import = self._mentioned is None or not (at_first or _FRAMEWORKS.isdisjoint(self._mentioned))
        missing = []
        for library, state in list(streams.pending.items()):
            if not random_streams.is_loaded(library) and not (can_import and random_streams.can_load(library)):
                missing.append(library)
                continue
            del streams.pending[library]
            if library in advanced:
                self._answer.absent[_random_numbers([library])] = "a later cell has drawn some, or seeded them"
            else:
                streams.set(library, state, (bindings.streams for bindings in self._successors()))
        if missing:
            self._answer.waiting.append(_random_numbers(missing))

    def _place_all(self) -> None:
        index, bindings = self._index, self._bindings
        models = {name: _number_of_model(encoded) for name, encoded in index["values"].items()}
        assigned = [name for name in index["values"] if name in bindings.assigned and models[name] is None]
        values = {name: index["values"][name] for name in assigned}
        late = {
            name for name, encoded in {**values, **index["changed"]}.items() if self._decoder.needs_classes(encoded)
        }
        decoded = self._decoded(index["changed"], values, lambda name: name not in late)
        self._check_form({**values, **index["changed"]}, late)
        histories = self._histories(index["trained"])
        targets = {name: bindings.unchanged(name, self._namespace) for name in {**index["changed"], **index["trained"]}}
        later = {name: bindings.attributes_changed_since(name) for name in index["changed"]}
        self._check_generators(decoded[0], targets)
        for name, entry in index["trained"].items():
            self._restore(name, entry, targets[name], histories.get(name))
        self._place_decoded(*decoded, targets, later)
        for name in index["deleted"]:
            if name in bindings.assigned and name in self._namespace and bindings.is_current(name, self._namespace):
                del self._namespace[name]
        self._place_definitions(index["defined"])
        self._place_decoded(*self._decoded(index["changed"], values, late.__contains__), targets, later)
        self._place_models({name: number for name, number in models.items() if number is not None})
        stale = {name: reason for name, reason in index["of_keras"].items() if name in self._namespace}
        self._answer.absent.update({**index["absent"], **stale})

    def _decoded(
        self, changed: Mapping[str, Any], values: Mapping[str, Any], selects: Callable[[str], bool]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """The selected ones."""
        decoded: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
        decode = (self._decoder.content, self._decoder.decode)
        for number, encoded in enumerate((changed, values)):
            for name in filter(selects, encoded):
                try:
                    decoded[number][name] = decode[number](encoded[name])
                except Missing as error:
                    self._answer.absent[name] = str(error)
        return decoded

    def _check_form(self, encoded: Mapping[str, Any], late: Collection[str]) -> None:
        """Raises Damaged, before anything is set, for what is decoded after other values have been set."""
        objects, of_notebook = self._index["objects"], self._bindings.object
        decoder = Decoder(objects, self._array, of_notebook, lambda number: None, lambda name: _Instance)
        for name in sorted(late):
            decode = decoder.content if name in self._index["changed"] else decoder.decode
            with contextlib.suppress(Missing):
                decode(encoded[name])

    def _histories(self, trained_models: Mapping[str, Any]) -> dict[str, Any]:
        """`model.history` of trained models."""
        histories = {}
        for name, entry in trained_models.items():
            try:
                histories[name] = self._decoder.decode(entry["history"])
            except Missing as error:
                self._answer.absent["%s.history" % name] = str(error)
        return histories

    def _check_generators(self, changed: Mapping[str, Any], targets: Mapping[str, Any]) -> None:
        """Raises Damaged, before anything is set."""
        for name, content in changed.items():
            if isinstance(content, generators.State) and targets[name] is not None:
                try:
                    generators.set_state(copy.deepcopy(targets[name]), content)
                except (ValueError, TypeError, KeyError) as error:
                    raise Damaged(str(error)) from error

    def _place_decoded(
        self,
        changed: Mapping[str, Any],
        values: Mapping[str, Any],
        targets: Mapping[str, Any],
        later: Mapping[str, Collection[keras_attributes.Address]],
    ) -> None:
        """targets: the objects that have changed in the run. later: attributes that later cells have changed."""
        for name, content in sorted(changed.items(), key=lambda pair: not isinstance(pair[1], KerasState)):
            if isinstance(content, KerasState):
                self._apply(name, content, targets[name], later[name])
            else:
                try:
                    self._change(name, content, targets[name])
                except Exception as error:  # of the notebook's own classes, of many kinds
                    self._answer.absent[name] = _reason(error)
        for name, value in values.items():
            self._set(name, value)

    def _place_definitions(self, names: Collection[str]) -> None:
        """names: that the cell has left. After its variables, which they may read, and before its models, which may be
        made of them."""
        definitions = self._bindings.definitions
        definitions.retain(names)
        self._answer.absent.update({name: reason for name, reason in definitions.left_out.items() if name in names})
        self._define()
        for owner, attribute in sorted(definitions.attributes):
            if owner in names and owner not in self._answer.absent:
                self._answer.absent["%s.%s" % (owner, attribute)] = (
                    "attributes of a function or class stay on the workers"
                )

    def _define(self) -> None:
        for definition in self._bindings.definitions.take_executable(self._mentioned):
            name = definition.name
            if definition.is_import or name in cell_names.UNREAD or self._bindings.is_current(name, self._namespace):
                self._execute(definition)
            elif name not in self._answer.kept:
                self._answer.kept.append(name)

    def _execute(self, definition: Definition) -> None:
        name, replaced = definition.name, self._namespace.get(definition.name)
        quiet = native_chatter.left_out() if definition.loads_framework() else contextlib.nullcontext()
        try:
            with quiet:
                value = definition.execute(cast(Dict[str, Any], self._namespace))
        except Exception as error:  # of the cell's code
            verb = "imported" if definition.is_import else "defined"
            reason = (str(error).splitlines() or [""])[0][:MAX_REASON_CHARACTERS]
            self._answer.absent[name] = "could not be %s here: %s: %s" % (verb, type(error).__name__, reason)
            return
        if value is not replaced and name not in cell_names.UNREAD:
            is_current = self._bindings.is_current(name, self._namespace)
            self._set(name, value)
            if is_current:
                self._bindings.note(name, replaced, value)

    def _place_models(self, numbers: Mapping[str, int]) -> None:
        """Models that the cell has made: loaded where Keras is, or where a cell mentions them."""
        for name, number in numbers.items():
            if name not in self._bindings.assigned:
                continue
            if not self._bindings.is_current(name, self._namespace):
                self._answer.kept.append(name)
            elif "keras" not in sys.modules and self._mentioned is not None and name not in self._mentioned:
                self._answer.waiting.append(name)
            else:
                try:
                    self._set(name, self._model(number))
                except Missing as error:
                    self._answer.absent[name] = str(error)

    def _set(self, name: str, value: Any) -> None:
        if not self._bindings.is_current(name, self._namespace):
            self._answer.kept.append(name)
            return
        replaced = self._namespace.get(name)
        self._namespace[name] = value
        for later_bindings in self._successors():
            later_bindings.note(name, replaced, value)
        if name not in self._answer.placed:
            self._answer.placed.append(name)

    def _successors(self) -> Iterator[Bindings]:
        """Those of runs that began after this one."""
        return (bindings for bindings in _awaited.values() if bindings.order > self._bindings.order)

    def _apply(self, name: str, new: KerasState, target: Any, later: Collection[keras_attributes.Address]) -> None:
        """Give an object of Keras its new state. later: attributes that later cells have changed."""
        if target is None:
            if name not in self._answer.kept:
                self._answer.kept.append(name)
            return

        def variable_at(text: str, index: int) -> Any:
            return keras_state.variables(self._bindings.object(text))[index]

        try:
            keras_state.apply(target, new.state, self._array, variable_at)
        except Exception as error:  # of Keras and of the notebook's own classes, of many kinds
            self._answer.absent[name] = _reason(error)
            return
        self._apply_attributes(name, new, keras_state.owners(target), later)
        if name not in self._answer.placed:
            self._answer.placed.append(name)

    def _apply_attributes(
        self, name: str, new: KerasState, owners: keras_attributes.Owners, later: Collection[keras_attributes.Address]
    ) -> None:
        for address in (*new.attributes, *new.deleted):
            key, attribute = address
            text = keras_attributes.text(name, address)
            if key not in owners:
                self._answer.absent[text] = "there is no such layer here"
            elif address in later:
                self._answer.kept.append(text)
            else:
                try:
                    if address in new.attributes:
                        keras_attributes.set_value(owners[key], attribute, new.attributes[address])
                    else:
                        keras_attributes.delete(owners[key], attribute)
                except Exception as error:  # of the notebook's own classes, of many kinds
                    self._answer.absent[text] = _reason(error)

    def _change(self, name: str, content: Any, target: Any) -> None:
        """Give an object of the notebook its new content."""
        if target is None:
            self._answer.kept.append(name)
            return
        if isinstance(content, Attributes):
            for attribute, value in content.values.items():
                parts.set_attribute(target, attribute, value)
            for attribute in content.deleted:
                parts.delete_attribute(target, attribute)
        elif isinstance(content, generators.State):
            generators.set_state(target, content)
        elif refilling.refill(target, content):
            pass
        elif name.isidentifier():  # a table, or an array that has another shape now
            self._set(name, content)
            return
        else:
            owner, _, attribute = name.rpartition(".")
            parts.set_attribute(self._bindings.object(owner), attribute, content)
        self._answer.placed.append(name)

    def _restore(self, name: str, entry: Mapping[str, Any], model: Model | None, history: Any) -> None:
        """Give a model of the notebook what the run has trained."""
        number = entry["model"]
        if model is None:
            self._answer.kept.append(name)
            return
        weights, saved = (self._path_of(form % number) for form in ("weights-%d.npz", "model-%d.keras"))
        try:
            if weights is None:
                raise trained.CannotRestore("--out has written it elsewhere")
            trained.restore(model, weights, saved, self._custom_objects(), self._optimizer_of(entry))
        except Exception as error:  # of Keras and of files, of many kinds
            self._answer.absent[name] = _reason(error)
            return
        self._answer.placed.append(name)
        if history is not None:
            model.history = history
        try:
            arrays = [self._array(index) for index in entry["metrics"]]
            compiled_metrics.restore(model, arrays, self._decoder.decode(entry["metric_shapes"]))
        except Exception as error:  # of Keras and of the notebook's own metrics, of many kinds
            self._answer.absent["%s.metrics" % name] = _reason(error)

    def _optimizer_of(self, entry: Mapping[str, Any]) -> Any:
        """The notebook's optimizer that is the model's at the end of the cell; None for one that the cell has made."""
        try:
            optimizer = None if entry["optimizer"] is None else self._bindings.object(entry["optimizer"])
        except Missing:
            return None
        return optimizer if keras_state.is_optimizer(optimizer) else None

    def _class(self, name: str) -> type:
        """A class of the notebook, or of the cell, whose definition has been executed here."""
        value = self._namespace.get(name)
        if not parts.is_plain_class(value) or not self._bindings.is_current(name, self._namespace):
            raise Missing("its class %s is not here" % name)
        return cast(type, value)

    def _model(self, number: int) -> Model:
        if number not in self._models:
            path = self._path_of("model-%d.keras" % number)
            if path is None:
                raise Missing("its file is not here")
            try:
                self._models[number] = trained.load(path, self._custom_objects())
            except trained.CannotRestore as error:
                raise Missing(str(error)) from None
        return self._models[number]

    def _model_number(self, name: str) -> int:
        number = _number_of_model(self._index["values"][name])
        assert number is not None
        return number

    def _array(self, number: int) -> Any:
        try:
            return loaded_array(self._archive.read("%d.npy" % number))
        except KeyError:
            raise Damaged("it has no array %d" % number) from None

    def _custom_objects(self) -> dict[str, Any]:
        """The notebook's own classes and functions, which a model may be made of."""
        kinds = (type, types.FunctionType)
        return {
            name: value
            for name, value in list(self._namespace.items())
            if isinstance(value, kinds) and value.__module__ == "__main__"
        }


def _random_numbers(libraries: Sequence[str]) -> str:
    return "random numbers of %s" % " and ".join(libraries)


def _reason(error: Exception) -> str:
    """Why an object has not come, in one line."""
    if isinstance(error, (trained.CannotRestore, Missing)):
        return str(error)
    return "it cannot be set here (%s)" % trained.first_line(error)[:MAX_REASON_CHARACTERS]


def _number_of_model(encoded: Any) -> int | None:
    number = encoded.get("model") if type(encoded) is dict and len(encoded) == 1 else None
    return number if type(number) is int else None


def _as_whole(fingerprint: Any) -> Any:
    """Of an object of Keras without its attributes, which later cells change one by one."""
    return fingerprint[:-1] if isinstance(fingerprint, keras_state.Print) else fingerprint


def _reference(value: Any) -> Callable[[], Any]:
    """Calls for the value; it keeps none alive that can be referred to weakly."""
    try:
        return weakref.ref(value)
    except TypeError:
        return lambda: value
