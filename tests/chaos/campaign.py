"""A campaign of faults: real runs on several hosts, each with a fault at a random moment, and what is checked after it.

    sudo make chaos [SEED=n] [COUNT=n] [FAULTS=a fault, or a regular expression of several]

A seed decides one fault: which, of which strategy's run, whom it meets and when. The line that is printed of a fault
that went wrong repeats it. Without SEED, a campaign continues after the last seed of its record. Each fault is a line
of build/chaos/record.jsonl, and build/chaos/table.md has them all, with those that record.py keeps.

Campaigns with seeds far apart may run at once: each has hosts, disks and kernels of its own, and while a run of one
waits, that of another computes. SIGTERM ends a campaign after the fault in progress. `flock build/chaos/turn flock
build/chaos/running COMMAND` runs a command between faults.

A run with a fault has ended right: it is FINISHED with the history and the weights of an undisturbed run. Or it has
told right: it has ended within its time, and says what died. Otherwise, or if it leaves a process, a socket or a file,
its seed is printed. That the next run works is seen by the next one; after the last there is one without a fault.

Other faults befall what needs no run: exports and the registry, searches, served models, monitors, the cell's files
(chaos.rooms). Each has a folder and processes of its own, and the same rule.
"""

import argparse
import contextlib
import datetime
import fcntl
import random
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from support import paths, processes, spark, starts

from chaos import cell, leftovers, record
from chaos.faults import FAULTS, Act
from chaos.hosts import obstacle
from chaos.room import Wrong, acting
from chaos.rooms import ROOMS
from chaos.scene import POLL_SECONDS, HostScene, LivyScene, Silent, Watched

#: Of the campaign's faults this share comes before the first step, at any moment of the launch.
EARLY = 0.2
LAUNCH_SECONDS, TRAINING_SECONDS = 90.0, 5.0
#: Between weights and histories of all-reduce and of an undisturbed run, in float64.
TOLERANCE = 1e-9
#: Strategies whose runs are equal, also after another attempt.
REPRODUCIBLE = ("allreduce", "single", "ensemble")
#: The same without another attempt: each rank has an optimizer of its own, and a checkpoint that of rank 0 alone.
REPRODUCIBLE_AT_ONCE = ("average",)
#: After these there is no Spark for the next run.
ENDS_SPARK = ("driver's JVM: SIGKILL", "Livy: SIGKILL, started again", "Livy session: SIGKILL")
RIGHT, TOLD, WRONG, LATE = "right", "told", "wrong", "late"


@dataclass
class Outcome:
    """How a run with a fault ended. noticed: seconds until the run said something of it, or None. ended: until its end.

    course: what it said, and how many seconds after the fault.
    """

    outcome: str = ""
    problems: list = field(default_factory=list)
    message: str = ""
    noticed: float | None = None
    seconds: float = 0.0
    ended: float | None = None
    course: list = field(default_factory=list)


