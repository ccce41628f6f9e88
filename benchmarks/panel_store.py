"""What the panel's benchmark looks at: many short runs, and a long one of 256 workers that goes on."""

from __future__ import annotations

import random
import time

from fake_cluster import state
from server.stored import append_after, finished, stored

from ddl_magics.runtime import events as ev

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
        told = ({**event, "time": begun} for event in start)
        self.folder = stored(ev.RUNNING, told, name="long", workers=WORKERS, created=begun)
        self._random = random.Random(0)
        self._number, self.step = len(start), 0
        with open(self.folder.path / "events.jsonl", "a", encoding="utf-8") as file:
            while self.step < STEPS:
                at = begun + (self.step + bucket) * STEP_SECONDS
                file.writelines(self._steps(rank, bucket, at) for rank in range(WORKERS))
                self.step += bucket
        self.name = self.folder.path.name
        self.bytes = (self.folder.path / "events.jsonl").stat().st_size

    def grow(self, seconds: float) -> None:
        """What its workers report in so many seconds: steps once a second, and a sample of each process."""
        bucket, now = round(1 / STEP_SECONDS), time.time()
        for second in range(round(seconds)):
            lines = [self._steps(rank, bucket, now + second) for rank in range(WORKERS)]
            self.step += bucket
            with open(self.folder.path / "events.jsonl", "a", encoding="utf-8") as file:
                file.writelines(lines)
            append_after(self.folder, self._number, [self._sample(rank) for rank in range(WORKERS)])
            self._number += WORKERS

    def _steps(self, rank: int, bucket: int, at: float) -> str:
        """A line as JSON, made as text: there are millions of them."""
        self._number += 1
        seconds = bucket * STEP_SECONDS * self._random.uniform(0.9, 1.1)
        wait = seconds * self._random.uniform(0.05, 0.4)
        loss = 2.0 / (1 + self.step / 10_000) * self._random.uniform(0.9, 1.1)
        metrics = f'{{"loss":{loss:.6f},"accuracy":{1 - loss / 2.5:.6f}}}' if rank == 0 else "{}"
        return (
            f'{{"v":1,"run":"{self.folder.path.name}","attempt":1,"seq":{self._number},"kind":"steps","rank":{rank},'
            f'"time":{at:.3f},"fit":0,"epoch":{self.step // STEPS},"step":{self.step % STEPS},"count":{bucket},'
            f'"rows":{64 * bucket},"seconds":{seconds:.6f},"compute":{seconds - wait:.6f},"wait":{wait:.6f},'
            f'"metrics":{metrics}}}\n'
        )

    def _sample(self, rank: int) -> ev.Event:
        cpu, memory = self._random.uniform(80.0, 100.0), round(self._random.uniform(1e9, 2e9))
        return ev.make("sample", rank, cpu=cpu, memory=memory, gpus=None)
