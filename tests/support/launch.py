"""Runs cells through the driver's own API, as a cluster does, without magics: for the tests of the engine."""

import base64
import functools
import io
import json
import os
import signal
import time
import uuid
from dataclasses import dataclass

import numpy as np

from ddl_magics.clusters.shipping import load_driver
from ddl_magics.runtime.events import TERMINAL
from ddl_magics.runtime.histories import histories

#: Once a session: sources that change while tests run would make another runtime, which knows none of the runs.
load_driver = functools.cache(load_driver)

POLL_SECONDS = 0.1
DEFAULT_RULE = "adag"
DEFAULT_SPEC = {"strategy": "allreduce", "workers": 2, "seed": 11, "prewarm": True}


class Reports:
    """What a run has reported."""

    def of_kind(self, kind, rank=None):
        return [e for e in self.events if e["kind"] == kind and rank in (None, e["rank"])]

    def logged(self, name, rank=None):
        """What ranks have logged of this name."""
        return [e["metrics"][name] for e in self.of_kind("values", rank) if name in e["metrics"]]

    def logs(self, rank=None):
        return "".join(e["text"] for e in self.of_kind("log", rank))

    def pid(self, rank):
        """The process of a rank's newest attempt."""
        return self.of_kind("worker", rank)[-1]["pid"]


@dataclass
class Ended(Reports):
    """A run that has ended: its state, its failure or None, and its events."""

    run: str
    state: str
    message: str
    failure: dict | None
    events: list

    @property
    def result(self):
        (event,) = self.of_kind("result")
        if "artifact" in event:
            data = fetch(self.run, event["artifact"])
            return json.loads(data) if event["encoding"] == "json" else data
        return event.get("value")

    @property
    def history(self):
        """Epoch metrics of the last fit that had an epoch, as Keras' History has them."""
        return next(filter(None, reversed(histories(self.events))), {})


class Refused(Exception):
    """The driver did not start the run."""


class Running(Reports):
    """A run in progress."""

    def __init__(self, run):
        self.run, self.events, self.state = run, [], ""

    def poll(self):
        reply = json.loads(load_driver().poll(json.dumps({"run": self.run, "after": len(self.events)})))
        assert [e["seq"] for e in reply["events"]] == [len(self.events) + 1 + i for i in range(len(reply["events"]))]
        self.events += reply["events"]
        self.state = reply["state"]
        return reply

    def until(self, condition, seconds=60):
        """Poll until `condition(self)`; TimeoutError with the last events otherwise."""
        deadline = time.monotonic() + seconds
        while True:
            reply = self.poll()
            if condition(self):
                return self
            if self.state in TERMINAL and not reply["more"]:
                raise AssertionError(f"the run ended before: {self.events[-1]}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"after {seconds} s: {self.events[-3:]}")
            time.sleep(POLL_SECONDS)

    def stop(self):
        load_driver().stop(json.dumps({"run": self.run}))

    def wait(self, seconds=180):
        deadline = time.monotonic() + seconds
        while True:
            reply = self.poll()
            if self.state in TERMINAL and not reply["more"]:
                break
            if time.monotonic() > deadline:
                self.stop()
                raise TimeoutError(f"after {seconds} s: {self.events[-5:]}")
            time.sleep(POLL_SECONDS)
        end = [e for e in self.events if e["kind"] == "state"][-1]
        return Ended(self.run, end["state"], end["message"], end.get("failure"), self.events)

    def finished(self, seconds=180):
        """As `wait`, for a run that must finish."""
        ended = self.wait(seconds)
        assert ended.state == "FINISHED", (ended.message, ended.failure and ended.failure["traceback"])
        return ended

    def stopped(self, seconds=60):
        """Stop it; it must end so within the time."""
        self.stop()
        ended = self.wait(seconds)
        assert ended.state == "STOPPED", (ended.message, ended.failure)
        return ended


_started: list[Running] = []


def start(spark, cell, namespace=None, **spec):
    run = "test-" + uuid.uuid4().hex[:8]
    full = dict(DEFAULT_SPEC, cell=cell, run=run, name="test") | spec
    run = full["run"]
    if full["strategy"] == "ps":
        full["rule"] = full.get("rule") or DEFAULT_RULE
    reply = json.loads(load_driver().launch(json.dumps(full), dict(namespace or {}, spark=spark)))
    if not reply["ok"]:
        raise Refused(reply["error"]["message"])
    _started.append(Running(run))
    return _started[-1]


def stop_all():
    """End the runs that a failed test has left: they would hold the executors from the tests after it."""
    for run in _started:
        if run.state not in TERMINAL and run.poll()["state"] not in TERMINAL:
            run.stop()
            run.until(lambda run: run.state in TERMINAL)
    _started.clear()


def run_cell(spark, cell, namespace=None, seconds=180, **spec):
    """Run `cell` to its end."""
    return start(spark, cell, namespace, **spec).wait(seconds)


def finished(spark, cell, namespace=None, seconds=180, **spec):
    """As `run_cell`, of a cell that must finish."""
    return start(spark, cell, namespace, **spec).finished(seconds)


def wait_for_epoch(run, number):
    """Until there are steps of epoch `number` (from 0) of the second fit."""
    run.until(lambda run: any((e["fit"], e["epoch"]) == (1, number) for e in run.of_kind("steps")), 90)


def kill_in_epoch(run, number, rank, which=int):
    """SIGKILL a rank's process, or `which` it descends from, in that epoch of the second fit."""
    wait_for_epoch(run, number)
    os.kill(which(run.pid(rank)), signal.SIGKILL)


def fetch(run, name):
    """The bytes of an artifact."""
    data, size = b"", 1
    while len(data) < size:
        request = {"run": run, "name": name, "offset": len(data), "length": 1 << 20}
        reply = json.loads(load_driver().fetch(json.dumps(request)))
        size = reply["size"]
        data += base64.b64decode(reply["data"])
    return data


def weights(run, index=0, prefix=""):
    with np.load(io.BytesIO(fetch(run, f"{prefix}weights-{index}.npz")), allow_pickle=False) as arrays:
        return [arrays[name] for name in arrays.files]
