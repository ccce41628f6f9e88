"""The thread that takes a run through its life: its turn, launch, events, artifacts, release.

Driver and notebook each make events, and both are numbered as they come: the notebook's own so far (QUEUED, LOST, ...)
are the offset between the driver's numbers and the run's. They are of attempt 0, which the driver has not.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ddl_magics.clusters.base import Cluster, NotStarted, Polled, Ready, Refused, Unreachable
from ddl_magics.recorder import Recorder
from ddl_magics.runtime import events as ev
from ddl_magics.snapshots import Snapshots
from ddl_magics.spec import RunSpec
from ddl_magics.store import RunFolder
from ddl_magics.timeline import Event
from ddl_magics.transfer import Transfer
from ddl_magics.turns import Turns
from ddl_magics.wording import counted

#: How long `start` waits for the driver's answer, so that a refusal can be the cell's own error.
LAUNCH_SECONDS = 3.0
#: Longest time between two polls while nothing happens, and while there is no answer.
IDLE_POLL_SECONDS = 2.0
FAILING_POLL_SECONDS = 10.0
IDLE_POLL_FACTOR = 1.3
#: Without an answer for so long, a run is LOST. A gateway may be away for minutes while the training goes on.
LOST_SECONDS = 600.0
#: Without an answer for so long, the run's views say so.
SILENT_SECONDS = 15.0
#: How often a waiting run looks whether it may start.
TURN_SECONDS = 0.5
#: Longest time in the queue.
QUEUE_SECONDS = 24 * 3600.0
#: What a run may take longer than its --timeout, which the driver watches, until the notebook stops it.
TIMEOUT_GRACE_SECONDS = 30.0


def own_events(events: Sequence[Event]) -> int:
    """How many of a run's events are the notebook's own."""
    return sum(event["attempt"] == 0 for event in events)


class Follower:
    """Follows one run in a thread of its own, from `start` until its timeline is settled."""

    def __init__(
        self,
        spec: RunSpec,
        cluster: Cluster,
        turns: Turns,
        folder: RunFolder,
        namespace: Mapping[str, Any],
        events: Sequence[Event] = (),
    ) -> None:
        """`events`: those that the folder holds, of a run that is attached again."""
        self.spec = spec
        self.cluster = cluster
        self.recorder = Recorder(spec.run, folder, events)
        self.recorder.listen(Snapshots(folder, spec.workers, len(events)).feed)
        self.timeline = self.recorder.timeline
        self._folder = folder
        self._turns = turns
        # The names as they are now: a queued cell must not see what later cells make of them.
        self._namespace: dict[str, Any] = dict(namespace)
        self._deciding = threading.Lock()
        self._decided = threading.Event()
        self._awaited = True
        self._refused: Refused | None = None
        self._wake = threading.Event()
        self._stop_wanted = False
        self._running_since: float | None = None
        self._offset = own_events(events)
        self._silent = False
        self._thread = threading.Thread(target=self._live, name=f"ddl_magics {spec.name}", daemon=True)

    def start(self) -> Refused | None:
        """Begin, and wait a moment for what the driver says.

        Returns:
            The driver's refusal, if it came in that moment: the run has not begun. A later one fails the run.
        """
        self._turns.join(self.spec.run)
        self._thread.start()
        self._decided.wait(LAUNCH_SECONDS)
        with self._deciding:
            self._awaited = False
            return self._refused

    def attach(self, state: str) -> None:
        """Go on with a run that the driver holds, where the stored events end. `state` is what it says of it now."""
        self._turns.hold(self.spec.run, self.spec.workers)
        # The events that say so, if it has ended meanwhile, come from the driver.
        if self.timeline.last:
            self._say("state", state=ev.RUNNING if state in ev.TERMINAL else state, message="attached again")
        self._decided.set()
        self._thread = threading.Thread(target=self._go_on, name=self._thread.name, daemon=True)
        self._thread.start()

    def request_stop(self) -> None:
        self._stop_wanted = True
        self._wake.set()

    def give_up(self, reason: str) -> None:
        """The process exits and cannot wait for the run's end."""
        self.recorder.end(ev.LOST, reason)

    def _live(self) -> None:
        self._to_the_end(lambda: self._wait_for_turn() and self._launch())

    def _go_on(self) -> None:
        self._to_the_end(lambda: True)

    def _to_the_end(self, begin: Callable[[], bool]) -> None:
        try:
            if begin():
                self._follow()
                self._collect()
        except Exception as error:  # whatever it is: nobody may wait for ever for a run that nobody follows
            self.recorder.end(ev.LOST, f"the notebook could not follow the run ({type(error).__name__}: {error})")
        finally:
            self._turns.leave(self.spec.run)
            self.timeline.settle()
            self._decided.set()

    # Its turn

    def _wait_for_turn(self) -> bool:
        """False if the run ended before its turn came."""
        if self._take_turn():
            return True
        self.recorder.say("state", state=ev.QUEUED, message=self._waits_for())
        self._decided.set()
        began = answered = time.monotonic()
        while not self._take_turn():
            if self._stop_due():
                self.recorder.end(ev.STOPPED, "stopped before it started")
                return False
            now, status = time.monotonic(), self.cluster.status()
            refused = self.cluster.check(self.spec, self._namespace)
            if not isinstance(status, Unreachable):
                answered = now
            elif status.gone or now > answered + LOST_SECONDS:
                refused = Refused("spark", status.message)
            if now > began + QUEUE_SECONDS:
                refused = Refused(
                    "slots", f"no {counted(self.spec.workers, 'slot')} came free: ask for fewer with --workers."
                )
            if refused is not None:
                self._fail(refused)
                return False
            self._pause(TURN_SECONDS)
        return True

    def _take_turn(self) -> bool:
        run, workers, status = self.spec.run, self.spec.workers, self.cluster.status()
        if isinstance(status, NotStarted):
            # What is started is made for this run.
            return self._turns.take(run, workers, slots=workers, free=workers)
        return isinstance(status, Ready) and self._turns.take(run, workers, status.slots, status.free)

    def _waits_for(self) -> str:
        ahead = len(self._turns.ahead(self.spec.run))
        if not ahead:
            return f"waits for {counted(self.spec.workers, 'slot')}"
        before = f"{counted(ahead, 'run')} {'is' if ahead == 1 else 'are'} before it"
        return f"waits for {counted(self.spec.workers, 'slot')}; {before}"

    def _launch(self) -> bool:
        status = self.cluster.status()
        if isinstance(status, NotStarted):
            self.recorder.say("state", state=ev.PREFLIGHT, message=status.message)
            self._decided.set()
        answer = self.cluster.launch(self.spec, self._namespace)
        # A notebook's arrays must not be kept alive by a run that has taken what it needs.
        self._namespace = {}
        if isinstance(answer, Refused):
            self._fail(answer)
            return False
        self._offset = self.timeline.last
        self._decided.set()
        return True

    def _fail(self, refused: Refused) -> None:
        """The refusal is the cell's error while the cell waits for it, and the run's failure afterwards."""
        with self._deciding:
            if self._awaited and not self._decided.is_set():
                self._refused = refused
                return
        failure = {"rank": ev.JOB, "host": "", "kind": "spark", "message": refused.message, "traceback": ""}
        self.recorder.end(ev.FAILED, refused.message, failure)

    # Its events

    def _follow(self) -> None:
        pause, answered, stop_sent = self.cluster.poll_seconds, time.monotonic(), False
        while not self.timeline.over:
            if self._stop_due() and not stop_sent:
                stop_sent = True
                self.cluster.stop(self.spec.run)
            answer = self.cluster.poll(self.spec.run, self.timeline.last - self._offset)
            if isinstance(answer, Unreachable):
                if answer.gone:
                    self.recorder.end(ev.LOST, answer.message)
                    return
                self._note_silence(time.monotonic() - answered, answer.message)
                if time.monotonic() - answered > LOST_SECONDS:
                    again = f"; %ddl attach {self.spec.name} goes on with it" if self.cluster.place else ""
                    self.recorder.end(ev.LOST, f"no answer for {LOST_SECONDS:.0f} s: {answer.message}{again}")
                    return
            else:
                answered = time.monotonic()
                self._note_answer()
                self._receive(answer)
                if answer.more:
                    continue
                if answer.state == ev.LOST and not self.timeline.over:
                    self.recorder.end(ev.LOST, "the driver does not know the run any more")
                    return
            busy = isinstance(answer, Polled) and answer.events
            longest = FAILING_POLL_SECONDS if isinstance(answer, Unreachable) else IDLE_POLL_SECONDS
            pause = self.cluster.poll_seconds if busy else min(pause * IDLE_POLL_FACTOR, longest)
            if not self.timeline.over:
                self._pause(pause)

    def _say(self, kind: str, **fields: Any) -> None:
        """An event of the notebook's own between those of the driver."""
        self.recorder.say(kind, **fields)
        self._offset += 1

    def _note_silence(self, seconds: float, why: str) -> None:
        if seconds > SILENT_SECONDS and not self._silent:
            self._silent = True
            self._say("notice", level="warning", message=f"no answer for {seconds:.0f} s, trying on: {why}")

    def _note_answer(self) -> None:
        if self._silent:
            self._silent = False
            self._say("notice", level="info", message="it answers again")

    def _receive(self, answer: Polled) -> None:
        known = self.timeline.last - self._offset
        fresh = [{**event, "seq": event["seq"] + self._offset} for event in answer.events if event["seq"] > known]
        self.recorder.record(fresh)
        if self._running_since is None and self.timeline.state == ev.RUNNING:
            self._running_since = time.monotonic()

    def _stop_due(self) -> bool:
        if self._folder.requested("stop") or self._too_late():
            self._stop_wanted = True
        return self._stop_wanted

    def _too_late(self) -> bool:
        if self.spec.timeout is None or self._running_since is None:
            return False
        return time.monotonic() > self._running_since + self.spec.timeout + TIMEOUT_GRACE_SECONDS

    def _collect(self) -> None:
        """Fetch what the driver holds, then let it forget the run."""
        if self.timeline.state == ev.LOST:
            return
        for event in self.timeline.events():
            if event.get("kind") == "artifact" and "uri" not in event:
                name = event["name"]
                transfer = Transfer(name, lambda event: self.recorder.tell(passing=[event]))
                problem = self.cluster.fetch(self.spec.run, name, self._folder.file(name), transfer.at)
                transfer.close()
                if problem:
                    self.recorder.say("notice", level="warning", message=f"{name} could not be had: {problem}")
        self.cluster.release(self.spec.run)

    def _pause(self, seconds: float) -> None:
        self.recorder.pulse()
        self._wake.wait(seconds)
        self._wake.clear()
