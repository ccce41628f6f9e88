"""The names that a cell uses but does not define: how they are found, and how their values travel to the ranks.

As `%%px` users expect: a function, constant or array of the session that the cell mentions is there on every rank.
Values travel inside Spark's own broadcast, which is as trusted as the session itself.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import difflib
import functools
import io
import pickle
import symtable
import sys
import types
from typing import Any, Collection, Dict, Mapping, NamedTuple

from .. import random_streams
from ..data.transform import read as read_transform
from . import (
    frameworks,
    function_sources,
    keras2_models,
    keras_objects,
    notebook_only,
    pipelines,
    process_settings,
    read_first,
    text_labels,
)

#: Names that a rank defines before the cell runs, with what gives them.
PREDEFINED = {
    "ddl": "%%distributed",
    "dataset": "--data DATAFRAME",
    "validation": "--validation SHARE",
    "strategy": "--strategy tf-allreduce or tf-ps",
}
#: Modules that a rank imports by itself where a cell uses their usual name without importing them.
USUAL_MODULES = {"keras": "keras", "tf": "tensorflow", "np": "numpy"}

#: Modules of the standard library whose objects belong to a process. To ask one whether it can be pickled costs
#: nothing; to ask a model or an array would copy it.
_SYSTEM = frozenset(("_thread", "_queue", "multiprocessing", "select", "socket", "sqlite3", "ssl", "subprocess"))


#: Characters of an error that is quoted.
_MAX_REASON = 300


class NameProblem(Exception):
    """A name of the cell cannot be had on the ranks: one line that says which and what to do."""


def free_names(source: str) -> dict[str, int]:
    """The global names that `source` reads but never binds, as {name: first line}. Raises SyntaxError."""
    tree = ast.parse(source)
    table = symtable.symtable(source, "<cell>", "exec")
    bound = {s.get_name() for s in table.get_symbols() if s.is_assigned() or s.is_imported()}
    read: set[str] = set()

    def visit(scope: symtable.SymbolTable) -> None:
        for symbol in scope.get_symbols():
            name = symbol.get_name()
            if scope is table:
                if symbol.is_referenced():
                    read.add(name)
            elif symbol.is_global():
                if symbol.is_assigned():
                    bound.add(name)
                if symbol.is_referenced():
                    read.add(name)
        for child in scope.get_children():
            visit(child)

    visit(table)
    free = read - bound - set(dir(builtins))
    lines: dict[str, int] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in free:
            lines[node.id] = min(node.lineno, lines.get(node.id, node.lineno))
    return {name: lines.get(name, 1) for name in free}


def _binds_unseen_names(source: str) -> bool:
    """Whether the source may define names that reading it does not show."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
            return True
        if isinstance(node, ast.Name) and node.id in ("exec", "eval", "globals"):
            return True
    return False


def used_by_functions(captured: Mapping[str, Any], namespace: Mapping[str, Any]) -> dict[str, Any]:
    """The variables of the session that functions and classes of its cells among `captured` use, and those that these
    use in turn. They travel with the functions."""
    reached: dict[str, Any] = {}
    waiting, seen = list(captured.values()), set()
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, (list, tuple)):
            waiting.extend(value)
        elif isinstance(value, dict):
            waiting.extend(value.values())
        elif isinstance(value, type):
            if value.__module__ == "__main__":
                waiting.extend([*vars(value).values(), *value.__mro__])
        elif isinstance(value, (staticmethod, classmethod, types.MethodType)):
            waiting.append(value.__func__)
        elif isinstance(value, property):
            waiting += [function for function in (value.fget, value.fset) if function is not None]
        elif isinstance(value, types.FunctionType):
            if value.__module__ == "__main__":
                waiting += [getattr(value, "__wrapped__", None), value.__defaults__, value.__kwdefaults__]
                waiting += [cell.cell_contents for cell in value.__closure__ or () if cell != types.CellType()]
                used = {name: namespace[name] for name in _global_names(value.__code__) if name in namespace}
                reached.update(used)
                waiting.extend(used.values())
        elif isinstance(value, functools.partial):
            waiting += [value.func, value.args, value.keywords]
        elif type(value).__module__.startswith("tensorflow.") and hasattr(value, "python_function"):
            waiting.append(value.python_function)
        else:
            waiting.append(type(value))
    return {name: value for name, value in reached.items() if not isinstance(value, types.ModuleType)}


