"""When a rank counts as stalled, and what a process says of itself then."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading

import pytest
from support.jobs import job
from support.paths import environment
from support.rings import CREDENTIALS, ThreadRing
from support.until import until

from ddl_magics.runtime.collectives.announcement import USER, Announcement
from ddl_magics.runtime.executor import process_state, stall_watch
from ddl_magics.runtime.executor.stall import BEFORE, StallClock
from ddl_magics.runtime.rank.pulse import Pulse
from ddl_magics.runtime.rank.rank import Rank
from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.runtime.transport import wire

STEP = Pulse(fit=0, epoch=0, step=1, moves=0, training=True, waiting=False)


class Clocked:
    """A clock, and a rank that sends a pulse every second."""

    def __init__(self, notice_seconds=60.0):
        self.clock, self.now = StallClock(0.0, notice_seconds), 0.0

    def live(self, seconds, letter="S", pulse=None, pulses=True, **changes):
        """So many seconds pass. Returns for how long there is no progress then."""
        for _ in range(seconds):
            self.now += 1
            if pulses and pulse is not None:
                self.clock.feed(pulse._replace(**changes), self.now)
            self.clock.tick(letter, self.now)
        return self.clock.silent


def test_a_rank_that_makes_no_step_is_stalled():
    rank = Clocked()
    assert rank.live(1, pulse=STEP) == 0
    assert rank.live(70, pulse=STEP) == 70
    assert rank.live(1, pulse=STEP, step=2) == 0


@pytest.mark.parametrize("changes", [{"waiting": True}, {"training": False}])
def test_a_rank_that_waits_or_does_not_train_is_not_stalled_unless_it_cannot_run(changes):
    rank = Clocked()
    rank.live(1, pulse=STEP, **changes)
    assert rank.live(70, pulse=STEP, **changes) == 0
    assert rank.live(70, "T", pulses=False) == 70
    assert rank.live(70, "D", pulses=False) == 140
    assert rank.live(1, pulse=STEP, **changes) == 0


def test_validation_and_exchanges_are_progress():
    rank = Clocked()
    rank.live(1, pulse=STEP)
    for moves in range(1, 90):
        assert rank.live(1, pulse=STEP, moves=moves) == 0


def test_what_an_old_pulse_says_of_waiting_is_not_believed():
    rank = Clocked()
    rank.live(1, pulse=STEP, waiting=True)
    assert rank.live(70, "R", pulses=False) > 60


def test_slow_steps_have_a_longer_bound():
    rank = Clocked()
    for step in range(1, 4):
        rank.live(9, pulse=STEP, step=step)
    assert rank.clock.bound == 180
    rank.live(100, pulse=STEP, step=4)
    for step in range(5, 8):
        rank.live(9, pulse=STEP, step=step)
    assert rank.clock.bound == 180, "one slow step says nothing about the others"
    assert Clocked(5.0).clock.bound == 5


def test_steps_of_short_epochs_count_and_the_slow_first_one_is_one_of_many():
    rank = Clocked()
    rank.live(9, pulse=STEP, step=0)
    rank.live(1, pulse=STEP, step=1)
    assert rank.clock.bound > 60
    for epoch in range(20, 100, 20):
        rank.live(1, pulse=STEP, epoch=epoch, step=0)
    assert rank.clock.bound == 60


def test_time_in_which_this_process_did_not_run_is_no_stall():
    rank = Clocked()
    rank.live(1, pulse=STEP)
    rank.now += 3600
    assert rank.live(1, pulse=STEP) <= 2


def test_a_pulse_says_where_a_rank_is_and_whether_it_waits_for_others():
    ours, theirs = socket.socketpair()
    config = job(RunSpec(seed=0), CREDENTIALS)
    rank = Rank(config.of_rank(0, "h", ""), wire.Channel(theirs, wire.Identity("supervisor", -1, 0)))
    assert Pulse.of(rank) == BEFORE
    with ThreadRing(2) as ring:
        rank.peers.ring = ring.ranks[0]
        first = threading.Thread(target=ring.ranks[0].gather, args=(b"", Announcement(USER), 1))
        first.start()
        until(lambda: Pulse.of(rank).waiting, 5)
        ring.ranks[1].gather(b"", Announcement(USER), 1)
        first.join()
    rank.progress.begin_fit()
    rank.progress.step, rank.progress.evaluated = 3, 4
    assert Pulse.of(rank) == Pulse(fit=0, epoch=0, step=3, moves=4, training=True, waiting=False)
    assert Pulse.of(rank).where == "after step 3 of epoch 1"
    rank.end_fit()
    assert not Pulse.of(rank).training
    ours.close(), theirs.close()


HANGING = """
import sys, time
from ddl_magics.runtime.executor import process_state
process_state.offer_stack(sys.argv[1])
def wait_for_a_file():
    print("here", flush=True)
    time.sleep(600)
