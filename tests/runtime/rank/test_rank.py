"""A rank's parts without training: what it announces, reports, counts, and how it is stopped."""

import hashlib
import json
import os
import signal
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from support.channels import SentFrames
from support.until import until

from ddl_magics.options.parsing import parse
from ddl_magics.runtime import stopping
from ddl_magics.runtime.checkpoints.checkpoint import Position
from ddl_magics.runtime.collectives.announcement import BARRIER, EPOCH, STEP, USER, Announcement
from ddl_magics.runtime.collectives.collective import Timings
from ddl_magics.runtime.files.working_folder import WorkingFolder
from ddl_magics.runtime.rank import pulse
from ddl_magics.runtime.rank.config import JobConfig, RankConfig
from ddl_magics.runtime.rank.peers import Peers
from ddl_magics.runtime.rank.progress import Progress, StepTimings
from ddl_magics.runtime.rank.pulse import Pulse
from ddl_magics.runtime.rank.rank import HookErrors, Rank
from ddl_magics.runtime.rank.reporter import Reporter
from ddl_magics.runtime.rank.stop import Stop
from ddl_magics.runtime.rank_end import RankEnd
from ddl_magics.runtime.transport import messages, wire
from ddl_magics.runtime.transport.credentials import Credentials
from ddl_magics.runtime.transport.messages import CHUNK_BYTES


def config(line="--workers 3 --seed 7", rank=1, **fields):
    spec = parse(line)
    job = JobConfig(spec, Credentials("run", b"secret" * 6), ("host", 80), "3.5", 2, **fields)
    return job.of_rank(rank, "10.0.0.1", "/scratch", ["0"])


def test_a_configuration_comes_back_from_json():
    told = config(resume=(Position(0, 2, 1, False), Position(1, 0, 0, True)), reported={1: {"loss": [0.5]}}, attempt=2)
    assert RankConfig.from_json(json.loads(json.dumps({**told.to_json(), "of_a_later_version": 1}))) == told
    assert (told.rank, told.host, told.scratch, told.gpus, told.is_chief) == (1, "10.0.0.1", "/scratch", ["0"], False)
    assert RankConfig.from_json(config().to_json()).reported is None


@pytest.mark.parametrize(
    ("line", "size", "models", "local_updates", "reduces_gradients", "seed_of_1"),
    [
        ("--workers 3 --seed 7", 3, 1, False, True, 7),
        ("--workers 1 --seed 7", 1, 1, False, False, 7),
        ("--workers 3 --seed 7 --rule easgd", 3, 1, True, False, 7),
        ("--workers 3 --seed 7 --strategy average", 3, 1, True, False, 7),
        ("--workers 3 --seed 7 --strategy ps", 3, 1, True, False, 7),
        ("--workers 3 --seed 7 --strategy ensemble", 1, 3, False, False, 8),
        ("--workers 3 --seed 7 --strategy tf-allreduce", 1, 1, False, False, 7),
    ],
)
def test_what_follows_from_the_strategy(line, size, models, local_updates, reduces_gradients, seed_of_1):
    told = config(line)
    shown = (told.size, told.models, told.local_updates, told.reduces_gradients, told.rank_seed)
    assert shown == (size, models, local_updates, reduces_gradients, seed_of_1)
    assert config(line, rank=0).is_chief and config(line, rank=0).rank_seed == told.seed == 7
    assert told.uses_tf_distribute is ("tf-" in line) and told.in_ensemble is ("ensemble" in line)


class Ring:
    def __init__(self, busy=False):
        self.busy, self.closed, self.reduced = busy, None, []

    def close(self, reason):
        self.closed = reason

    def allreduce(self, flat, announcement):
        self.reduced.append((flat, announcement))
        return [announcement, Announcement(announcement.kind, flags=stopping.STOP_RUN)]


@pytest.mark.parametrize(("line", "step"), [("--workers 2", 5), ("--workers 2 --strategy average", 6)])
def test_what_a_rank_announces_says_where_it_is_and_that_it_wants_to_stop(line, step):
    peers = Peers(config(line), Progress(fit=-1, epoch=4, step=5, sync_rounds=6, cell_collectives=7), Stop())
    assert peers.announcement(STEP, 2.0, 8, 0.5, 0.25) == Announcement(STEP, 0, 4, step, 2.0, 8, 0.5, 0.25)
    peers.progress.fit = 1
    assert peers.announcement(EPOCH) == Announcement(EPOCH, 1, 4, step, 1.0, 0, 0.0, 0.0)
    for kind in (USER, BARRIER):
        assert peers.announcement(kind) == Announcement(kind, 0, 0, 7, 1.0, 0, 0.0, 0.0)
    peers._stop.requested = True
    assert peers.announcement(USER, flags=8).flags == 8 | stopping.STOP_FIT


