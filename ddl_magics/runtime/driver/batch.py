"""A run in a Spark application of its own, as a batch of Livy: `write` puts its program into storage, `main` trains.

`write` is called in a session, as Livy takes no file. `main` is the driver of the batch, which has neither a notebook
nor a session: it prints what the run does, writes its events beside its files, and returns the exit status.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from typing import TYPE_CHECKING, Iterator

from .. import events as ev
from .. import package, scratch
from ..spark import storage
from . import api, out

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

POLL_SECONDS = 0.5
SCRIPT, SPEC = "main.py", "spec.json"
#: The exit statuses; that of every other end is 1.
_STATUS = {ev.FINISHED: 0, ev.STOPPED: 3}
#: Before each line of ours: a log of Livy has Spark's lines as well, and keeps the newest only.
LINE_MARK, END_MARK = "<ddl_magics %d> ", "<ddl_magics end> "

#: The file of the batch. The runtime reads its own sources, and cannot do so in a zip.
_SCRIPT = '''"""Trains a run of ddl_magics: the driver of a batch."""

import importlib
import importlib.util
import os
import shutil
import sys
import tempfile
import zipfile


def main():
    folder = tempfile.mkdtemp(prefix="ddl_batch_")
    try:
        with zipfile.ZipFile(importlib.util.find_spec("{module}").loader.archive) as runtime:
            runtime.extractall(folder)
        sys.path.insert(0, folder)
        return importlib.import_module("{module}.driver.batch").main(sys.argv[1], sys.argv[2])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # threads of Spark would keep an old one alive
'''


def write(request: str) -> str:
    """{"spec"} -> {"ok": true, "file", "py_files", "args"}: URIs of a batch's files, in a folder below --out, and args.

    {"ok": false, "error"} where --out cannot be written to. What an earlier call has written stays as it is.
    """
    from pyspark import SparkContext

    spec, sc = json.loads(request)["spec"], SparkContext._active_spark_context
    if sc is None:
        return api._error("spark", "there is no active SparkContext in this process")
    module = os.path.basename(package.FOLDER)
    archive = module + ".zip"
    contents = {
        SCRIPT: _SCRIPT.format(module=module).encode(),
        SPEC: json.dumps(spec).encode(),
        archive: package.own_zip(),
    }
    try:
        storage.check(sc, out.OPTION, spec["out"], spec["run"])
        with _program(sc, spec["out"], spec["run"]) as folder, scratch.folder("batch") as local:
            written, uri = folder.names(), folder.uri
            for name in contents.keys() - set(written):
                path = os.path.join(local, name)
                with open(path, "wb") as file:
                    file.write(contents[name])
                folder.upload(path, name)
    except (storage.StorageError, OSError) as error:
        return api._error("usage", str(error))
    files = {"file": "%s/%s" % (uri, SCRIPT), "py_files": ["%s/%s" % (uri, archive)]}
    return json.dumps(dict(files, ok=True, args=[spec["out"], spec["run"]]))


def _program(sc: SparkContext, uri: str, run: str) -> storage.Folder:
    return storage.Folder(sc, out.OPTION, "%s/%s" % (uri.rstrip("/"), storage.program_name(run)), run)


def main(uri: str, run: str) -> int:
    """Train the run whose program is below `uri`, its --out; returns the exit status."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    try:
        return _train(spark, uri, run, _Lines())
    finally:
        api.registry.forget_all()
        spark.stop()


class _Lines:
    """Prints lines with a number each, so that a reader of a log that forgets its oldest prints none twice."""

    def __init__(self) -> None:
        self._number = 0
        with contextlib.suppress(AttributeError):  # of a stream that is not a file
            sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]

    def show(self, text: str) -> None:
        for line in text.splitlines():
            self._number += 1
            print(LINE_MARK % self._number + line, flush=True)

    def end(self, state: str, message: str) -> int:
        """The last line. Returns the exit status."""
        print(END_MARK + json.dumps({"state": state, "message": message}), flush=True)
        return _STATUS.get(state, 1)


def _train(spark: SparkSession, uri: str, run: str, lines: _Lines) -> int:
    sc = spark.sparkContext
    with scratch.folder("batch") as local:
        try:
            path = os.path.join(local, SPEC)
            with _program(sc, uri, run) as folder:
                folder.download(SPEC, path)
            with open(path) as file:
                record = file.read()
        except (storage.StorageError, OSError) as error:
            return lines.end(ev.FAILED, str(error))
        reply = json.loads(api.launch(record, {"spark": spark}))
        if not reply["ok"]:
            _forget_program(sc, uri, run)
            return lines.end(ev.FAILED, reply["error"]["message"])
        state, message = _follow(run, lines)
        try:
            path = os.path.join(local, storage.EVENTS)
            with open(path, "w") as file:
                file.writelines(json.dumps(event) + "\n" for event in _events(run))
            with storage.Folder(sc, out.OPTION, uri, run) as folder:
                folder.upload(path, storage.EVENTS)
        except (storage.StorageError, OSError) as error:
            lines.show("the events of the run are not kept: %s" % error)
    _forget_program(sc, uri, run)
    return lines.end(state, message)


def _forget_program(sc: SparkContext, uri: str, run: str) -> None:
    with contextlib.suppress(storage.StorageError):  # what is left there harms nobody
        with _program(sc, uri, run) as folder:
            for name in folder.names():
                folder.delete(name)
        with storage.Folder(sc, out.OPTION, uri, run) as folder:
            folder.delete(storage.program_name(run))


def _follow(run: str, lines: _Lines) -> tuple[str, str]:
    """Shows what the run does, to its end. Returns its state and the message of that."""
    after, message = 0, ""
    while True:
        reply = json.loads(api.poll(json.dumps({"run": run, "after": after})))
        after = reply["last"]
        for event in reply["events"]:
            lines.show(_text(event))
            if event["kind"] == ev.State.kind:
                message = event["message"]
        if reply["state"] in ev.TERMINAL and not reply["more"]:
            return reply["state"], message
        if not reply["more"]:
            time.sleep(POLL_SECONDS)


def _events(run: str) -> Iterator[ev.RawEvent]:
    """What the run's log has kept of its events."""
    after, more = 0, True
    while more:
        reply = json.loads(api.poll(json.dumps({"run": run, "after": after})))
        after, more = reply["last"], reply["more"]
        yield from reply["events"]


def _text(event: ev.RawEvent) -> str:
    """What a person is told of an event; empty for most."""
    kind = event["kind"]
    if kind == ev.Epoch.kind:
        metrics = ["%s %s" % (name, _figure(value)) for name, value in event["metrics"].items()]
        return "  ".join(["epoch %d" % (event["epoch"] + 1), *metrics])
    if kind == ev.Log.kind:
        return str(event["text"])
    if kind == ev.State.kind:
        failure = event.get("failure")
        return ("%s: %s" % (event["state"], event["message"])) + ("\n" + failure["traceback"] if failure else "")
    return ""


def _figure(value: float | None) -> str:
    return "nan" if value is None else "%.6g" % value
