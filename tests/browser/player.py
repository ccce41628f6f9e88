"""Plays an invented run into a LiveView: what a notebook of the browser tests calls in its kernel."""

import threading
import time
from collections.abc import Iterable, Iterator
from itertools import islice

from support.synthetic import Event, Synthetic

from ddl_magics.dashboard.live import LiveView


class Player:
    """A LiveView and the run that feeds it: `play()` at once or in a thread, in batches."""

    def __init__(self, run: Synthetic, name: str = "digits", cluster: str = "hdi-prod", waiting: bool = False) -> None:
        self.run = run
        self.stopped = threading.Event()
        self.go_on = threading.Semaphore(0)
        info = {"id": f"run-{name}", "name": name, "strategy": run.strategy, "workers": run.workers, "cluster": cluster}
        if run.groups is not None:
            info["min_workers"] = 2
        self.view = LiveView({**info, "waiting": waiting}, self.stopped.set)

    def play(self, events: Iterable[Event], batch: int = 1000) -> None:
        """Feeds events at once."""
        for part in _batches(events, batch):
            self.view.feed(part)

    def start(self, *parts: Iterable[Event], batch: int, interval: float) -> None:
        """Feeds in a thread, as a run does; after each part but the last it waits for `go_on.release()`.

        When Stop is clicked it ends early, as STOPPED.
        """
        threading.Thread(target=self.follow, args=(parts, batch, interval), daemon=True).start()

    def follow(self, parts: Iterable[Iterable[Event]], batch: int, interval: float) -> None:
        """The same in this thread."""
        for i, part in enumerate(parts):
            if i:
                self.go_on.acquire()
            for events in _batches(part, batch):
                if self.stopped.is_set():
                    self.view.feed(self.run.end("STOPPED", "stopped by the reader; model and history are kept"))
                    return
                self.view.feed(events)
                time.sleep(interval)


def _batches(events: Iterable[Event], size: int) -> Iterator[list[Event]]:
    iterator = iter(events)
    while batch := list(islice(iterator, size)):
        yield batch