def test_a_rank_learns_from_each_collective_whether_any_wants_to_stop():
    peers, flat = Peers(config(), Progress(), Stop()), np.zeros(2)
    with pytest.raises(AssertionError, match="do not meet"):
        peers.allreduce(flat, STEP)
    peers.ring = Ring()
    peers.note([Announcement(STEP), Announcement(STEP)])
    assert not peers._stop.agreed
    announcements = peers.allreduce(flat, STEP, flags=8)
    ((reduced, announced),) = peers.ring.reduced
    assert reduced is flat and announced.flags == 8 and announcements[0] is announced
    assert peers._stop.agreed and peers._stop.run_agreed


def test_peers_are_busy_and_closed_in_each_of_their_collectives():
    for name in ("ring", "feed", "_rows_ring"):
        peers = Peers(config(), Progress(), Stop())
        peers.close("nothing is open")
        assert not peers.busy
        setattr(peers, name, Ring(busy=True))
        closed = []
        peers.stay_apart(SimpleNamespace(close=lambda closed=closed: closed.append(True)), [])
        assert peers.busy
        peers.close("the end")
        assert getattr(peers, name).closed == "the end" and closed == [True]


def test_a_callback_stops_the_fit_and_the_driver_the_run():
    stop = Stop()
    assert stop.flags() == 0
    stop.requested = True
    assert stop.flags() == stopping.STOP_FIT
    stop.asked = True
    assert stop.flags() == stopping.STOP_FIT | stopping.STOP_RUN
    stop.note(0)
    assert (stop.agreed, stop.run_agreed) == (False, False)
    stop.note(stopping.STOP_FIT)
    assert (stop.agreed, stop.run_agreed) == (True, False)
    stop.note(stopping.STOP_RUN)
    stop.note(0)
    assert (stop.agreed, stop.run_agreed) == (True, True)
    stop.begin_fit()
    assert (stop.requested, stop.agreed, stop.run_agreed, stop.fitting) == (False, False, True, True)
    stop.end_fit()
    assert not stop.fitting


@pytest.fixture
def interrupts():
    handler = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, handler)


def test_a_stop_interrupts_the_cell_but_neither_a_fit_nor_half_a_frame(interrupts):
    stop, asked = Stop(), threading.Event()
    stop.on_asked = asked.set

    def ask():
        thread = threading.Thread(target=stop.ask)  # as the one that reads from the driver
        thread.start()
        thread.join()

    with pytest.raises(KeyboardInterrupt), stop.interruptible():
        ask()
        threading.Event().wait(10)
    assert asked.wait(10) and not stop.in_cell
    assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    with pytest.raises(stopping.StopRun), stop.interruptible():
        raise AssertionError("the cell does not begin")
    stop.asked = False
    with stop.interruptible():
        stop.begin_fit()
        ask()
        threading.Event().wait(0.01)
        stop.end_fit()
    stop.asked, sent = False, []
    with pytest.raises(KeyboardInterrupt), stop.interruptible(), stop.sending():
        ask()
        threading.Event().wait(0.01)
        sent.append(True)
    assert sent == [True]
    with stop.sending():
        pass
    ask()  # outside of the cell there is nothing to interrupt


def test_progress_and_timings_count():
    progress = Progress(epoch=3, step=4)
    progress.begin_fit()
    assert progress == Progress(fit=0, training=True)
    timings = StepTimings()
    timings.add(1.0, Timings(copy=0.25, wire=0.5), hidden=2.0)
    timings.add(1.0, Timings(copy=0.25, wire=0.5))
    assert timings == StepTimings(waited=2.0, copied=0.5, wired=1.0, hidden=2.0)
    timings.reset()
    assert timings == StepTimings()


def test_a_pulse_tells_where_a_rank_is_and_whether_it_moves_or_waits():
    rank = Rank(config(), None)
    assert Pulse.of(rank) == Pulse(-1, 0, 0, 0, False, False)
    rank.progress = Progress(1, 2, 3, 10, 200, 3000, 40000, 500000, True)
    pulse = Pulse.of(rank)
    assert pulse == Pulse(1, 2, 3, 543210, True, False) and Pulse.from_json(pulse._asdict()) == pulse
    rank.server = SimpleNamespace(busy=False)
    assert not Pulse.of(rank).waiting
    rank.server.busy = True
    assert Pulse.of(rank).waiting
    rank.server, rank.peers.feed = None, Ring(busy=True)
    assert Pulse.of(rank).waiting


def test_a_rank_takes_the_working_folder_that_was_begun_for_it():
    begun = WorkingFolder("/scratch", None, False)
    assert Rank(config(), None, begun).files is begun


@pytest.mark.parametrize(
    ("fit", "epoch", "step", "where"),
    [
        (-1, 0, 0, "before its first fit"),
        (0, 0, 0, "since the beginning of epoch 1"),
        (0, 2, 12, "after step 12 of epoch 3"),
        (1, 0, 1, "after step 1 of epoch 1 of fit 2"),
    ],
)
def test_where_a_rank_is_in_words(fit, epoch, step, where):
    assert Pulse(fit, epoch, step, 0, True, False).where == where


