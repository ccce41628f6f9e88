"""A run whose time is simulated: its driver, its kernel with a view, its folder, and a server that shows it."""

import gc
import json
import types
from math import sin

from ddl_magics.dashboard.history import History
from ddl_magics.dashboard.messages import Packer
from ddl_magics.runs.recorder import Recorder
from ddl_magics.runtime import events as ev
from ddl_magics.runtime.driver.event_log import EventLog
from ddl_magics.server.listing import Listing
from ddl_magics.server.view_service import ViewService
from ddl_magics.store.snapshots import Snapshots
from support.fake_cluster import state
from support.stored import stored

REPLY_BYTES = 60 * 1024
STEPS_PER_SECOND = 10
POLLS_PER_HEARTBEAT = 5


class EndlessRun:
    """Each rank reports its steps and a sample every `every` seconds; rank 0 an epoch every `epoch_seconds`.

    watched: a notebook polls as often, a view is open, and a page of the panel. Otherwise the driver is alone.
    """

    def __init__(self, workers, every, epoch_seconds, watched):
        self.workers, self.every, self.epoch_seconds, self.watched = workers, every, epoch_seconds, watched
        self.seconds, self.reported = 0, 0
        self.log = EventLog("r")
        self._page, self._number, self._after, self._polls = "", 0, 0, 0
        if watched:
            self.folder = stored(ev.RUNNING, name="endless", workers=workers)
            self.recorder = Recorder(self.folder.path.name, self.folder)
            self.recorder.listen(Snapshots(self.folder, workers).feed)
            self.history = History(workers)
            self.packer = Packer(self.history, {})
            self.recorder.listen(self._show)
            self.views, self.listing = ViewService(), Listing()
        self._report({**state(ev.RUNNING), "rank": ev.JOB})
        self._report(ev.make("fit", 0, fit=0, model="m", epochs=10**6, steps=epoch_seconds * STEPS_PER_SECOND))

    def advance(self, seconds):
        """So much time passes."""
        for _ in range(seconds // self.every):
            self.seconds += self.every
            epoch, within = divmod(self.seconds - self.every, self.epoch_seconds)
            for rank in range(self.workers):
                self._report_of(rank, epoch, within * STEPS_PER_SECOND)
            if within + self.every >= self.epoch_seconds:
                metrics = {"loss": self.loss, "val_loss": self.loss}
                self._report(ev.make("epoch", 0, fit=0, epoch=epoch, metrics=metrics, seconds=self.epoch_seconds))
                self._report(ev.make("log", 0, stream="stdout", text=f"epoch {epoch} has ended\n"))
            if self.watched:
                self.poll()

    @property
    def loss(self):
        """It differs from time to time, as equal values would compress too well."""
        return round(1 + sin(self.seconds), 9)

    @property
    def time(self):
        """The present, which is simulated."""
        return 1.7e9 + self.seconds

    def _report_of(self, rank, epoch, step):
        count, noise = STEPS_PER_SECOND * self.every, sin(self.seconds * (rank + 1))
        times = {"compute": round(0.6 + 0.1 * noise, 6), "wait": round(0.3 - 0.1 * noise, 6), "copy": 0.1, "wire": 0.1}
        metrics = {"loss": self.loss} if rank == 0 else {}
        fields = {"count": count, "rows": 32 * count, "seconds": round(self.every * 0.97, 6), "metrics": metrics}
        self._report(ev.make("steps", rank, fit=0, epoch=epoch, step=step, **fields, **times))
        cpu, memory = round(300 + 50 * noise, 1), int(2e9 + 1e8 * noise)
        self._report(ev.make("sample", rank, cpu=cpu, memory=memory, gpus=None))

    def _report(self, event):
        self.reported += 1
        self.log.append({**event, "time": self.time}, 1)

    def poll(self):
        """Read what the driver has, as a follower does; the folder is tended as at each heartbeat; a page asks."""
        more = True
        while more:
            texts, self._after, more = self.log.read(self._after, REPLY_BYTES)
            self.recorder.record([json.loads(text) for text in texts])
        self._polls += 1
        if self._polls % POLLS_PER_HEARTBEAT == 0:
            self.recorder.writer.tend()

    def look(self):
        """The page of the panel asks until it has everything; the answers."""
        answers, more = [], True
        while more:
            answers.append(self.views.update(self.folder.record(), self._page, self._number))
            self._page, self._number = answers[-1]["page"], answers[-1]["message"]["n"]
            more = answers[-1]["more"]
        return answers

    def _show(self, events):
        self.history.feed(events)
        self.packer.update(self.time, self.time)

    def held(self):
        """{who: bytes of its objects, or of its files}."""
        if not self.watched:
            return {"driver": size_of(self.log)}
        self.look()
        self.listing.page()
        files = sum(path.stat().st_size for path in self.folder.path.rglob("*") if path.is_file())
        return {
            "driver": size_of(self.log),
            "kernel": size_of(self.recorder, self.history, self.packer),
            "server": size_of(self.views, self.listing),
            "disk": files,
        }


_NOT_OWN = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.CodeType, types.FrameType)


def size_of(*roots):
    """Bytes of the objects that can be reached from these, without code."""
    seen, waiting, total = set(), list(roots), 0
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, _NOT_OWN) or type(one).__module__ in ("threading", "logging"):
            continue
        seen.add(id(one))
        total += one.__sizeof__()
        waiting += gc.get_referents(one)
    return total
