"""The thread that takes a run through its life: its turn, launch, events, artifacts, release.

It alone writes the run's folder. Driver and notebook each make events; the notebook's own (QUEUED, LOST, ...) come
before the driver's first and after its last, so a constant offset between the two sequences keeps them without gaps.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ddl_magics import owner
from ddl_magics.clusters.base import Cluster, NotStarted, Polled, Ready, Refused, Unreachable
from ddl_magics.runtime import events as ev
from ddl_magics.spec import RunSpec
from ddl_magics.store import RunFolder
from ddl_magics.timeline import Event, Timeline
from ddl_magics.turns import Turns

#: Longest time between two polls while nothing happens.
IDLE_POLL_SECONDS = 2.0
IDLE_POLL_FACTOR = 1.3
#: Without an answer for so long, a run is LOST.
LOST_SECONDS = 120.0
#: How often a waiting run looks whether it may start.
TURN_SECONDS = 0.5
#: Longest time in the queue.
QUEUE_SECONDS = 24 * 3600.0
#: Views are told at least so often, so that they can show that the kernel is there.
TICK_SECONDS = 1.0
#: What a run may take longer than its --timeout, which the driver watches, until the notebook stops it.
TIMEOUT_GRACE_SECONDS = 30.0

Listener = Callable[[list[Event]], None]


class Follower:
    """Follows one run in a thread of its own, from `start` until `timeline` is settled.

    Listeners get new events in that thread, and an empty list now and then; what they raise does not harm the run.
    """

    def __init__(
        self, spec: RunSpec, cluster: Cluster, turns: Turns, folder: RunFolder, namespace: Mapping[str, Any]
    ) -> None:
        self.spec = spec
        self.cluster = cluster
        self.folder = folder
        self.timeline = Timeline()
        self._turns = turns
        # The names as they are now: a queued cell must not see what later cells make of them.
        self._namespace: dict[str, Any] = dict(namespace)
        self._listeners: list[Listener] = []
        self._told: dict[int, int] = {}
        self._listening = threading.Lock()
        self._wake = threading.Event()
        self._stop_wanted = False
        self._stop_sent = False
        self._launched = False
        self._running_since: float | None = None
        self._offset = 0
        self._epochs = 0
        self._beaten = self._ticked = time.monotonic()
        self._thread = threading.Thread(target=self._live, name=f"ddl_magics {spec.name}", daemon=True)

    def start(self) -> Refused | None:
        """Launch at once where the cluster is ready and has room, else in the background.

        Returns:
            The cluster's refusal when it is known at once; the run has then not begun.
        """
        self._turns.join(self.spec.run)
        started = False
        if isinstance(self.cluster.status(), Ready):
            started = self._take_turn()
            if started and isinstance(refused := self._launch(), Refused):
                self._turns.leave(self.spec.run)
                return refused
        if not started:
            self._say("state", state=ev.QUEUED, message=self._waits_for())
        self._thread.start()
        return None

    def listen(self, listener: Listener) -> None:
        """Tell the listener all events so far, and each new one once."""
        with self._listening:
            self._listeners.append(listener)
        self._tell()

    def request_stop(self) -> None:
        self._stop_wanted = True
        self._wake.set()

    def give_up(self, reason: str) -> None:
        """The process exits and cannot wait for the run's end."""
        self._end(ev.LOST, reason)

    def _live(self) -> None:
        try:
            if self._launched or self._wait_for_turn():
                self._follow()
                self._collect()
        except Exception as error:  # whatever it is: nobody may wait for ever for a run that nobody follows
            self._end(ev.LOST, f"the notebook could not follow the run ({type(error).__name__}: {error})")
        finally:
            self._turns.leave(self.spec.run)
            self.timeline.settle()
            self._tell()

    # Its turn

    def _take_turn(self) -> bool:
        status = self.cluster.status()
        if isinstance(status, NotStarted):
            # What is started is made for this run.
            return self._turns.take(self.spec.run, self.spec.workers, self.spec.workers, self.spec.workers)
        if isinstance(status, Ready):
            return self._turns.take(self.spec.run, self.spec.workers, status.slots, status.free)
        return False

    def _wait_for_turn(self) -> bool:
        """Launch when it is this run's turn; False if the run ended before."""
        began = answered = time.monotonic()
        while not self._take_turn():
            if self._stop_due():
                self._end(ev.STOPPED, "stopped before it started")
                return False
            now, status = time.monotonic(), self.cluster.status()
            refused = self.cluster.check(self.spec, self._namespace)
            if not isinstance(status, Unreachable):
                answered = now
            elif now > answered + LOST_SECONDS:
                refused = Refused("spark", status.message)
            if now > began + QUEUE_SECONDS:
                refused = Refused("slots", f"no {_slots(self.spec.workers)} came free: ask for fewer with --workers.")
            if refused is not None:
                self._fail(refused)
                return False
            self._pause(TURN_SECONDS)
        status = self.cluster.status()
        if isinstance(status, NotStarted):
            self._say("state", state=ev.PREFLIGHT, message=status.message)
        refused = self._launch()
        if refused is not None:
            self._fail(refused)
        return refused is None

    def _launch(self) -> Refused | None:
        answer = self.cluster.launch(self.spec, self._namespace)
        # A notebook's arrays must not be kept alive by a run that has taken what it needs.
        self._namespace = {}
        if isinstance(answer, Refused):
            return answer
        self._launched = True
        self._offset = self.timeline.last
        return None

    def _waits_for(self) -> str:
        ahead = len(self._turns.ahead(self.spec.run))
        if not ahead:
            return ""
        return f"waits for {_slots(self.spec.workers)}; {ahead} {'run is' if ahead == 1 else 'runs are'} before it"

    # Its events

    def _follow(self) -> None:
        pause, answered = self.cluster.poll_seconds, time.monotonic()
        while not self.timeline.over:
            if self._stop_due() and not self._stop_sent:
                self._stop_sent = True
                self.cluster.stop(self.spec.run)
            answer = self.cluster.poll(self.spec.run, self.timeline.last - self._offset)
            if isinstance(answer, Unreachable):
                if answer.gone or time.monotonic() - answered > LOST_SECONDS:
                    self._end(ev.LOST, answer.message)
                    return
            else:
                answered = time.monotonic()
                self._receive(answer)
                if answer.more:
                    continue
                if answer.state == ev.LOST and not self.timeline.over:
                    self._end(ev.LOST, "the driver does not know the run any more")
                    return
            busy = isinstance(answer, Polled) and answer.events
            pause = self.cluster.poll_seconds if busy else min(pause * IDLE_POLL_FACTOR, IDLE_POLL_SECONDS)
            if not self.timeline.over:
                self._pause(pause)

    def _receive(self, answer: Polled) -> None:
        expected = self.timeline.last - self._offset
        fresh = [{**event, "seq": event["seq"] + self._offset} for event in answer.events if event["seq"] > expected]
        self._record(fresh)
        if self._running_since is None and self.timeline.state == ev.RUNNING:
            self._running_since = time.monotonic()

    def _stop_due(self) -> bool:
        if self.folder.requested("stop") or self._too_late():
            self._stop_wanted = True
        return self._stop_wanted

    def _too_late(self) -> bool:
        if self.spec.timeout is None or self._running_since is None:
            return False
        return time.monotonic() > self._running_since + self.spec.timeout + TIMEOUT_GRACE_SECONDS

    # Its end

    def _collect(self) -> None:
        """Fetch what the driver holds, then let it forget the run."""
        if self.timeline.state != ev.LOST:
            for event in self.timeline.events():
                if event.get("kind") == "artifact":
                    problem = self.cluster.fetch(self.spec.run, event["name"], self.folder.file(event["name"]))
                    if problem:
                        self._say("notice", level="warning", message=f"{event['name']} could not be had: {problem}")
            self.cluster.release(self.spec.run)

    def _fail(self, refused: Refused) -> None:
        failure = {"rank": ev.JOB, "host": "", "kind": "spark", "message": refused.message, "traceback": ""}
        self._say("state", state=ev.FAILED, message=refused.message, failure=failure)

    def _end(self, state: str, message: str) -> None:
        if not self.timeline.over:
            self._say("state", state=state, message=message)

    # Telling

    def _say(self, kind: str, **fields: Any) -> None:
        event = ev.make(kind, ev.JOB, **fields)
        self._record([{**event, "run": self.spec.run, "attempt": 0, "seq": self.timeline.last + 1}])

    def _record(self, events: Sequence[Event]) -> None:
        if not events:
            return
        self.folder.append(events)
        self.timeline.extend(events)
        changes: dict[str, Any] = {}
        for event in events:
            if event["kind"] == "state":
                changes.update(state=self.timeline.state, failure=self.timeline.failure)
                if self.timeline.over:
                    changes["ended"] = event["time"]
            elif event["kind"] == "fit":
                self._epochs = event["epochs"]
            elif event["kind"] == "epoch":
                done = {"epoch": event["epoch"] + 1, "epochs": self._epochs, "metrics": event["metrics"]}
                changes["progress"] = done
        if changes:
            self.folder.update(changes)
        self._tell()

    def _tell(self, tick: bool = False) -> None:
        with self._listening:
            for number, listener in enumerate(self._listeners):
                fresh = self.timeline.events(self._told.get(number, 0))
                self._told[number] = self._told.get(number, 0) + len(fresh)
                if not fresh and not tick:
                    continue
                try:
                    listener(fresh)
                except Exception:  # a view that breaks is not the run's business
                    continue

    def _pause(self, seconds: float) -> None:
        now = time.monotonic()
        if now - self._beaten > owner.HEARTBEAT_SECONDS:
            self._beaten = now
            self.folder.beat()
        if now - self._ticked > TICK_SECONDS:
            self._ticked = now
            self._tell(tick=True)
        self._wake.wait(seconds)
        self._wake.clear()


def _slots(count: int) -> str:
    return "1 slot" if count == 1 else f"{count} slots"