class Campaign:
    """Does faults in a scene, one after the other."""

    def __init__(self, stack):
        """stack: closes the scenes, which are made when they are needed."""
        self._stack, self._scenes, self._undisturbed = stack, {}, {}

    def enter(self, name):
        """The scene of the next fault."""
        if name not in self._scenes:
            self._scenes[name] = self._stack.enter_context({"hosts": HostScene, "livy": LivyScene}[name]())
        self._name, self._scene = name, self._scenes[name]

    def fault(self, seed, names):
        """Do the fault of a seed. The line of the record."""
        name = name_of(seed, names)
        if name in ROOMS:
            return in_room(seed, name)
        draw = random.Random(seed)
        fault = FAULTS[name]
        self.enter(fault.scene)
        strategy = draw.choice(fault.strategies)
        workers = 1 if strategy == "single" else 2 if fault.scene == "livy" else draw.choice((2, 2, 3))
        workers = 3 if fault.may_leave else workers
        early, moment = draw.random() < EARLY, draw.random()
        line = {"seed": seed, "fault": name, "strategy": strategy, "workers": workers, "early": early}
        outcome = Outcome()
        entered = began = time.monotonic()
        about = ""
        with contextlib.ExitStack() as undos:
            try:
                expected = self.undisturbed(strategy, workers, fault.may_leave)
                options = fault.options.replace("BASE", str(self._scene.base))
                run = self._start(strategy, workers, options, fault.may_leave)
                act = Act(self._scene, run, draw, workers, undos)
                self._wait_for_moment(run, early, moment)
                hold, began = draw.uniform(*fault.hold), time.monotonic()
                fault.begin(act)
                about = act.about
                if fault.kernel_ends:
                    self._follow_in_next_kernel(run, outcome, expected, began)
                else:
                    self._follow(fault, run, outcome, expected, (began, hold, undos))
            except LookupError as error:
                outcome.outcome, outcome.message = LATE, str(error)
            except (Silent, RuntimeError, OSError) as error:
                outcome.problems.append(f"{type(error).__name__}: {error}")
        self._clear(fault, name, outcome)
        outcome.seconds = time.monotonic() - began
        if outcome.problems:
            outcome.outcome = WRONG
        seconds = {"noticed": outcome.noticed, "seconds": round(outcome.seconds, 1)}
        seconds["in_all"] = round(time.monotonic() - entered, 1)
        said = {"outcome": outcome.outcome, "message": outcome.message, "problems": outcome.problems}
        course = {"course": outcome.course} if outcome.problems else {}
        return {**line, "about": about, **seconds, **said, **course}

    def _start(self, strategy, workers, options="", may_leave=False):
        workers = f"1..{workers} --sync-noise" if may_leave else workers
        words = f"--name run --seed 7 --strategy {strategy} --workers {workers} {options}"
        return Watched(self._scene.kernel, words, cell.source(self._scene.base))

    def close(self):
        """See that the last faults have left what a run needs."""
        self._undisturbed.clear()
        for name in self._scenes:
            self.enter(name)
            self.undisturbed("allreduce", 2)

    def undisturbed(self, strategy, workers, may_leave=False):
        """{"history", "result", "weights"} of a run without a fault."""
        key = self._name, strategy, workers, may_leave
        if key not in self._undisturbed:
            run = self._start(strategy, workers, may_leave=may_leave)
            run.until(lambda run: False, 200)
            if run.state != "FINISHED":
                raise RuntimeError(f"a run without a fault is {run.state}: {run.reason}")
            self._undisturbed[key] = {**self._learned(run), "of": (strategy, workers)}
        return self._undisturbed[key]

    def _learned(self, run):
        file = self._scene.base / "weights.npz"
        learned = self._scene.kernel.ask("learned", run=run.id, to=str(file))
        with np.load(file) as arrays:
            return {**learned, "weights": [arrays[name] for name in arrays.files]}

    @staticmethod
    def _wait_for_moment(run, early, moment):
        """Wait for the moment of the fault."""
        if early:
            until = time.monotonic() + moment * TRAINING_SECONDS
        else:
            if not run.until(Watched.stepped, LAUNCH_SECONDS):
                raise RuntimeError(f"no step within {LAUNCH_SECONDS:g} s, or ended before: {run.state} {run.reason}")
            until = time.monotonic() + moment * TRAINING_SECONDS
        run.until(lambda run: time.monotonic() > until, TRAINING_SECONDS + 1)
        if run.ended:
            raise LookupError("the run had ended")

    def _follow(self, fault, run, outcome, expected, done):
        """done: (when the fault began, how long it lasts, what undoes it)."""
        begun, hold, undos = done
        before = sum(when < begun for when in run.seen)
        held_until = begun + hold
        while time.monotonic() < held_until and not run.ended:
            self._look(run)
            time.sleep(POLL_SECONDS)
        undos.close()
        ended = run.until(lambda run: run.ended, fault.end_seconds) or run.ended
        outcome.ended = round(time.monotonic() - begun, 1)
        outcome.course = [[round(when - begun, 1), text[:200]] for when, text in run.messages()]
        if not ended:
            outcome.problems.append(f"not ended {fault.end_seconds:g} s after the fault: {run.state}, {_last(run)}")
            return
        outcome.noticed = next((round(when - begun, 1) for when, text in run.messages(before) if _tells(text)), None)
        outcome.message = run.reason or next((text for _, text in run.messages(before) if _tells(text)), _last(run))
        self._judge(fault, run, outcome, expected)

    def _look(self, run):
        try:
            run.look(0.5)
        except Silent as error:
            if "ended" in str(error):
                raise

    def _judge(self, fault, run, outcome, expected):
        if run.state == "FINISHED":
            outcome.outcome = RIGHT
            outcome.problems += differences(expected, self._learned(run), run)
        elif fault.told and re.search(fault.told, run.reason):
            outcome.outcome = TOLD
            outcome.noticed = outcome.ended if outcome.noticed is None else outcome.noticed
        else:
            outcome.problems.append(f"{run.state}: {run.reason or _last(run)}")
        told = outcome.noticed is not None or outcome.outcome != RIGHT
        if fault.notice is not None and told and not (outcome.noticed or np.inf) <= fault.notice:
            outcome.problems.append(f"noticed after {outcome.noticed} s instead of {fault.notice:g}")

    def _follow_in_next_kernel(self, run, outcome, expected, begun):
        """The kernel has been killed: nothing of the run is left, it is LOST, and another one continues it."""
        left = leftovers.processes_after(self._scene, 30)
        outcome.noticed = round(time.monotonic() - begun, 1)
        if left:
            outcome.problems.append(f"left after the kernel's end: {left}")
        self._scene.restart()
        stored = self._scene.kernel.ask("stored", run=run.id)
        outcome.message = stored["reason"]
        if stored["state"] != "LOST":
            outcome.problems.append(f"its kernel was killed, and the store says {stored['state']}: {stored['reason']}")
        outcome.outcome = TOLD
        if any((self._scene.base / "checkpoints" / run.id).glob("*")):
            strategy, workers = expected["of"]
            resumed = self._start(strategy, workers, f"--resume {run.id}")
            resumed.until(lambda run: False, 200)
            if resumed.state != "FINISHED":
                outcome.problems.append(f"resumed, it is {resumed.state}: {resumed.reason}")
            else:
                outcome.problems += differences(expected, self._learned(resumed), resumed, resumed=True)

    def _clear(self, fault, name, outcome):
        """See that nothing is left; begin anew where the fault has ended Spark. The store's small disk is emptied."""
        if not fault.kernel_ends:
            outcome.problems += leftovers.of(self._scene)
        if name in ENDS_SPARK or outcome.problems:
            try:
                self._scene.restart()
            except Silent as error:
                outcome.problems.append(f"no kernel starts after it: {error}")
                return self._scenes.pop(self._name).close()
        self._scene.forget()


