"""Loads models whose Lambda layers have code: Keras saves their functions as bytecode, which its safe mode refuses.

Bytecode is a program, and only one version of Python reads it. So it is loaded from trusted files alone, and by the
Python that has written it. What the code names is not in the file: the notebook's values of these names come with it.

Travels to executors by value (`by_value.py`).
"""

from __future__ import annotations

import builtins
import codecs
import contextlib
import dis
import io
import json
import marshal
import re
import sys
import threading
import types
import zipfile
import zlib
from typing import Any, Iterator, Mapping

#: In which module Keras 3 and Keras 2 have the function that makes a function of its bytecode.
_LOADERS = ("keras.src.utils.python_utils", "keras.src.utils.generic_utils")

#: The longest `config.json`, whose entry in an archive may be a bomb. Keras reads a longer one in its safe mode.
MAX_CONFIG_BYTES = 64 << 20
#: The longest `metadata.json`: Keras writes some hundred bytes.
MAX_METADATA_BYTES = 64 << 10
_VERSION = re.compile(r"\d{1,3}\.[\w.+]{1,32}")
#: The errors of reading a file that Keras cannot read either; RuntimeError: it is encrypted, or nested too deeply.
_UNREADABLE = (
    *(OSError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError),
    *(KeyError, AttributeError, ValueError, TypeError, IndexError, OverflowError),
)

_REFUSED = (
    "the code of the model's Lambda layers is not loaded, as no run of yours has trained this file: if you trust its "
    "author, load it with keras.models.load_model(path, safe_mode=False) and use that model, or make the layers "
    "subclasses of keras.layers.Layer"
)


def this_python() -> str:
    """The version of Python as far as it decides about bytecode: "3.11"."""
    return "%d.%d" % sys.version_info[:2]


def functions_in(model: bytes | str, compiled: bool = True) -> tuple[list[str], list[str]]:
    """What the Lambda layers of a `.keras` file call: (bytecode in base64, names of functions).

    Nothing for a file that Keras cannot read: it will say so itself. model: its bytes or its path. compiled: with
    the bytecode of its loss and metrics.
    """
    try:
        file = io.BytesIO(model) if isinstance(model, bytes) else model
        with zipfile.ZipFile(file) as archive, archive.open("config.json") as source:
            config = json.loads(source.read(MAX_CONFIG_BYTES))
        if not compiled:
            config["compile_config"] = None
        return list(map(str, _codes(config))), list(map(str, _functions(config)))  # a stranger's may be anything
    except _UNREADABLE:
        return [], []


def objects(model: bytes | str, python: str | None, namespace: Mapping[str, Any]) -> dict[str, Any]:
    """The values in `namespace` that the Lambda layers of a `.keras` file name.

    python: the version whose bytecode the file has; None for a file that is not trusted, which gets none.
    """
    if python != this_python():
        return {}
    codes, functions = functions_in(model)
    return {name: namespace[name] for name in {*functions, *_names(codes)} if name in namespace}


def objects_of_notebook(
    model: bytes | str, python: str | None, custom_objects: Mapping[str, Any] | None
) -> dict[str, Any]:
    """`objects` of this process' notebook, and the user's own, which come first."""
    return {**objects(model, python, vars(sys.modules["__main__"])), **(custom_objects or {})}


def load(path: str, custom_objects: Mapping[str, Any], python: str | None, **options: Any) -> Any:
    """Keras' `load_model` of a `.keras` file. custom_objects: also the values that the code of Lambda layers names.

    python: the version whose bytecode the file has; None for a file that is not trusted. options: of `load_model`.

    Raises ValueError, one line, where the code cannot be loaded, or another generation of Keras saved the file; else
    what Keras raises.
    """
    codes, _ = functions_in(path, options.get("compile", True))
    if not codes:
        return _load(path, custom_objects, **options)
    if python is None:
        raise ValueError(_REFUSED)
    if python != this_python():
        raise ValueError(
            "the model has Lambda layers with the bytecode of Python %s, which Python %s does not read: make them "
            "subclasses of keras.layers.Layer, or train with the same Python" % (python, this_python())
        )
    missing = sorted(_names(codes) - {*custom_objects, *dir(builtins)})
    if missing:
        raise ValueError(
            "Lambda layers of the model use %s, which the notebook does not have: pass custom_objects={%s}"
            % (" and ".join(missing), ", ".join("%r: %s" % (name, name) for name in missing))
        )
    with _code_names(custom_objects):
        return _load(path, custom_objects, safe_mode=False, **options)


def _load(path: str, custom_objects: Mapping[str, Any], **options: Any) -> Any:
    import keras

    try:
        return keras.models.load_model(path, custom_objects=dict(custom_objects), **options)
    except Exception as error:
        version = saved_metadata(path).get("keras_version")
        saved_by = version if isinstance(version, str) and _VERSION.fullmatch(version) else None
        if saved_by is None or saved_by.split(".")[0] == keras.__version__.split(".")[0]:
            raise
        raise ValueError(
            "Keras %s saved the model, and Keras %s cannot load it: train the model where it is used, or have the same "
            "Keras in both places" % (saved_by, keras.__version__)
        ) from error


def saved_metadata(path: str) -> dict[str, Any]:
    """What Keras has written about a `.keras` file, such as its own version; empty where that cannot be read."""
    try:
        with zipfile.ZipFile(path) as archive, archive.open("metadata.json") as source:
            metadata = json.loads(source.read(MAX_METADATA_BYTES))
    except _UNREADABLE:
        return {}
    return metadata if isinstance(metadata, dict) else {}


def _codes(config: Any) -> Iterator[str]:
    """Keras 3 has a function as an object of the class `__lambda__`, Keras 2 as a list beside its type."""
    if isinstance(config, list):
        for element in config:
            yield from _codes(element)
    elif isinstance(config, dict) and config.get("class_name") == "__lambda__":
        dumped = config["config"]
        yield dumped["code"] if "code" in dumped else dumped["value"][0]
    elif isinstance(config, dict):
        for name, value in config.items():
            if config.get("%s_type" % name) == "lambda":
                yield value[0]
            else:
                yield from _codes(value)


def _functions(config: Any) -> Iterator[str]:
    if isinstance(config, list):
        for element in config:
            yield from _functions(element)
    elif isinstance(config, dict):
        if config.get("class_name") == "Lambda":
            for value in config["config"].values():
                if isinstance(value, dict) and value.get("class_name") == "function":
                    yield value["config"]
        for value in config.values():
            yield from _functions(value)


def _names(codes: list[str]) -> set[str]:
    """The global names that bytecode uses."""
    return {name for code in codes for name in _globals(marshal.loads(codecs.decode(code.encode("ascii"), "base64")))}


def _globals(code: types.CodeType) -> Iterator[str]:
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _globals(constant)


@contextlib.contextmanager
def _code_names(names: Mapping[str, Any]) -> Iterator[None]:
    """Within it, functions that Keras makes of bytecode have these globals. Keras would give them its own."""
    module: Any = next(sys.modules[name] for name in _LOADERS if hasattr(sys.modules.get(name), "func_load"))
    with vars(module).setdefault("_ddl_loading", threading.RLock()):
        keras_loads = module.func_load

        def func_load(code: Any, defaults: Any = None, closure: Any = None, globs: Any = None) -> Any:
            if isinstance(defaults, list):  # of JSON
                defaults = tuple(defaults)
            return keras_loads(code, defaults, closure, {"__builtins__": builtins, **names})

        module.func_load = func_load
        try:
            yield
        finally:
            module.func_load = keras_loads
