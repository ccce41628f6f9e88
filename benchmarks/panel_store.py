"""What the panel's benchmark looks at: many short runs, and a long one of 256 workers that goes on."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable

from fake_cluster import state
from server.stored import finished, stored

from ddl_magics.runtime import events as ev
from ddl_magics.snapshots import Snapshots

WORKERS = 256
STEPS = 10**6
#: A rank reports its steps once a second: with steps of 10 ms, a hundred at a time.
STEP_SECONDS = 0.01


def short_runs(number: int) -> None:
    """Runs of 10 epochs, named run0, run1, ...; the newest is the last."""
    now = time.time()
    for i in range(number):
        finished(epochs=10, name=f"run{i}", created=now - 60.0 * (number - i), workers=2, notebook="/home/me/a.ipynb")


class LongRun:
    """A run that goes on, after `STEPS` steps of which each rank reported `bucket` at a time.

    Its values are noisy, as those of a real run are: what is equal would compress too well.
    """

    def __init__(self, bucket: int = 100) -> None:
        begun = time.time() - STEPS * STEP_SECONDS
        start = [state(ev.RUNNING), ev.make("fit", 0, fit=0, model="m", epochs=2, steps=STEPS)]
        self.folder = stored(ev.RUNNING, name="long", workers=WORKERS, created=begun)
        self.name = self.folder.path.name
        self._snapshots = Snapshots(self.folder, WORKERS)
        self._random = random.Random(0)
        self._number, self.step = 0, 0
        self._record({**event, "time": begun} for event in start)
        while self.step < STEPS:
            self._record(self._steps(bucket, begun + (self.step + bucket) * STEP_SECONDS))
        self.bytes = (self.folder.path / "events.jsonl").stat().st_size

    def grow(self, seconds: float) -> None:
        """What its workers report in so many seconds: steps once a second, and a sample of each process."""
        bucket, now = round(1 / STEP_SECONDS), time.time()
        for second in range(round(seconds)):
            self._record(self._steps(bucket, now + second))
            self._record(self._sample(rank) for rank in range(WORKERS))

    def _record(self, events: Iterable[ev.Event]) -> None:
        """As its kernel does: numbered, stored, and taken over into what is drawn."""
        numbered = []
        for event in events:
            self._number += 1
            numbered.append({**event, "run": self.name, "attempt": 1, "seq": self._number})
        self.folder.append(numbered)
        self._snapshots.feed(numbered)

    def _steps(self, bucket: int, at: float) -> list[ev.Event]:
        """So many steps of all workers."""
        events = [self._bucket(rank, bucket, at) for rank in range(WORKERS)]
        self.step += bucket
        return events

    def _bucket(self, rank: int, count: int, at: float) -> ev.Event:
        seconds = count * STEP_SECONDS * self._random.uniform(0.9, 1.1)
        wait = seconds * self._random.uniform(0.05, 0.4)
        loss = 2.0 / (1 + self.step / 10_000) * self._random.uniform(0.9, 1.1)
        return {
            "v": 1,
            "kind": "steps",
            "rank": rank,
            "time": round(at, 3),
            "fit": 0,
            "epoch": self.step // STEPS,
            "step": self.step % STEPS,
            "count": count,
            "rows": 64 * count,
            "seconds": round(seconds, 6),
            "compute": round(seconds - wait, 6),
            "wait": round(wait, 6),
            "metrics": {"loss": round(loss, 6), "accuracy": round(1 - loss / 2.5, 6)} if rank == 0 else {},
        }

    def _sample(self, rank: int) -> ev.Event:
        cpu, memory = self._random.uniform(80.0, 100.0), round(self._random.uniform(1e9, 2e9))
        return ev.make("sample", rank, cpu=cpu, memory=memory, gpus=None)
