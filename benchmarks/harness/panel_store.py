"""The runs that panel.py shows: many short ones, and a long one of 256 workers that continues."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable
from typing import Any

from support.fake_cluster import state
from support.stored import finished, stored

from ddl_magics.runtime import events as ev
from ddl_magics.store.snapshots import Snapshots

Event = dict[str, Any]  # as runtime/events.py describes it

WORKERS = 256
STEPS = 10**6
#: A rank reports its steps once a second, so a hundred at a time.
STEP_SECONDS = 0.01


def short_runs(number: int) -> None:
    """Store finished runs of 10 epochs, named run0, run1, ...; the last is the newest."""
    now = time.time()
    for i in range(number):
        finished(epochs=10, name=f"run{i}", created=now - 60.0 * (number - i), workers=2, notebook="/home/me/a.ipynb")


class LongRun:
    """A run in training after `STEPS` steps, of which each rank has reported `bucket` at a time.

    Its values are noisy as those of a real run: equal values would compress too well.

    Attributes:
        name: of the run.
        step: the number of steps so far.
        bytes: of its events after `STEPS` steps.
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
        self.bytes: int = (self.folder.path / "events.jsonl").stat().st_size

    def grow(self, seconds: float) -> None:
        """Store what its workers report in so many seconds: steps and a sample of each process, once a second."""
        bucket, now = round(1 / STEP_SECONDS), time.time()
        for second in range(round(seconds)):
            self._record(self._steps(bucket, now + second))
            self._record(self._sample(rank) for rank in range(WORKERS))

    def _record(self, events: Iterable[Event]) -> None:
        """Number and store events, and add them to the snapshots, as its kernel does."""
        numbered = []
        for event in events:
            self._number += 1
            numbered.append({**event, "run": self.name, "attempt": 1, "seq": self._number})
        self.folder.append(numbered)
        self._snapshots.feed(numbered)

    def _steps(self, bucket: int, at: float) -> list[Event]:
        """The events of the next `bucket` steps, of all workers."""
        events = [self._bucket(rank, bucket, at) for rank in range(WORKERS)]
        self.step += bucket
        return events

    def _bucket(self, rank: int, count: int, at: float) -> Event:
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

    def _sample(self, rank: int) -> Event:
        cpu, memory = self._random.uniform(80.0, 100.0), round(self._random.uniform(1e9, 2e9))
        return ev.make("sample", rank, cpu=cpu, memory=memory, gpus=None)
