"""The statements that we send to a Livy session, each of them one expression.

Livy 0.7.1 on Python 3.8 and newer refuses code of more than one top-level statement, so what a statement does is the
source of one of the functions here, executed in a dict of its own. An answer is printed between marks: Livy's text
may hold warnings too, and what is printed before an exception is lost. Nothing secret may be in a statement, since
Livy and sparkmagic log them. The functions are executed on the cluster: Python 3.8, and names are imported inside.
"""

# mypy: ignore-errors

from __future__ import annotations

import base64
import hashlib
import inspect
import json
import textwrap
from typing import Any

from ddl_magics.clusters.shipping import Shipment

BEGIN, END = "<ddl_magics:", ":ddl_magics>"
#: Base64 of one statement: Livy's messages must stay below 50 MB, and gateways allow 1 MB or so.
CHUNK_CHARACTERS = 2**19


def _receive(request):
    """Keep a part of the runtime's zip; with the last one, unpack and import it, out of everybody's way."""
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
    # Kept where no cell sees it and any later statement finds it.
    parts = sys.__dict__.setdefault("_ddl_magics_parts", {}).setdefault(name, {})
    parts[request["index"]] = request["data"]
    if len(parts) < request["count"]:
        return {"ready": False}
    data = base64.b64decode("".join(parts[i] for i in range(request["count"])))
    del sys._ddl_magics_parts[name]
    if hashlib.sha256(data).hexdigest() != request["sha256"]:
        raise ValueError("the runtime arrived damaged")
    folder = tempfile.mkdtemp(prefix="ddl-driver-")
    # As runtime/scratch.py does: the lock ends with this process, and the next one may remove the folder.
    owner = open(os.path.join(folder, ".owner"), "w")  # noqa: SIM115 - open for as long as the folder is ours
    fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
    zipfile.ZipFile(io.BytesIO(data)).extractall(folder)
    package = os.path.join(folder, name)
    spec = importlib.util.spec_from_file_location(
        name, os.path.join(package, "__init__.py"), submodule_search_locations=[package]
    )
    module = importlib.util.module_from_spec(spec)
    module._owner = owner
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
        importlib.import_module(name + ".remote")
    except BaseException:
        for known in [key for key in sys.modules if key == name or key.startswith(name + ".")]:
            del sys.modules[known]
        raise
    return {"ready": True}


def _call(request):
    """Call one of the driver's functions."""
    import json
    import sys

    remote = sys.modules.get(request["module"] + ".remote")
    if remote is None:
        return {"missing": True}
    arguments = list(request["arguments"])
    if request["namespace"]:
        arguments.append(session)  # noqa: F821 - the globals of the Livy session, given to the statement
    return json.loads(remote.CALLS[request["function"]](*arguments))


def _look(request):
    """What `%ddl check` wants to know of the driver, and what time it is there."""
    import importlib.util
    import platform
    import sys
    import time
    from importlib.metadata import PackageNotFoundError, version

    found = {"time": time.time(), "python": platform.python_version(), "ready": request["module"] in sys.modules}
    # The module may come from a distribution of another name.
    for package, distributions in (
        ("tensorflow", ("tensorflow", "tensorflow-cpu", "tensorflow-gpu", "intel-tensorflow", "tf-nightly")),
        ("keras", ("keras",)),
        ("numpy", ("numpy",)),
    ):
        found[package] = None
        if importlib.util.find_spec(package) is not None:
            found[package] = "of unknown version"
            for name in distributions:
                try:
                    found[package] = version(name)
                    break
                except PackageNotFoundError:
                    continue
    return found


def _assign(request):
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
    session[request["name"]] = value  # noqa: F821 - the globals of the Livy session, given to the statement
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


def _statement(function: Any, request: dict[str, Any]) -> str:
    source = textwrap.dedent(inspect.getsource(function))
    frame = _FRAME.format(wrapper="run", function=function.__name__, begin=BEGIN, end=END)
    names = f'{{"session": globals(), "request": {json.dumps(request)!r}}}'
    return f"exec({'import json' + chr(10) + source + frame!r}, {names})"


def receive(shipment: Shipment) -> list[str]:
    """The statements that bring the runtime to a session, to be executed in any order."""
    text = base64.b64encode(shipment.data).decode("ascii")
    parts = [text[i : i + CHUNK_CHARACTERS] for i in range(0, len(text), CHUNK_CHARACTERS)]
    common = {
        "module": shipment.module,
        "count": len(parts),
        "sha256": hashlib.sha256(shipment.data).hexdigest(),
    }
    return [_statement(_receive, {**common, "index": index, "data": part}) for index, part in enumerate(parts)]


def call(module: str, function: str, *arguments: str, namespace: bool = False) -> str:
    """The statement that calls a function of the shipped runtime's `remote`; {"missing"} where it was not shipped."""
    request = {"module": module, "function": function, "arguments": arguments, "namespace": namespace}
    return _statement(_call, request)


def look(module: str) -> str:
    """The statement that looks around in the driver."""
    return _statement(_look, {"module": module})


def assign(name: str, encoding: str, data: str) -> str:
    """The statement that sets a variable to `data`, which `clusters/sending.py` has encoded."""
    return _statement(_assign, {"name": name, "encoding": encoding, "data": data})


def answer(text: str) -> dict[str, Any]:
    """The answer in the text that a statement printed.

    Raises:
        ValueError: there is none.
    """
    start, end = text.find(BEGIN), text.rfind(END)
    if start < 0 or end < start:
        raise ValueError("the statement printed no answer")
    value = json.loads(text[start + len(BEGIN) : end])
    if not isinstance(value, dict):
        raise ValueError("the statement's answer is no object")
    return value