wait_for_a_file()
"""


@contextlib.contextmanager
def started(source, folder):
    """A process that has printed that it is here; it ends with those that it has started."""
    command = [sys.executable, "-c", source, str(folder)]
    pipes = {"stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=environment(), start_new_session=True, **pipes) as process:
        try:
            assert process.stdout.readline() == "here\n"
            yield process
        finally:
            os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture
def hanging(tmp_path):
    with started(HANGING, tmp_path) as process:
        yield process


def test_a_process_that_hangs_shows_its_stack(hanging, tmp_path):
    for _ in range(2):
        assert "in wait_for_a_file" in process_state.stack(hanging.pid, str(tmp_path))
    assert process_state.read(hanging.pid).letter == "S" and hanging.poll() is None


def test_a_process_that_offers_no_stack_is_not_asked(tmp_path):
    with subprocess.Popen(["sleep", "600"]) as process:
        (tmp_path / "stack").touch()
        assert process_state.stack(process.pid, str(tmp_path)) == "" and process.poll() is None
        process.kill()


@pytest.fixture
def watch_of(tmp_path, monkeypatch):
    """`watch_of(process, ...)`: the watch over a process, and the list of its notices and failures."""
    monkeypatch.setattr(stall_watch, "TICK_SECONDS", 0.05)

    def watch_of(process, **options):
        said, config = [], job(RunSpec(strategy="single", **options))
        notice = lambda *line: said.append(line)  # noqa: E731
        return stall_watch.StallWatch(1, config, process.pid, str(tmp_path), notice, said.append), said

    return watch_of


def test_a_stall_is_reported_once_and_its_end_once_more(hanging, watch_of):
    (watch, said), over = watch_of(hanging, stall_notice=0.5), threading.Event()
    thread = threading.Thread(target=watch.run, args=(over,))
    thread.start()
    os.kill(hanging.pid, signal.SIGSTOP)
    until(lambda: said, 10)
    threading.Event().wait(1.0)
    os.kill(hanging.pid, signal.SIGCONT)
    until(lambda: len(said) > 1, 10)
    over.set()
    thread.join()
    (warning, text), (info, end) = said
    assert (warning, info) == ("warning", "info")
    assert f"process {hanging.pid} is stopped (state T" in text and f"`kill -CONT {hanging.pid}`" in text
    assert "continues on " in end


def test_a_process_that_is_stopped_before_its_first_fit_is_reported_sooner_than_one_that_hangs(
    hanging, watch_of, monkeypatch
):
    monkeypatch.setattr(stall_watch, "STOPPED_SECONDS", 0.3)
    (watch, said), over = watch_of(hanging), threading.Event()
    thread = threading.Thread(target=watch.run, args=(over,))
    thread.start()
    os.kill(hanging.pid, signal.SIGSTOP)
    until(lambda: said, 10)
    over.set()
    thread.join()
    ((level, text),) = said
    assert level == "warning" and text.startswith(f"{socket.gethostname()}: it has not run for ")
    assert "before its first fit" in text and f"`kill -CONT {hanging.pid}` on that host" in text and "--stall" in text


#: Its main thread waits in the kernel for its child, as it would for a network file system that does not answer.
UNINTERRUPTIBLE = """
import ctypes, sys
from ddl_magics.runtime.executor import process_state
process_state.offer_stack(sys.argv[1])
libc = ctypes.PyDLL(None)
print("here", flush=True)
if not libc.vfork():
    libc.pause()
"""


def test_a_process_that_waits_in_the_kernel_is_told_from_one_that_is_stopped_and_is_not_asked_for_its_stack(
    tmp_path, watch_of
):
    with started(UNINTERRUPTIBLE, tmp_path) as rank:
        until(lambda: process_state.read(rank.pid).letter == "D", 10)
        watch, said = watch_of(rank, stall=1.0, stall_notice=0.3)
        watch.run(threading.Event())
    (level, text), failure = said
    about = f"process {rank.pid} waits for a disk or a network file system (state D, in "
    assert level == "warning" and about in text and text.endswith("look at that host's disks and network file systems")
    assert about in failure.message and failure.kind == "stalled" and failure.message.endswith("--stall ended it")


def test_a_rank_whose_messages_the_driver_does_not_read_is_not_stalled(hanging, watch_of):
    (watch, said), over = watch_of(hanging, stall=0.3, stall_notice=0.1), threading.Event()
    watch.feed(STEP)
    thread = threading.Thread(target=watch.run, args=(over,))
    with watch.relaying():
        thread.start()
        assert not over.wait(1.0) and not said
    until(lambda: len(said) == 2, 10)
    thread.join(10)
    assert said[0][0] == "warning" and "look at what its code waits for" in said[0][1] and said[1].kind == "stalled"


def test_a_stall_of_the_time_of_the_option_ends_the_rank(hanging, watch_of):
    watch, said = watch_of(hanging, stall=0.5, stall_notice=60.0)
    watch.feed(STEP)
    watch.run(threading.Event())
    (failure,) = said
    assert (failure.rank, failure.kind) == (1, "stalled") and "in wait_for_a_file" in failure.traceback
    assert "it has made no step for" in failure.message and "after step 1 of epoch 1" in failure.message
