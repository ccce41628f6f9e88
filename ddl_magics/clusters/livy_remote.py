"""The statements that we send to a Livy session, each of them one expression.

Livy 0.7.1 on Python 3.8 and newer refuses code of more than one top-level statement. A statement therefore executes the
source of one of the functions below, in a dict of its own. The answer is printed between marks, because Livy's text may
also hold warnings, and because text that is printed before an exception is lost. Statements hold no secrets, since Livy
and sparkmagic log them.

The functions run on the cluster, on Python 3.8 or newer: they import what they use, and the annotations of their
signatures are text, which no Python evaluates.
"""

import base64
import hashlib
import inspect
import json
import textwrap
from collections.abc import Callable
from typing import Any

from ddl_magics.clusters.shipping import RuntimePackage

BEGIN_MARK, END_MARK = "<ddl_magics:", ":ddl_magics>"
#: Base64 in one statement: Livy's messages must stay below 50 MB, and gateways allow about 1 MB.
CHUNK_CHARACTERS = 2**19

#: The globals of the Livy session; a statement defines the name for its function.
session: dict[str, Any]


def _receive(request: "dict[str, Any]") -> "dict[str, Any]":
    """Keep a part of the runtime's zip; with the last one, unpack and import it without touching the user's names."""
    import base64
    import fcntl
    import hashlib
    import importlib
    import importlib.util
    import io
    import os
    import sys
    import tempfile
    import zipfile

    name = request["module"]
    if name in sys.modules:
        return {"ready": True}
    # Kept in a module that later statements find, and no cell sees.
    chunks = sys.__dict__.setdefault("_ddl_magics_parts", {}).setdefault(name, {})
    chunks[request["index"]] = request["data"]
    if len(chunks) < request["count"]:
        return {"ready": False}
    data = base64.b64decode("".join(chunks[i] for i in range(request["count"])))
    del sys.__dict__["_ddl_magics_parts"][name]
    if hashlib.sha256(data).hexdigest() != request["sha256"]:
        raise ValueError("the runtime arrived damaged")
    folder = tempfile.mkdtemp(prefix="ddl-driver-")
    # As in runtime/scratch.py: the lock ends with this process, and the next one may remove the folder.
    owner = open(os.path.join(folder, ".owner"), "w")  # noqa: SIM115 - open for as long as the folder is ours
    fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
    zipfile.ZipFile(io.BytesIO(data)).extractall(folder)
    package = os.path.join(folder, name)
    spec = importlib.util.spec_from_file_location(
        name, os.path.join(package, "__init__.py"), submodule_search_locations=[package]
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    module.__dict__["_owner"] = owner
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
        importlib.import_module(name + ".driver.remote")
    except BaseException:
        for module_name in [key for key in sys.modules if key == name or key.startswith(name + ".")]:
            del sys.modules[module_name]
        raise
    return {"ready": True}


def _call(request: "dict[str, Any]") -> "dict[str, Any]":
    """Call one of the driver's functions."""
    import json
    import sys

    remote = sys.modules.get(request["module"] + ".driver.remote")
    if remote is None:
        return {"missing": True}
    arguments = list(request["arguments"])
    if request["namespace"]:
        arguments.append(session)  # noqa: F821 - a statement defines it
    reply: dict[str, Any] = json.loads(remote.CALLS[request["function"]](*arguments))
    return reply


def _environment(request: "dict[str, Any]") -> "dict[str, Any]":
    """The versions and the clock of the driver's Python, for `%ddl check`."""
    import importlib.util
    import platform
    import sys
    import time
    from importlib.metadata import PackageNotFoundError, version

    imported = request["module"] in sys.modules
    report: dict[str, Any] = {"time": time.time(), "python": platform.python_version(), "ready": imported}
    # The module may come from a distribution of another name.
    for package, distributions in (
        ("tensorflow", ("tensorflow", "tensorflow-cpu", "tensorflow-gpu", "intel-tensorflow", "tf-nightly")),
        ("keras", ("keras",)),
        ("numpy", ("numpy",)),
    ):
        report[package] = None
        if importlib.util.find_spec(package) is not None:
            report[package] = "of unknown version"
            for name in distributions:
                try:
                    report[package] = version(name)
                    break
                except PackageNotFoundError:
                    continue
    return report


def _assign(request: "dict[str, Any]") -> "dict[str, Any]":
    """Set a variable of the session to a small value of the notebook."""
    import ast
    import base64
    import io

    if request["encoding"] == "literal":
        value = ast.literal_eval(request["data"])
    else:
        import numpy

        value = numpy.load(io.BytesIO(base64.b64decode(request["data"])), allow_pickle=False)
        value = value[()] if value.ndim == 0 else value
    session[request["name"]] = value  # noqa: F821 - a statement defines it
    return {"ok": True}


_FRAME = """
def {wrapper}(request):
    import json
    try:
        answer = {function}(request)
    except BaseException as error:
        answer = {{"problem": "%s: %s" % (type(error).__name__, error)}}
    print({begin!r} + json.dumps(answer) + {end!r})
{wrapper}(json.loads(request))
"""


def _statement(function: Callable[[dict[str, Any]], dict[str, Any]], request: dict[str, Any]) -> str:
    source = textwrap.dedent(inspect.getsource(function))
    frame = _FRAME.format(wrapper="run", function=function.__name__, begin=BEGIN_MARK, end=END_MARK)
    names = f'{{"session": globals(), "request": {json.dumps(request)!r}}}'
    return f"exec({'import json' + chr(10) + source + frame!r}, {names})"


def receive(runtime: RuntimePackage) -> list[str]:
    """The statements that bring the runtime to a session. Their order does not matter."""
    text = base64.b64encode(runtime.data).decode("ascii")
    chunks = [text[i : i + CHUNK_CHARACTERS] for i in range(0, len(text), CHUNK_CHARACTERS)]
    common = {
        "module": runtime.module,
        "count": len(chunks),
        "sha256": hashlib.sha256(runtime.data).hexdigest(),
    }
    return [_statement(_receive, {**common, "index": index, "data": chunk}) for index, chunk in enumerate(chunks)]


def call(module: str, function: str, *arguments: str, namespace: bool = False) -> str:
    """The statement that calls a function of the runtime's `remote`; {"missing"} where the session has no runtime."""
    request = {"module": module, "function": function, "arguments": arguments, "namespace": namespace}
    return _statement(_call, request)


def environment(module: str) -> str:
    """The statement that asks for the versions and the clock of the driver's Python."""
    return _statement(_environment, {"module": module})


def assign(name: str, encoding: str, data: str) -> str:
    """The statement that sets a variable to `data`, which `clusters/sending.py` has encoded."""
    return _statement(_assign, {"name": name, "encoding": encoding, "data": data})


def answer(text: str) -> dict[str, Any]:
    """The answer in the text that a statement printed.

    Raises:
        ValueError: there is none.
    """
    start, stop = text.find(BEGIN_MARK), text.rfind(END_MARK)
    if start < 0 or stop < start:
        raise ValueError("the statement printed no answer")
    value = json.loads(text[start + len(BEGIN_MARK) : stop])
    if not isinstance(value, dict):
        raise ValueError("the statement's answer is no object")
    return value
