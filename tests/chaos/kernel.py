"""The notebook's kernel of a campaign, without Jupyter: a session of ours, driven by lines of JSON.

    python -m chaos.kernel spark EXECUTORS DRIVER_ADDRESS JAVA_HOME_OF_EXECUTORS FOLDER_OF_SPARK
    python -m chaos.kernel livy URL

Each line has a number, a command and its argument; an answer of one line, with the same number, follows. `Kernel` of
scene.py is the other end.
"""

import ctypes
import dataclasses
import json
import os
import random
import sys
import tempfile
import threading

import numpy as np
from support import spark as spark_tests

#: Where a thread is ours.
_OURS = ("/ddl_magics/", "/ddl_runtime_")


def _over_livy(url):
    """(our session over a new one of Livy, the variables of its cells)."""
    from ddl_magics.clusters import livy_session
    from ddl_magics.clusters.livy import LivyCluster
    from ddl_magics.clusters.livy_http import Connection, LivyHttp
    from ddl_magics.session.session import Session

    return Session(LivyCluster(livy_session.create(LivyHttp(Connection(url)), {}, report=lambda line: None))), {}


def _over_spark(executors, address, java_home, local_folder):
    """(our session over a Spark of `executors` executors of one core, the variables of its cells)."""
    from ddl_magics.clusters.embedded import EmbeddedCluster
    from ddl_magics.session.session import Session

    tempfile.tempdir = local_folder  # of Spark's home: the kernel's own is small, and may be full
    spark = spark_tests.on_hosts(int(executors), address, java_home, local_folder)
    tempfile.tempdir = None
    names = {"spark": spark}
    return Session(EmbeddedCluster(lambda: names)), names


class Commands:
    """Each method is a command."""

    def __init__(self, session, names):
        self._session, self._names, self._runs = session, names, {}

    def start(self, about):
        """about: {"options", "cell"}. The run's id."""
        from ddl_magics.options.parsing import parse

        spec = dataclasses.replace(parse(about["options"]), cell=about["cell"])
        run = self._session.submit(spec, self._names)
        self._runs[run.id] = run
        return run.id

    def look(self, about):
        """about: {"run", "after"}. Its state and the events that follow so many."""
        run = self._runs[about["run"]]
        events = run.events
        return {"state": run.state, "reason": run.reason, "events": [dict(e) for e in events[about["after"] :]]}

    def learned(self, about):
        """about: {"run", "to"}. The history of a finished run; the weights are written to the file `to`."""
        run = self._runs[about["run"]]
        run.wait(30)
        np.savez(about["to"], *run.weights())
        return {"history": run.history, "result": run.result}

    def stored(self, about):
        """about: {"run"}. How a run of an earlier kernel ended, as the store has it."""
        from ddl_magics import store
        from ddl_magics.runs import Run

        run = Run.stored(store.find_run(about["run"]))
        return {"state": run.state, "reason": run.reason}

    def fail_thread(self, about):
        """about: {"seed"}. A thread of ours gets a MemoryError where it is. Where that is."""
        threads = _our_threads()
        if not threads:
            return ""
        thread = random.Random(about["seed"]).choice(threads)
        place = _place(thread)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(MemoryError))
        return f"{thread.name}: {place}"


def _our_threads():
    here = threading.current_thread()
    return [each for each in threading.enumerate() if each is not here and _place(each)]


def _place(thread):
    """The innermost function of ours that a thread is in; "" if there is none."""
    frame = sys._current_frames().get(thread.ident)
    while frame is not None:
        if any(part in frame.f_code.co_filename for part in _OURS):
            return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno} {frame.f_code.co_name}"
        frame = frame.f_back
    return ""


def main():
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Spark prints is no answer
    kind, *arguments = sys.argv[1:]
    commands = Commands(*{"spark": _over_spark, "livy": _over_livy}[kind](*arguments))
    print(json.dumps({"number": 0, "ok": "ready"}), file=replies, flush=True)
    for line in sys.stdin:
        number, command, about = json.loads(line)
        try:
            answer = {"number": number, "ok": getattr(commands, command)(about)}
        except Exception as error:
            answer = {"number": number, "error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=replies, flush=True)


if __name__ == "__main__":
    main()