def _global_names(code: types.CodeType) -> set[str]:
    inner = [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return set(code.co_names).union(*map(_global_names, inner))


def defining_statement(tree: ast.Module, name: str) -> int | None:
    """The index of the first statement of a cell after which its global `name` is defined; None without any."""
    for index, statement in enumerate(tree.body):
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            defines = statement.name == name
        else:
            defines = any(
                (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id == name)
                or (isinstance(node, ast.alias) and (node.asname or node.name) == name)
                or (isinstance(node, ast.FunctionDef) and node.name == name)
                for node in ast.walk(statement)
            )
        if defines:
            return index
    return None


def pack(source: str, captured: Mapping[str, Any], namespace: Mapping[str, Any]) -> bytes:
    """Pickle for `unpack` what `captured` has found in `namespace`. NameProblem for a value that cannot be pickled."""
    names: list[str] = []
    modules: dict[str, str] = {}
    buffer = io.BytesIO()
    pickler = _pickler(buffer, namespace)
    settings = process_settings.of_process()
    registered = []
    for name, value in process_settings.registered():
        with contextlib.suppress(Exception):  # it is the cell's, if that uses it, and refused below
            _pickler(io.BytesIO(), namespace).dump(value)
            pickler.dump_whole(value)
            registered.append(name)
    for name, value in captured.items():
        if isinstance(value, types.ModuleType):
            modules[name] = value.__name__
            continue
        try:
            pickler.dump_whole(value)
        except Exception as error:  # whatever a value's __reduce__ raises
            raise _cannot_travel(name, value, error) from None
        names.append(name)
    for name in USUAL_MODULES.keys() & free_names(source).keys() - set(names):
        modules.setdefault(name, USUAL_MODULES[name])
    name_counts = keras_objects.name_counts() if pickler.with_keras else None
    sources, values = function_sources.of(pickler.files), buffer.getvalue()
    del pickler, buffer  # before the values are there twice
    packed: dict[str, Any] = {"names": names, "values": values, "modules": modules, "sources": sources}
    packed.update(settings=settings.as_tuple(), registered=registered, name_counts=name_counts)
    return pickle.dumps(packed, protocol=4)


class _CellGlobals(Dict[str, Any]):
    """In a pickle: the globals of the session's functions, which are the cell's on a rank."""

    def __reduce__(self) -> Any:
        return vars, (sys.modules["__main__"],)


def _pickler(buffer: io.BytesIO, namespace: Mapping[str, Any]) -> Any:
    """One for all values, so that they share on a rank what they share in the session.

    A function of the session sees there what the cell assigns, as in a notebook. namespace: the session's variables, or
    a copy of those of `__main__`. `files` of the pickler: names of the files of functions that it has pickled.
    """
    from pyspark import cloudpickle

    class Pickler(cloudpickle.CloudPickler):  # type: ignore[name-defined,misc]
        def __init__(self, buffer: io.BytesIO, namespace: Mapping[str, Any]) -> None:
            super().__init__(buffer, protocol=4)  # not 5, in which NumPy 2 writes arrays that NumPy 1 cannot read
            self.files: set[str] = set()
            self.keras2_owners = keras2_models.Owners()
            self.with_keras = False  # an object of Keras is in the pickle
            self.incomplete: list[Any] = []  # objects of Keras, in the pickle, that `keras_objects.complete` completes
            shared = _CellGlobals(__name__="__main__")
            self.globals_ref.update({id(scope): shared for scope in (namespace, sys.modules["__main__"].__dict__)})

        def reducer_override(self, value: Any) -> Any:
            if isinstance(value, types.CodeType):
                self.files.add(value.co_filename)
            self.keras2_owners.note(value)
            pipeline = pipelines.reduction(value)
            if pipeline is not None:
                return pipeline
            reduction = keras_objects.reduction(value)
            if reduction is None:
                return super().reducer_override(value)
            self.with_keras = True
            if len(reduction) > 2 and keras_objects.needs_completion(value):
                self.incomplete.append(value)
            return reduction

        def dump_whole(self, value: Any) -> None:
            """For `_Unpickler.load_whole`."""
            self.incomplete = []
            self.dump(value)
            self.dump((keras_objects.nodes_of(self.incomplete), self.incomplete))

    return Pickler(buffer, namespace)  # the class refers to neither, as it lives until the next garbage collection


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        for ours in (keras_objects, pipelines):  # whose names begin differently on the machines of a cluster
            if module.endswith(".cell." + ours.__name__.rpartition(".")[2]):
                return getattr(ours, name)
        return super().find_class(module, name)

    def load_whole(self) -> Any:
        value = self.load()
        keras_objects.complete(*self.load())
        return value


def captured(
    source: str, namespace: Mapping[str, Any], predefined: Collection[str] = ("ddl",), transform: str | None = None
) -> dict[str, Any]:
    """The variables of `namespace` that the cell uses, in the order of their first lines; modules are among them.

    predefined: those of `PREDEFINED` that the ranks define. transform: the value of --transform; the cell uses its
    function, too.
    Raises NameProblem for a name that is not defined, that only a notebook has, or whose value cannot travel, as far as
    its type tells.
    """
    use = notebook_only.find(source)
    if use is not None:
        raise NameProblem("line %d: %s" % (use.line, use.reason))
    problem = frameworks.problem(source)
    if problem is not None:
        raise NameProblem(problem)
    captured: dict[str, Any] = {}
    mentioned = {name: line for name, line in read_first.find(ast.parse(source)).items() if name in namespace}
    mentioned.update(free_names(source))
    problem = frameworks.problem_of_names(source, mentioned, namespace)
    if problem is not None:
        raise NameProblem(problem)
    if transform is not None:
        mentioned.update(_of_transform(read_transform(transform)[0], source, namespace))
    for name in predefined:
        line = mentioned.pop(name, 0)
        if line and name == "ddl" and name in namespace:
            text = (
                "line %d: %%%%distributed defines ddl, and so does the session (it is of type %s): rename the session's"
            )
            raise NameProblem(text % (line, type(namespace[name]).__name__))
    for name, line in sorted(mentioned.items(), key=lambda item: item[1]):
        if name == notebook_only.GET_IPYTHON:
            continue
        if name == "display" and (name not in namespace or is_ipythons(namespace[name])):
            continue  # every rank has one
        if name in namespace:
            _refuse_by_type(name, namespace[name])
            captured[name] = namespace[name]
        elif name not in USUAL_MODULES and not _binds_unseen_names(source):
            raise NameProblem(_unknown(name, line, namespace))
    problem = text_labels.problem(source, captured)
    if problem is not None:
        raise NameProblem(problem)
    return captured


def _of_transform(name: str, source: str, namespace: Mapping[str, Any]) -> dict[str, int]:
    """{name: 0} of the function of --transform, where the session has it and not the cell."""
    tree = ast.parse(source)
    index = defining_statement(tree, name)
    if index is not None:
        early = read_first.find(ast.Module(tree.body[:index], []))
        for dataset_name in ("dataset", "validation"):
            if dataset_name in early:
                text = "line %d: %s is used before the function %s of --transform is defined: move the function up"
                raise NameProblem(text % (early[dataset_name], dataset_name, name))
        return {}
    if name not in namespace:
        matches = difflib.get_close_matches(
            name, [variable for variable in namespace if callable(namespace[variable])], 1
        )
        hint = "did you mean %s?" % matches[0] if matches else "define it in the cell, or run the cell that does"
        raise NameProblem("--transform: there is no function %s; %s" % (name, hint))
    if not callable(namespace[name]):
        kind = type(namespace[name]).__name__
        raise NameProblem("--transform: %s is no function (its type is %s): name one" % (name, kind))
    return {name: 0}


def is_ipythons(value: Any) -> bool:
    return str(getattr(value, "__module__", "")).split(".")[0] == "IPython"


def _unknown(name: str, line: int, namespace: Mapping[str, Any]) -> str:
    if name in PREDEFINED:
        text = "line %d: %r is defined only with %s: add the option, or define the name"
        return text % (line, name, PREDEFINED[name])
    matches = difflib.get_close_matches(name, [n for n in namespace if not n.startswith("_")] + list(PREDEFINED), 1)
    hint = "; did you mean %r?" % matches[0] if matches else "; first run the cell that defines it"
    return "line %d: the name %r is defined neither in the cell nor in the session%s" % (line, name, hint)


def _refuse_by_type(name: str, value: Any) -> None:
    kind = type(value)
    if kind.__module__.startswith("pyspark."):
        fix = "name it with --data %s" % name if kind.__name__ == "DataFrame" else "Spark objects stay in the driver"
        raise NameProblem("%r is a %s of Spark and cannot travel to the workers; %s" % (name, kind.__name__, fix))
    # cloudpickle would send the text of a file that is open for reading.
    if isinstance(value, io.IOBase) and not isinstance(value, (io.BytesIO, io.StringIO)):
        raise NameProblem("%r is an open file and cannot travel to the workers; open it inside the cell" % name)
    if kind.__module__.partition(".")[0] in _SYSTEM or isinstance(value, (types.GeneratorType, types.CoroutineType)):
        try:
            value.__reduce_ex__(4)
        except TypeError as error:
            raise _cannot_travel(name, value, error) from None


def _cannot_travel(name: str, value: Any, error: Exception) -> NameProblem:
    reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
    kind = "tf.data.Dataset" if pipelines.is_pipeline(value) else type(value).__name__
    return NameProblem("%r (%s) cannot travel to the workers (%s); make it inside the cell" % (name, kind, reason))


class Unpacked(NamedTuple):
    """mentioned: the names that the cell mentions. streams: where its random numbers go on; None for the run's own."""

    mentioned: set[str]
    streams: random_streams.Streams | None


def _in_one_line(error: Exception) -> str:
    """The words of an error, without the configurations of objects that Keras adds."""
    words = " ".join(str(error).split()) or type(error).__name__
    words = words.partition(" Full object config:")[0].partition(" Call arguments received")[0]
    return words[:_MAX_REASON]


def unpack(blob: bytes, streams: bool = False) -> Unpacked:
    """On a rank: add what `pack` made to the globals of `__main__`, and the other globals of functions among it.

    The settings of the session are taken over first. streams: its random numbers, too.
    NameProblem where a value cannot be restored here.
    """
    import importlib

    packed = pickle.loads(blob)
    function_sources.remember(packed["sources"])
    settings = process_settings.ProcessSettings.of_tuple(packed["settings"])
    process_settings.apply(settings)
    namespace = vars(sys.modules["__main__"])
    for name, module in packed["modules"].items():
        try:
            namespace[name] = importlib.import_module(module)
        except ImportError as error:
            text = "the module %r, used as %r, is missing on the worker (%s): install it on the executors"
            raise NameProblem(text % (module, name, error)) from None
    values = {}
    unpickler = _Unpickler(io.BytesIO(packed["values"]))
    for name in packed["registered"]:
        process_settings.register(name, unpickler.load_whole())
    for name in packed["names"]:
        try:
            values[name] = unpickler.load_whole()
        except pipelines.MissingFile as error:
            text = "%r reads %s, which this worker does not have: put the files on storage that all workers see"
            raise NameProblem(text % (name, error)) from None
        except Exception as error:
            text = "%r cannot be restored on the worker (%s): make it in the cell, or install the same packages there"
            raise NameProblem(text % (name, _in_one_line(error))) from None
    if packed["name_counts"] is not None:
        keras_objects.set_name_counts(packed["name_counts"])
    continued = settings.streams if streams else None
    if continued is not None:
        random_streams.continue_from(continued)  # last: to restore a value may draw a number
    # After the globals of functions: these are as the run found them when it started, perhaps from a queue.
    namespace.update(values)
    return Unpacked({*packed["modules"], *values}, continued)
