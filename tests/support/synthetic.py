"""Invented runs as streams of events, for tests and pictures of the views."""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ddl_magics.runtime import events

#: 21 November 2026, 10:00:00 UTC.
START = 1_795_255_200.0

Event = dict[str, Any]


@dataclass
class Synthetic:
    """A run of `workers` ranks that trains `epochs` of `steps`; a rank of `slow` is as much slower from 60 % on.

    groups: share of the training -> the ranks that train from then on, where they come and go.
    """

    workers: int
    epochs: int = 10
    steps: int = 938
    strategy: str = "allreduce"
    gpus: int | None = None
    slow: dict[int, float] | None = None
    step_seconds: float = 0.026
    bucket: int = 10
    start: float = START
    seed: int = 7
    groups: dict[float, list[int]] | None = None

    def __post_init__(self) -> None:
        self.gpus = self.workers if self.gpus is None else self.gpus
        self.slow = self.slow or {}
        self.random = random.Random(self.seed)
        self.time = self.start
        self.seq = self.done = 0
        self.members = list(range(self.workers))
        self.regroupings = sorted((self.groups or {}).items())

    def make(self, kind: str, rank: int = events.JOB, **fields: Any) -> Event:
        self.seq += 1
        event = events.make(kind, rank, **fields)
        return dict(event, run="synthetic", attempt=0, seq=self.seq, time=self.time)

    def state(self, state: str, message: str = "", **fields: Any) -> Event:
        return self.make("state", state=state, message=message, **fields)

    def log(self, rank: int, text: str, stream: str = "stdout") -> Event:
        return self.make("log", rank, stream=stream, text=text)

    def begin(self) -> Iterator[Event]:
        yield self.state(events.QUEUED)
        yield self.state(events.SUBMITTED)
        yield self.state(events.WAITING, f"{self.workers} of {self.workers} executors", ready=1, needed=self.workers)
        for rank in self.members:
            yield self.worker(rank)
        yield self.state(events.RUNNING)
        if self.groups is not None:
            yield self.make("group", members=self.members)
        yield self.make(
            "fit", fit=0, model="sequential", epochs=self.epochs, steps=self.steps, batch_size=256, parameters=98_442
        )

    def worker(self, rank: int) -> Event:
        gpu = rank < self.gpus
        facts = {"device": "Tesla V100" if gpu else "CPU", "state": "training", "cores": 8}
        return self.make("worker", rank, host=f"wn{rank + 3}-hdi", pid=4000 + rank, **facts)

    def regroup(self, members: list[int]) -> Iterator[Event]:
        """These ranks train from now on."""
        before, self.members = set(self.members), members
        for rank in before - set(members):
            death = f"rank {rank} on wn{rank + 3}-hdi died (its process {4000 + rank} was killed by SIGKILL)"
            yield self.state(events.RUNNING, f"{death}; {len(members)} workers train on")
        for rank in set(members) - before:
            yield self.worker(rank)
            text = f"rank {rank} on wn{rank + 3}-hdi has joined; running on {len(members)} workers"
            yield self.state(events.RUNNING, text)
        yield self.make("group", members=members)

    def train(self, until: float = 1.0) -> Iterator[Event]:
        """The steps that were not done yet, up to the share `until` of all of them."""
        total = self.epochs * self.steps
        sampled = self.time - 10
        while self.done < int(until * total):
            epoch, step = divmod(self.done, self.steps)
            count = min(self.bucket, self.steps - step)
            share = self.done / total
            if self.regroupings and share >= self.regroupings[0][0]:
                yield from self.regroup(self.regroupings.pop(0)[1])
            slowest = max([1.0, *self.slow.values()]) if share > 0.6 and self.strategy != "ps" else 1.0
            slowest *= self.workers / len(self.members)
            seconds = count * self.step_seconds * slowest * (1 + 0.02 * self.random.random())
            self.time += seconds
            yield from self._steps(epoch, step, count, seconds, share)
            if self.time - sampled >= 1.0:
                sampled = self.time
                yield from self._samples(share)
            self.done += count
            if step + count == self.steps:
                yield from self._epoch(epoch, self.done / total)

    def _steps(self, epoch: int, step: int, count: int, seconds: float, share: float) -> Iterator[Event]:
        for rank in self.members:
            slow = self.slow.get(rank, 1.0) if share > 0.6 else 1.0
            slow *= self.workers / len(self.members)
            noise = 1 + 0.04 * self.random.random()
            compute = min(count * self.step_seconds * slow * 0.97 * noise, seconds)
            yield self.make(
                "steps",
                rank,
                fit=0,
                epoch=epoch,
                step=step,
                count=count,
                rows=int(
                    count * 256 / (1 if self.strategy == "ps" else len(self.members)) / (slow if self.is_ps else 1)
                ),
                seconds=seconds,
                compute=compute,
                wait=seconds - compute,
                metrics=self.metrics(share, 0.06 * (self.random.random() - 0.5) * math.exp(-share)),
            )

    @property
    def is_ps(self) -> bool:
        return self.strategy == "ps"

    @staticmethod
    def metrics(share: float, noise: float = 0.0, gap: float = 0.0) -> dict[str, float]:
        loss = 0.12 + gap + 2.1 * math.exp(-5 * share) * (1 + noise)
        accuracy = 0.97 - gap / 3 - 0.85 * math.exp(-5 * share) * (1 + noise)
        return {"loss": loss, "accuracy": accuracy}

    def _samples(self, share: float) -> Iterator[Event]:
        for rank in self.members:
            slow = rank in self.slow and share > 0.6
            waits = bool(self.slow) and share > 0.6 and not slow
            percent = (95 if slow else 57 if waits else 90) + 4 * self.random.random()
            gpu = {
                "index": 0,
                "name": "Tesla V100",
                "percent": percent,
                "memory": int((5.1 + rank % 4 / 10) * 1e9),
                "memory_total": 16_000_000_000,
                "power": 110 + 1.6 * percent,
                "power_limit": 300.0,
            }
            cpu = (310 if rank < self.gpus else 790) - 12 * (rank % 5) + 10 * self.random.random()
            gpus = [gpu] if rank < self.gpus else None
            yield self.make("sample", rank, cpu=cpu, memory=int((3.9 + rank % 3 / 10) * 1e9), gpus=gpus)
            if self.is_ps:
                stale = self.random.randint(1, 4)
                yield self.make("commits", rank, commits=4, staleness=stale, staleness_max=stale + 2)

    def _epoch(self, epoch: int, share: float) -> Iterator[Event]:
        values = self.metrics(share)
        values.update({f"val_{name}": value for name, value in self.metrics(share, gap=0.07).items()})
        yield self.make("epoch", 0, fit=0, epoch=epoch, metrics=values, seconds=self.steps * self.step_seconds)
        words = ", ".join(f"{name} {value:.3f}" for name, value in values.items())
        yield self.log(0, f"epoch {epoch + 1}: {words}\n")

    def end(self, state: str = events.FINISHED, message: str = "", **fields: Any) -> Iterator[Event]:
        yield self.make("fit_end", fit=0, stopped=state == events.STOPPED)
        yield self.state(state, message, **fields)

    def fail(self, rank: int) -> Iterator[Event]:
        traceback = (
            "Traceback (most recent call last):\n"
            '  File "<distributed cell>", line 7, in <module>\n'
            "    model.fit(x, y, epochs=10)\n"
            '  File "keras/src/utils/traceback_utils.py", line 122, in error_handler\n'
            "    raise e.with_traceback(filtered_tb) from None\n"
            "ValueError: Shapes (None, 10) and (None, 1) are incompatible\n"
        )
        failure = {
            "rank": rank,
            "host": f"wn{rank + 3}-hdi",
            "kind": "error",
            "message": "ValueError: Shapes (None, 10) and (None, 1) are incompatible",
            "traceback": traceback,
        }
        yield self.state(events.FAILED, failure["message"], failure=failure)
