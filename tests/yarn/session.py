"""A Spark session on YARN in a process of its own (yarn.trial), and its runs."""

import contextlib
import json
import subprocess
import sys
import tarfile
import threading
from pathlib import Path

import numpy as np
import pytest
from support import come_and_go
from support.launch import Reports
from support.paths import environment
from support.processes import completed
from yarn import rig

MARKS = [
    pytest.mark.spark,
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(rig.obstacle()), reason=rig.obstacle()),
]
SECONDS = 300
_ENDS = ("FINISHED", "FAILED", "STOPPED", "REFUSED")
TRAINS = """
import keras, numpy as np
x = np.random.default_rng(0).normal(size=(256, 4)).astype("float32")
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(x, x.sum(1), batch_size=64, epochs=2, verbose=0)
"""
#: In float64, on rows of its own; `dataset` has them in another order.
ROWS, EPOCHS = 240, 4
MODEL = """
import keras, numpy as np
keras.backend.set_floatx("float64")
model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3, "tanh"), keras.layers.Dense(1)])
model.set_weights([np.sin(np.arange(w.size) + 1.0).reshape(w.shape) for w in model.get_weights()])
model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse")
"""
#: An epoch takes a second, so that there is one in which something may happen.
SLOW = """
import keras, numpy as np, time
x = np.random.default_rng(0).normal(size=(256, 4)).astype("float32")
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
def wait(epoch, logs):
    time.sleep(1)
callback = keras.callbacks.LambdaCallback(on_epoch_end=wait)
model.fit(x, x.sum(1), batch_size=64, epochs=15, verbose=0, callbacks=[callback])
"""
_TUNED = SLOW.replace('"sgd"', 'keras.optimizers.SGD(ddl.suggest_float("rate", 0.01, 0.05))').replace("=15", "=4")
#: What a search of three trials comes to: [its state, those of the trials, the executors that had one].
SEARCHES = (
    f"cell = {_TUNED!r}\n"
    + """
import dataclasses
from ddl_magics.clusters.embedded import EmbeddedCluster
from ddl_magics.options.parsing import parse
from ddl_magics.session.session import Session
names = {"spark": spark}
spec = dataclasses.replace(parse("--trials 3 --objective loss:min --prune no --seed 1 --name tuned"), cell=cell)
search = Session(EmbeddedCluster(lambda: names)).search(spec, names)
search.wait(200)
workers = [event for number in range(3) for event in search.run(number).events if event["kind"] == "worker"]
answer = [search.state, list(search.trials["state"]), sorted({worker["executor"] for worker in workers})]
"""
)


#: Seconds until the session has no executor.
RELEASED = """
import time
began = time.monotonic()
while spark.sparkContext._jsc.sc().getExecutorIds().size() and time.monotonic() < began + 120:
    time.sleep(0.2)
answer = time.monotonic() - began
"""


def changes_and_gives_back(session):
    """A run of a session under dynamic allocation loses an executor and gets another; then the session has none."""
    run = session.run(come_and_go.OF_EXECUTOR, min_workers=1)
    assert run.end() == ("FINISHED", "all workers finished"), run.messages()
    come_and_go.assert_changed(run.events)
    seconds = session.here(RELEASED)
    print(f"no executor {seconds:.1f} s after the run")
    assert seconds < 100


def trained(event):
    return event["kind"] == "epoch" and event.get("epoch", 0) >= 3


def without_master(yarn):
    """A host with an executor and no ApplicationMaster."""
    for node in yarn.nodes:
        containers = yarn.containers(node)
        if containers and not [name for name in containers if name.endswith("_000001")]:
            return node
    raise AssertionError("all hosts have an ApplicationMaster, or no container")


def alone(cell):
    """(weights, losses) that plain Keras learns in one process from a cell whose training is called `fit`."""
    tell = "import json; print(json.dumps([[w.tolist() for w in model.get_weights()], fit.history['loss']]))"
    return json.loads(completed([sys.executable, "-c", f"{cell}\n{tell}"], env=environment()).stdout.splitlines()[-1])


def assert_equal(weights, losses, expected):
    """They are what `alone` says, to 1e-9."""
    assert len(weights) == len(expected[0]) and len(losses) == EPOCHS
    assert all(np.abs(np.subtract(*pair)).max() < 1e-9 for pair in zip(weights, expected[0], strict=True))
    assert losses == pytest.approx(expected[1], rel=1e-9)


def packed_environment(python, folder):
    """An archive of an environment as venv-pack writes it, but that its packages are where they are."""
    tell = (
        "import os, sys, sysconfig; print(sys.prefix, os.path.realpath(sys.executable), sysconfig.get_path('purelib'))"
    )
    prefix, interpreter, packages = map(Path, completed([python, "-c", tell]).stdout.split())
    archive = folder / "training.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(prefix / "pyvenv.cfg", "pyvenv.cfg")
        for name, target in (
            ("bin/python", interpreter),
            (f"lib/{packages.parent.name}/site-packages", packages),
        ):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, str(target)
            tar.addfile(link)
    return archive


def trained_rows(events):
    """How many rows the steps of each of two ranks had."""
    steps = [event for event in events if event["kind"] == "steps"]
    return [sum(event["rows"] for event in steps if event["rank"] == rank) for rank in (0, 1)]


class Session:
    """A process of yarn.trial, whose runs are one after the other."""

    def __init__(self, yarn, **settings):
        self._trial = subprocess.Popen(
            [sys.executable, "-m", "yarn.trial", json.dumps({**yarn.settings(2), **settings})],
            env=environment(**yarn.environment()),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._said = []
        threading.Thread(target=lambda: self._said.extend(self._trial.stderr), daemon=True).start()

    def run(self, cell, **spec):
        print(json.dumps([cell, spec]), file=self._trial.stdin, flush=True)
        return Run(self._next)

    def here(self, code):
        """What code of the session's process leaves in `answer`; it has `spark` and `driver`."""
        print(json.dumps(["%%here", code]), file=self._trial.stdin, flush=True)
        return self._next()

    def _next(self):
        limit = threading.Timer(SECONDS, self._trial.kill)
        limit.start()
        line = self._trial.stdout.readline()
        limit.cancel()
        assert line, "".join(self._said[-30:]) or f"nothing came for {SECONDS} s"
        return json.loads(line)

    def end(self):
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._trial.communicate(timeout=60)
        self.kill()

    def kill(self):
        """End it as a crash does: YARN ends the application once it misses the driver."""
        self._trial.kill()
        self._trial.communicate()


class Run(Reports):
    """A run in progress. info: of its session, before it. events: those so far."""

    def __init__(self, answer):
        self._answer, self.info, self.events = answer, answer(), []

    def until(self, condition):
        """The first event from here on for which the condition is true; it must come before the run has ended."""
        while True:
            self.events.append(self._answer())
            if condition(self.events[-1]):
                return self.events[-1]
            assert self.events[-1].get("state") not in _ENDS, self.messages()

    def end(self):
        """The state and the message of its end."""
        last = self.until(lambda event: event.get("state") in _ENDS)
        return last["state"], last["message"]

    def messages(self):
        return [event["message"] for event in self.of_kind("state")]