def in_room(seed, name):
    """Do the fault of a seed that needs no run. The line of the record."""
    draw, room, outcome = random.Random(seed), ROOMS[name], Outcome()
    began = time.monotonic()
    with acting(draw, draw.choice(room.kinds)) as act:
        try:
            outcome.message = room.begin(act)
            outcome.outcome = TOLD if outcome.message else RIGHT
            outcome.problems += act.left()
        except Exception as error:  # of any kind: the campaign goes on
            what = "" if isinstance(error, Wrong) else f"{type(error).__name__}: "
            outcome.problems.append(f"{what}{error}")
    outcome.seconds = time.monotonic() - began
    if outcome.seconds > room.seconds:
        outcome.problems.append(f"it took {outcome.seconds:.0f} s instead of {room.seconds:g}")
    about = {"seed": seed, "fault": name, "strategy": act.kind, "workers": 0, "early": False, "about": act.about}
    seconds = {"noticed": None, "seconds": round(outcome.seconds, 1), "in_all": round(outcome.seconds, 1)}
    said = {"message": outcome.message, "problems": outcome.problems}
    return {**about, **seconds, "outcome": WRONG if outcome.problems else outcome.outcome, **said}


def chosen(pattern):
    """The fault of this name, or those whose names match a regular expression."""
    names = [*FAULTS, *ROOMS]
    return [pattern] if pattern in names else [name for name in names if re.search(pattern, name)]