def test_a_rank_reports_and_pulses_through_its_channel(monkeypatch):
    monkeypatch.setattr(pulse, "SECONDS", 0.01)
    reported, pulses = SentFrames(), SentFrames()
    rank = Rank(config(), reported)
    rank.reporter.notice("info", "a")
    assert [(kind, event["message"]) for kind, (event,) in reported.sent] == [(messages.EVENTS, "a")]
    rank.peers.timings.add(1.0, Timings(0.25, 0.5, 0.25))
    assert rank.peers.timings.waited == 1.0
    rank.progress.step = 7
    pulse.start(rank, pulses)
    until(lambda: len(pulses.sent) > 1, 10)
    assert pulses.sent[1] == (messages.PULSE, Pulse.of(rank)._asdict())
    pulses.send_json = ended  # so does the thread


def ended(*_):
    raise wire.ConnectionLost("the test is over")


def test_a_line_is_shown_once_by_the_chief_alone():
    for rank, lines in ((0, ["a", "b"]), (1, [])):
        channel = SentFrames()
        reporter = Reporter(rank, channel, Stop())
        for message in ("a", "b", "a"):
            reporter.notice_once("info", message)
        assert [event["message"] for _, (event,) in channel.sent] == lines
    reporter.notice("warning", "c")
    ((kind, (event,)),) = channel.sent
    assert kind == messages.EVENTS
    assert (event["kind"], event["rank"], event["level"], event["message"]) == ("notice", 1, "warning", "c")


def test_files_are_sent_in_pieces_after_their_size_and_hash(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    content = b"a" * CHUNK_BYTES + b"b"
    (tmp_path / "file").write_bytes(content)
    (tmp_path / "empty").touch()
    channel = SentFrames()
    reporter = Reporter(0, channel, Stop())
    about = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    nothing = {"size": 0, "sha256": hashlib.sha256(b"").hexdigest()}
    reporter.send_artifact("model-0.keras", str(tmp_path / "file"))
    reporter.send_file("a/b.txt", str(tmp_path / "empty"))
    reporter.send_file("c", str(tmp_path / "file"))
    reporter.send_checkpoint(str(tmp_path / "file"), Position(1, 2, 3, False))
    reporter.send_end(RankEnd("finished"))
    position = {"fit": 1, "epoch": 2, "step": 3, "complete": False, "name": "checkpoint-1.npz"}
    pieces = [content[:CHUNK_BYTES], b"b"]
    assert channel.sent == [
        (messages.ARTIFACT, {"name": "model-0.keras", **about}),
        *((messages.CHUNK, piece) for piece in pieces),
        (messages.ARTIFACT, {"name": "files/a/b.txt", **nothing}),
        (messages.CHUNK, b""),
        (messages.ARTIFACT, {"name": "files/c", **about}),
        *((messages.CHUNK, piece) for piece in pieces),
        (messages.CHECKPOINT, {**position, **about}),
        *((messages.PIECE, piece) for piece in pieces),
        (messages.RANK_ENDED, RankEnd("finished").to_json()),
    ]
    assert sorted(os.listdir(tmp_path)) == ["empty", "file"], "the copy is gone"


def test_a_rank_keeps_each_model_once_and_knows_when_it_is_in_a_fit():
    files = WorkingFolder("/scratch", None, False)
    rank, model, other = Rank(config(), None, files), object(), object()
    assert rank.files is files
    rank.begin_fit(model)
    assert rank.stop.fitting and rank.progress.training and rank.progress.fit == 0
    rank.end_fit()
    assert not rank.stop.fitting and not rank.progress.training
    rank.begin_fit(other)
    rank.begin_fit(model)
    assert rank.models == [model, other] and rank.progress.fit == 2


@pytest.mark.parametrize(
    ("outcome", "words"), [("finished", "its cell has ended; "), ("stopped", "it was stopped"), ("failed", "it failed")]
)
def test_a_rank_that_leaves_tells_all_why(outcome, words):
    rank, told = Rank(config(), None), []
    rank.leave(outcome)
    rank.cluster = SimpleNamespace(leave=lambda goodbye: told.append(goodbye))
    rank.server = SimpleNamespace(leave=lambda: told.append("server"))
    rank.peers.ring = Ring()
    rank.leave(outcome)
    assert told[0].startswith(words) and told[1:] == ["server"] and rank.peers.ring.closed == told[0]


def test_the_first_error_of_a_hook_is_kept_and_raised():
    errors = HookErrors()

    def fail(number):
        raise KeyError(number)

    assert errors.guarded(lambda *arrays: sum(arrays))(1, 2) == 3 and errors.first is None
    for number in (1, 2):
        with pytest.raises(KeyError):
            errors.guarded(fail)(number)
    assert errors.first.args == (1,)
