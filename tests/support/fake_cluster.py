"""A cluster that replays events, for faults that a real one cannot be brought to at will."""

import base64
import hashlib
import json

from ddl_magics.clusters.base import Ready
from ddl_magics.clusters.cluster import Cluster, launch_answer
from ddl_magics.runtime import events as ev


def notices(run):
    """What a run has told its user."""
    return [event["message"] for event in run.events if event["kind"] == "notice"]


def state(name, message="", **fields):
    return ev.make("state", ev.JOB, state=name, message=message, **fields)


def epoch(number, **metrics):
    return ev.make("epoch", 0, fit=0, epoch=number, metrics=metrics, seconds=2.0)


def steps(rank, number, step=0, count=10, rows=640, seconds=2.0, **metrics):
    timing = {"seconds": seconds, "compute": seconds / 2, "wait": seconds / 2}
    return ev.make("steps", rank, fit=0, epoch=number, step=step, count=count, rows=rows, metrics=metrics, **timing)


def training(epochs=2):
    """The events of a run that goes well."""
    yield state(ev.PREFLIGHT, "looking for 2 slots")
    yield state(ev.RUNNING, "2 workers train")
    for rank in (0, 1):
        yield ev.make("worker", rank, host=f"host{rank}", pid=100 + rank, device="CPU", state="training")
    yield ev.make("fit", 0, fit=0, model="m", epochs=epochs, steps=10, batch_size=64)
    for number in range(epochs):
        for rank in (0, 1):
            yield steps(rank, number, loss=1.0 / (number + 1))
        yield ev.make("log", 0, stream="stdout", text=f"hello {number}\n")
        yield ev.make("log", 1, stream="stdout", text="not the chief\n")
        yield epoch(number, loss=1.0 / (number + 1), accuracy=0.5 + number / 10)
    yield ev.make("fit_end", 0, fit=0, stopped=False)
    yield ev.make("result", 0, encoding="json", value={"answer": 42})
    yield state(ev.FINISHED, "done")


class FakeCluster(Cluster):
    """Tells each run `script`; events come one poll at a time from `release_events(n)` on, or all at once."""

    name = "fake"
    poll_seconds = 0.01

    def __init__(self, script=None, slots=2, artifacts=None, visible=None):
        self.script = list(training() if script is None else script)
        self.slots = slots
        self.artifacts = artifacts or {}
        self.visible = len(self.script) if visible is None else visible
        self.launched, self.stopped, self.released = {}, [], []
        self.namespaces = {}
        self.refuse = None
        self.broken = None
        self.shut = False

    def status(self):
        return Ready(self.slots, self.slots, {"spark": "0", "master": "fake"})

    def check(self, spec, namespace):
        return self.refuse

    def launch(self, spec, namespace):
        self.launched[spec.run] = spec
        self.namespaces[spec.run] = dict(namespace)
        return launch_answer({"ok": True})

    def findings(self):
        status = self.status()
        return [("cluster", f"{self.name}: {status.slots} slots, {status.free} free")]

    def shutdown(self):
        self.shut = True

    def _call(self, function, request, namespace=None):
        if self.broken:
            raise self.broken
        return getattr(self, "_" + function)(json.loads(json.dumps(request)))

    def _poll(self, request):
        events = self.script[: self.visible]
        if request["run"] in self.stopped:
            events = [*events, state(ev.STOPPING), state(ev.STOPPED, "stopped")]
        events = [{**e, "run": request["run"], "attempt": 1, "seq": i} for i, e in enumerate(events, 1)]
        fresh = events[request["after"] : request["after"] + 3]
        last = fresh[-1]["seq"] if fresh else request["after"]
        now = next((e["state"] for e in reversed(events) if e["kind"] == "state"), ev.PREFLIGHT)
        return {"events": fresh, "last": last, "more": last < len(events), "state": now}

    def _stop(self, request):
        self.stopped.append(request["run"])
        return {"ok": True}

    def _fetch(self, request):
        data = self.artifacts[request["name"]]
        part = data[request["offset"] : request["offset"] + min(request["length"], 1000)]
        digest = hashlib.sha256(data).hexdigest()
        return {"data": base64.b64encode(part).decode(), "size": len(data), "sha256": digest}

    def _executors(self, request):
        return {"ok": True, "count": 0}

    def _cache(self, request):
        return {"entries": []}

    def _release(self, request):
        self.released.append(request["run"])
        return {"ok": True}