def name_of(seed, names):
    """Which fault a seed does: as many seeds in a row as there are faults do each of them once."""
    block, place = divmod(seed, len(names))
    return random.Random(block).sample(names, len(names))[place]


def differences(expected, got, run, resumed=False):
    """What differs from the undisturbed run, in a line each. resumed: from a checkpoint of another run."""
    found = []
    numbers = [event["seq"] for event in run.events]
    if numbers != list(range(1, len(numbers) + 1)):
        found.append("events are missing or doubled")
    strategy = expected["of"][0]
    at_once = not resumed and all(event["attempt"] < 2 for event in run.events)
    if strategy in REPRODUCIBLE or (strategy in REPRODUCIBLE_AT_ONCE and at_once):
        if expected["history"].keys() != got["history"].keys():
            return [*found, f"history of {sorted(got['history'])}"]
        far = max(
            np.max(np.abs(np.subtract(a, got["history"][key]))) if len(a) == len(got["history"][key]) else np.inf
            for key, a in expected["history"].items()
        )
        apart = max(float(np.max(np.abs(a - b))) for a, b in zip(expected["weights"], got["weights"], strict=True))
        if not far <= TOLERANCE or not apart <= TOLERANCE:
            found.append(f"history {far:.1e} and weights {apart:.1e} from those of the undisturbed run")
    else:
        lengths = {len(values) for values in got["history"].values()}
        finite = all(np.isfinite(values).all() for values in [*got["history"].values(), *got["weights"]])
        if lengths != {cell.EPOCHS} or not finite:
            found.append(f"history of {lengths} epochs, finite: {finite}")
    return found


def _tells(text):
    """Whether a message is of a fault, and not of the run's course."""
    return bool(
        re.search(
            "attempt [2-9]|restarted|died|killed|made no step|not run for|nothing has come|lost|disk|ended with", text
        )
    )


def _last(run):
    return next((text for _, text in reversed(list(run.messages()))), "")


def _commit():
    """Of the checkout; with a + where it has changed since, and "" outside of one."""
    described = ("git", "describe", "--always", "--exclude=*", "--dirty=+")
    return subprocess.run(described, cwd=paths.ROOT, capture_output=True, text=True).stdout.strip()


@contextlib.contextmanager
def _turn(folder):
    """Around a fault. A command that waits for its turn comes before the next fault."""
    with open(folder / "running", "w") as running:
        with open(folder / "turn", "w") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            fcntl.flock(running, fcntl.LOCK_SH)
        yield


def main(arguments=None):
    """The command. 1 if a fault went wrong."""
    parser = argparse.ArgumentParser(prog="python -m chaos.campaign", description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, help="of the first fault")
    parser.add_argument("--count", type=int, default=20, help="of faults; 20")
    parser.add_argument("--faults", default="", help="one by its name, or a regular expression of several")
    parser.add_argument("--folder", type=Path, help="of another record, and of its table")
    options = parser.parse_args(arguments)
    problem = obstacle()
    if problem:
        raise SystemExit(f"chaos: {problem}")
    names = chosen(options.faults)
    if not names:
        raise SystemExit(f"chaos: no fault matches {options.faults!r}; there are {', '.join(chosen(''))}")
    folder = options.folder or record.FOLDER
    book = record.Record(folder, None if options.folder else record.KEPT)
    first = book.next_seed() if options.seed is None else options.seed
    starts.make_cheap()
    state = {"date": datetime.date.today().isoformat(), "commit": _commit()}
    failing, ending = [], threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    processes.start_session()
    spark.prepare_environment()
    with contextlib.ExitStack() as stack:
        campaign = Campaign(stack)
        for seed in range(first, first + options.count):
            with _turn(folder):
                line = {**state, **campaign.fault(seed, names)}
            book.add(line)
            print(record.text(line), flush=True)
            if line["outcome"] == WRONG:
                failing.append(seed)
            if ending.is_set():
                break
        campaign.close()
    print(book.table())
    for seed in failing:
        print(f'failing: make chaos SEED={seed} COUNT=1 FAULTS="{name_of(seed, names)}"')
    return bool(failing)


if __name__ == "__main__":
    sys.exit(main())
