"""A Spark session on YARN in a process of its own (yarn.trial), and its runs."""

import contextlib
import json
import subprocess
import sys
import threading

import pytest
from support.launch import Reports
from support.paths import environment
from yarn import rig

MARKS = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(rig.obstacle()), reason=rig.obstacle()),
]
SECONDS = 300
TRAINS = """
import keras, numpy as np
x = np.random.default_rng(0).normal(size=(256, 4)).astype("float32")
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(x, x.sum(1), batch_size=64, epochs=2, verbose=0)
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


def trained(event):
    return event["kind"] == "epoch" and event.get("epoch", 0) >= 3


def without_master(yarn):
    """A host with an executor and no ApplicationMaster."""
    for node in yarn.nodes:
        containers = yarn.containers(node)
        if containers and not [name for name in containers if name.endswith("_000001")]:
            return node
    raise AssertionError("all hosts have an ApplicationMaster, or no container")


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
        """The first event from here on for which the condition is true."""
        while True:
            self.events.append(self._answer())
            if condition(self.events[-1]):
                return self.events[-1]

    def end(self):
        """The state and the message of its end."""
        last = self.until(lambda event: event.get("state") in ("FINISHED", "FAILED", "STOPPED", "REFUSED"))
        return last["state"], last["message"]

    def messages(self):
        return [event["message"] for event in self.of_kind("state")]
