"""An attempt without Spark: who is sent the peers' addresses, and when, while ranks die and are restarted."""

import dataclasses
import errno
import hashlib
import json
import queue
import threading
import time
import unittest.mock
from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JNetworkError
from support import jobs
from support.fake_cluster import steps
from support.until import until

from ddl_magics.runtime import events
from ddl_magics.runtime.checkpoints.checkpoint import Position
from ddl_magics.runtime.driver import attempt as attempts
from ddl_magics.runtime.driver import bad_executors, elastic_attempt
from ddl_magics.runtime.driver.run_result import AttemptRecord, judge
from ddl_magics.runtime.rank_end import Failure, RankEnd
from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.runtime.transport import messages, wire

CONFIG = jobs.job(RunSpec(strategy="ps", seed=0))


class Channel:
    """A rank's connection, on which `incoming` comes in."""

    def __init__(self, rank, number):
        self.peer, self.address = wire.Identity("supervisor", rank, number), ("h", 1)
        self.sent, self.incoming, self.is_cut = [], queue.Queue(), False

    def send_json(self, kind, value):
        self.sent.append((kind, value))

    def recv(self, limit):
        frame = self.incoming.get()
        if frame is None:
            raise wire.ConnectionLost("closed")
        return frame

    def close(self, linger=0.0):
        self.incoming.put(None)

    @property
    def peers(self):
        return [value for kind, value in self.sent if kind == messages.PEERS]


class Jobs:
    """In the place of `RankJobs`."""

    logs = held = None

    def __init__(self):
        self.configs, self.decommissioned = [], set()

    submitted = property(lambda self: len(self.configs))

    def submit(self, config, on_end, only=None, first=None):
        if first is not None:
            first()
        self.configs.append((only, config.attempt))

    def executors_held(self):
        return self.held

    def is_decommissioned(self, executor):
        return executor in self.decommissioned

    def cancel(self):
        pass

    join = cancel


class Run(jobs.Run):
    def __init__(self, *watched):
        super().__init__(*watched)
        self.warned = []
        self.checkpoints = SimpleNamespace(files=list, warn_once=self.warned.append)
        self.log = SimpleNamespace(histories=dict, append=lambda event, number: None)
        self.servers = SimpleNamespace(addresses=[("h", 2)], death=None)


class Ranks:
    """An attempt, and the ranks as it sees them."""

    def __init__(self, strategy="ps", config=CONFIG, replace=list):
        config = dataclasses.replace(config, spec=dataclasses.replace(config.spec, strategy=strategy))
        self.run = Run(config.spec, replace)
        kind = elastic_attempt.kind_of_attempt(config)
        self.attempt = kind(self.run, 1, 3, "starting", Jobs(), config)
        self.attempt.start()

    def connect(self, rank, number=1):
        channel = Channel(rank, number)
        assert self.attempt.admit(channel.peer) is None
        self.attempt.accept(channel)
        return channel

    def train(self):
        """Both ranks connect, and are ready. Returns their connections."""
        channels = [self.connect(rank) for rank in (0, 1)]
        for rank in (0, 1):
            self.attempt.on_ready(rank, None)
        return channels

    def die(self, rank):
        self.attempt.on_end(rank, RankEnd("failed", Failure(rank, "h", "signal", "killed")))
        with self.attempt._changed:
            self.attempt._replace_dead_ranks()


@pytest.fixture
def start():
    def start(*arguments):
        started.append(Ranks(*arguments))
        return started[-1]

    started = []
    yield start
    for ranks in started:
        ranks.attempt.clear(cancel=False)


def test_an_epoch_is_taken_once_from_the_chiefs_of_ranks_that_come_and_go(start):
    config = jobs.job(RunSpec(strategy="allreduce", workers=2, min_workers=1, seed=0))
    ranks, taken = start("allreduce", config), []
    ranks.run.log.append = lambda event, number: taken.append((event["rank"], event["epoch"]))
    for rank, number in ((0, 0), (1, 0), (1, 1)):
        report = events.make("epoch", rank, fit=0, epoch=number, metrics={"loss": 0.5}, seconds=1.0)
        ranks.attempt.on_event(rank, report)
    assert taken == [(0, 0), (1, 1)]


def test_peers_are_sent_once_all_are_ready(start):
    ranks = start()
    one, other = ranks.connect(0), ranks.connect(1)
    ranks.attempt.on_ready(1, None)
    assert other.peers == []
    ranks.attempt.on_ready(0, None)
    assert [len(channel.peers) for channel in (one, other)] == [1, 1]
    assert (one.peers[0]["local_rank"], other.peers[0]["local_rank"]) == (0, 1)
    assert one.peers[0]["local_size"] == 2 and one.peers[0]["servers"] == [("h", 2)]
    assert ranks.run.states[-1] == (events.RUNNING, "running on 2 workers") and ranks.run.hosts == ["h", "h"]


def test_of_those_that_train_only_a_restarted_rank_is_sent_its_peers(start):
    ranks = start()
    one, other = ranks.train()
    ranks.die(1)
    assert ranks.attempt._jobs.configs == [(None, 1), (1, 2)]
    assert ranks.attempt.admit(other.peer) == "attempt 1 is not the current one"
    restarted = ranks.connect(1, 2)
    ranks.attempt.on_ready(1, None)
    assert (len(one.peers), len(other.peers), len(restarted.peers)) == (1, 1, 1)


def test_a_rank_that_dies_while_another_is_restarted_does_not_keep_that_one_waiting(start):
    ranks = start()
    ranks.train()
    ranks.die(1)
    other = ranks.connect(1, 2)
    ranks.die(0)
    ranks.attempt.on_ready(1, None)
    assert other.peers == [], "rank 0 is not there"
    one = ranks.connect(0, 2)
    ranks.attempt.on_ready(0, None)
    assert (len(one.peers), len(other.peers)) == (1, 1)


@pytest.fixture
def changing(start):
    """Two workers beside a parameter server, of up to three that come and go."""
    spec = RunSpec(strategy="ps", min_workers=1, seed=0)
    ranks = start("ps", dataclasses.replace(jobs.job(spec), max_workers=3))
    ranks.run.report, ranks.run.enter_from = lambda event: None, lambda *arguments: None
    ranks.train()
    for rank in (0, 1):
        ranks.attempt.on_event(rank, steps(rank, 0))
    return ranks


def test_who_comes_before_the_chief_makes_room_for_it(changing):
    """Also when all have died."""
    changing.die(1)
    changing.die(0)
    other = changing.connect(1, 2)
    changing.attempt.on_ready(1, None)
    assert other.peers == [] and 1 not in changing.attempt._channels
    chief = changing.connect(0, 2)
    changing.attempt.on_ready(0, None)
    assert len(chief.peers) == 1 and chief.peers[0]["servers"] == [("h", 2)]
    assert changing.attempt._jobs.configs[-3:] == [(1, 2), (0, 2), (1, 3)]
    again = changing.connect(1, 3)
    changing.attempt.on_ready(1, None)
    assert len(again.peers) == 1


def test_the_chief_is_waited_for_with_a_bound(changing):
    changing.die(0)
    record, now = changing.attempt._record, time.monotonic()
    assert judge(record, now) is None and judge(record, now + attempts.RANKS_WITH_DATA_SECONDS + 1).failure
    changing.connect(0, 2)
    changing.attempt.on_ready(0, None)
    assert judge(record, now + attempts.RANKS_WITH_DATA_SECONDS + 1) is None


@pytest.mark.parametrize("gets_on", [True, False])
def test_a_chief_that_dies_again_and_again_before_an_epoch_ends_ends_the_run(changing, gets_on):
    for number in range(2, 6):
        changing.die(0)
        result = judge(changing.attempt._record, time.monotonic())
        if result is not None:
            break
        changing.connect(0, number)
        changing.attempt.on_ready(0, None)
        changing.attempt.on_event(0, steps(0, 0))
        if gets_on:
            epoch = events.make("epoch", 0, fit=0, epoch=number, metrics={"loss": 0.5}, seconds=1.0)
            changing.attempt.on_event(0, epoch)
    assert (result is None) == gets_on


def test_a_newcomer_that_fails_does_not_end_the_run(changing):
    changing.connect(2)
    changing.attempt.on_ready(2, None)
    changing.attempt.on_end(2, RankEnd("failed", Failure(2, "h", "error", "ValueError: x")))
    assert judge(changing.attempt._record, time.monotonic()) is None
    with changing.attempt._changed:
        changing.attempt._replace_dead_ranks()
    assert changing.attempt._jobs.configs[-1] == (2, 2)


def test_ranks_that_need_each_other_are_not_restarted_alone(start):
    ranks = start("allreduce")
    ranks.connect(0), ranks.connect(1)
    ranks.die(1)
    assert ranks.attempt._jobs.configs == [(None, 1)]
    assert ranks.attempt.wait().death == "rank 1 on h died (killed)"


@pytest.mark.parametrize(
    "error, reason", [(ZeroDivisionError("division by zero"), "division by zero"), (MemoryError(), "MemoryError")]
)
def test_an_error_of_the_driver_is_named_and_no_death(start, error, reason):
    ranks = start("allreduce")
    ranks.run.log.append = unittest.mock.Mock(side_effect=error)
    channel = ranks.connect(0)
    channel.incoming.put((messages.EVENTS, b'[{"kind": "log", "time": 1, "stream": "stdout", "text": ""}]'))
    result = ranks.attempt.wait()
    assert result.death is None and result.message == (
        f"rank 0 on h: the driver failed at a message of the rank: {reason}"
    )


def test_a_java_of_the_driver_that_has_died_is_named(start):
    def ask_java(hosts):
        raise Py4JNetworkError("Error while sending or receiving")

    ranks = start("ensemble")
    ranks.run.note_hosts = ask_java
    for rank in (0, 1):
        ranks.connect(rank).incoming.put((messages.RANK_READY, b'{"address": null}'))
    assert "message of the rank: Spark's driver process (Java) has died: restart" in ranks.attempt.wait().message


def test_a_server_that_died_before_the_attempt_began_ends_it(start):
    ranks = start("ps")
    ranks.run.servers.death = "the parameter server (process 5) ended with status -9"
    assert ranks.attempt.wait().message == ranks.run.servers.death


def test_a_full_disk_of_the_driver_costs_a_checkpoint_and_fails_a_run_without_its_model(start):
    ranks = start("allreduce")
    lost = SimpleNamespace(problem=OSError(errno.ENOSPC, "No space left on device"), path="/tmp/run/1")
    ranks.attempt.on_checkpoint(SimpleNamespace(header={"name": "checkpoint-0.npz"}, **vars(lost)))
    ranks.attempt.on_artifact(SimpleNamespace(header={"name": "model-0.keras"}, **vars(lost)))
    for rank in (0, 1):
        ranks.connect(rank)
        ranks.attempt.on_end(rank, RankEnd("finished"))
    where = "could not be stored on the driver's disk, in /tmp/run: No space left on device"
    assert ranks.run.warned == [f"a checkpoint {where}"]
    assert ranks.attempt.wait().message == f"model-0.keras {where}; make room there"


@pytest.fixture
def late(monkeypatch):
    """late(channel): brings an event, a checkpoint, an artifact and an end over a connection, and returns when read."""
    read, receive = threading.Event(), attempts.rank_messages.receive

    def late(channel):
        read.clear()
        header = {"name": "file", "size": 1, "sha256": hashlib.sha256(b"x").hexdigest()}
        for kind, value in (
            (messages.EVENTS, [events.make("epoch", 0, fit=0, epoch=0, metrics={}, seconds=1.0)]),
            (messages.CHECKPOINT, header),
            (messages.PIECE, b"x"),
            (messages.ARTIFACT, header),
            (messages.CHUNK, b"x"),
            (messages.RANK_ENDED, RankEnd("finished").to_json()),
        ):
            channel.incoming.put((kind, value if isinstance(value, bytes) else json.dumps(value).encode()))
        channel.incoming.put(None)
        assert read.wait(5)

    def receive_and_tell(*arguments):
        receive(*arguments)
        read.set()

    monkeypatch.setattr(attempts.rank_messages, "receive", receive_and_tell)
    return late


@pytest.mark.parametrize("strategy", ["ensemble", "allreduce"])
def test_what_a_connection_brings_when_its_rank_has_a_successor_is_dropped(
    start, late, tmp_path, monkeypatch, strategy
):
    monkeypatch.setattr(Channel, "close", lambda self, linger=0.0: None)  # data that have come can still be read
    ranks = start(strategy)
    got = []
    ranks.run.log.append = lambda event, number: got.append(event["kind"])
    ranks.run.checkpoints.keep = lambda file: got.append("checkpoint")
    ranks.run.files = SimpleNamespace(keep=lambda file: got.append("file"), new_path=lambda: str(tmp_path / "new"))
    one, other = ranks.train()
    ranks.die(1)
    if strategy == "allreduce":
        ranks.attempt.clear(cancel=False)
    late(other)
    assert got == [] and ranks.attempt._record.ends.keys() == ({1} if strategy == "allreduce" else set())
    if strategy == "ensemble":
        late(one)
        assert got == ["epoch", "checkpoint", "file"] and ranks.attempt._record.ends.keys() == {0}


def test_a_rank_that_the_driver_does_not_read_as_it_sends_checkpoints_is_not_silent(start, monkeypatch):
    config = dataclasses.replace(CONFIG, spec=RunSpec(stall=0.3, stall_notice=0.1))
    ranks = start("allreduce", config)
    silence = ranks.attempt._silence
    watched = []
    monkeypatch.setattr(attempts.checkpoint_files, "send", lambda *_: watched.append(set(silence.seconds)))
    for rank in (0, 1):
        ranks.connect(rank)
        ranks.attempt.on_ready(rank, None)
    assert watched == [{0}] and set(silence.seconds) == {0, 1}


def test_a_rank_that_is_not_heard_of_is_named_and_dead_after_the_time_of_the_option(start, monkeypatch):
    config = dataclasses.replace(CONFIG, spec=RunSpec(stall=0.6, stall_notice=0.3))
    monkeypatch.setattr(attempts, "TICK_SECONDS", 0.1)
    ranks = start("allreduce", config)
    said = []
    ranks.run.log.append = lambda event, number: said.append(event.get("message"))
    ranks.connect(0)
    result = ranks.attempt.wait()
    assert len(said) == 1 and said[0].startswith("nothing has come from h for 0 s")
    assert result.death.startswith("rank 0 on h died (nothing has come from its supervisor for")


def test_a_report_with_values_of_other_types_is_left_out_and_said_once(start):
    ranks, log = start(), []
    ranks.run.log.append = lambda event, number: log.append(event)
    ranks.connect(0)
    for seconds in ("x", None, -1.0):
        ranks.attempt.on_event(0, events.make("epoch", 0, fit=0, epoch=0, metrics={}, seconds=seconds))
    ranks.attempt.on_event(0, events.make("of a later version", 0))
    assert [event["kind"] for event in log] == ["notice"]
    assert log[0]["message"].startswith("a report (epoch) is left out")


def test_a_stop_while_a_rank_is_restarted_waits_for_the_steps_of_the_others(start):
    ranks = start()
    ranks.train()
    ranks.die(1)
    ranks.attempt.stop("")
    assert ranks.run.states[-1] == (events.STOPPING, "finishing the step")
    record = ranks.attempt._record
    assert record.stop_deadline > record.stop_asked_at
    late = ranks.connect(1, 2)
    ranks.attempt.on_ready(1, None)
    assert [kind for kind, _ in late.sent] == [messages.PEERS, messages.STOP]
    assert judge(record, record.stop_asked_at + 1) is None
    ranks.attempt.on_end(0, RankEnd("stopped"))
    result = judge(record, record.stop_asked_at + 1)
    assert (result.state, result.must_cancel) == ("STOPPED", True), "nobody waits for the rank that was away"
    assert result.message == "stopped; it had trained nothing so far"
    ranks.attempt.on_event(0, steps(0, 0, loss=1.0))
    assert judge(record, record.stop_asked_at + 1).message == "stopped; the model and its history are kept"


def test_a_rank_lost_with_the_session_is_told_as_the_end_of_the_session(start):
    ranks = start()
    ranks.attempt._jobs.loss_of, ranks.attempt._jobs.logs = lambda executor: "its node was lost", "`yarn logs`"
    result = judge(AttemptRecord(2, lost={1: "h"}), 0.0)
    for end, message, death in [
        (None, "rank 1 on h: its executor was lost: its node was lost; see `yarn logs`", True),
        ("the session has ended: begin another", "the session has ended: begin another", False),
    ]:
        ranks.attempt._jobs.session_end = lambda end=end: end
        explained = ranks.attempt.explain(result)
        assert (explained.state, explained.message) == ("FAILED", message)
        assert bool(explained.death) == death, "another attempt in that session cannot do better"


@pytest.mark.parametrize("strategy", ["ps", "allreduce"])
@pytest.mark.parametrize("cut", [True, False])
def test_the_executors_of_a_host_that_does_not_answer_are_replaced(start, strategy, cut):
    ranks, replaced, said = start(strategy), [], threading.Event()
    ranks.attempt._jobs.replace_on_host_of = replaced.append
    ranks.attempt._jobs.loss_of = lambda executor: None
    ranks.attempt._jobs.session_end = lambda: None
    ranks.attempt._notice = lambda rank, level, message: said.set()
    for channel in ranks.train():
        channel.is_cut = cut
    ranks.attempt.on_event(1, events.make("worker", 1, host="h", pid=1, device="cpu", state="RUNNING", executor="7"))
    channel.close()
    until(lambda: ranks.attempt._record.lost, 5)
    if strategy == "ps":
        ranks.attempt._replace_dead_ranks()
        assert said.wait(5 if cut else 0.2) == cut
        assert not ranks.attempt._cut, "the next one is another"
    else:
        message = ranks.attempt.explain(judge(ranks.attempt._record, 0.0)).message
        assert ("its executor was lost: its host does not answer" in message) == cut
    assert replaced == (["7"] if cut else [])


def on_executor(ranks, rank, executor):
    worker = {"host": "h", "pid": 1, "device": "cpu", "state": "RUNNING", "executor": executor}
    ranks.attempt.on_event(rank, events.make("worker", rank, **worker))


@pytest.fixture
def each_counts(monkeypatch):
    """Deaths need not be a second apart."""
    monkeypatch.setattr(bad_executors, "TOGETHER_SECONDS", 0.0)


@pytest.mark.parametrize("exclude, replaced", [("bad", [["7"]]), (None, [])])
def test_a_rank_that_dies_twice_is_restarted_on_another_executor_where_the_option_says_so(
    start, each_counts, exclude, replaced
):
    done = []
    ranks = start("ps", jobs.job(RunSpec(exclude=exclude)), lambda ids: done.append(ids) or ids)
    ranks.train()
    for number in (1, 2):
        assert (done, ranks.run.notices) == ([], [])
        on_executor(ranks, 1, "7")
        ranks.die(1)
        ranks.connect(1, number + 1)
    assert done == replaced and ranks.attempt._jobs.configs == [(None, 1), (1, 2), (1, 3)]
    assert len(ranks.run.notices) == 1 + len(replaced)
    assert "executor 7 on h is bad: workers have died there 2 times, now rank 1" in ranks.run.notices[0][1]


def test_a_death_does_not_count_against_the_executor_before(start, each_counts):
    ranks = start()
    ranks.train()
    on_executor(ranks, 1, "7")
    ranks.die(1)
    ranks.connect(1, 2)
    ranks.die(1)
    assert ranks.run.notices == [], "nobody knows where it was started again"


@pytest.mark.parametrize("how", ["ends", "is lost", "is forgotten", "is cleared"])
def test_a_rank_keeps_its_executor_from_being_replaced_until_it(start, how):
    ranks = start()
    _, channel = ranks.train()
    on_executor(ranks, 1, "7")
    bad = ranks.run.executors._bad
    bad.was_slow(bad_executors.Executor("7", "h"))
    assert bad.take() == []
    if how == "ends":
        ranks.attempt.on_end(1, RankEnd("finished"))
    elif how == "is lost":
        channel.close()
        until(lambda: ranks.attempt._record.lost, 5)
    elif how == "is forgotten":
        with ranks.attempt._changed:
            ranks.attempt._forget(1)
    else:
        ranks.attempt.clear(cancel=False)
    assert [executor.id for executor in bad.take()] == ["7"]


@pytest.mark.parametrize("kind, deaths", [("signal", 1), ("stalled", 1), ("error", 0), ("peer", 0)])
def test_the_end_of_an_attempt_counts_where_it_is_a_death(start, each_counts, monkeypatch, kind, deaths):
    monkeypatch.setattr(attempts, "TICK_SECONDS", 0.1)
    monkeypatch.setattr("ddl_magics.runtime.driver.run_result.PEER_GRACE_SECONDS", 0.0)
    ranks = start("allreduce")
    ranks.train()
    on_executor(ranks, 1, "7")
    counted = []
    ranks.run.executors.died = counted.append
    ranks.attempt.on_end(1, RankEnd("failed", Failure(1, "h", kind, "why")))
    assert ranks.attempt.wait().state == "FAILED"
    assert counted == [1] * deaths


@pytest.mark.parametrize("kind, deaths", [("signal", 1), ("error", 0)])
def test_the_end_of_a_rank_that_has_not_joined_yet_counts_where_it_is_a_death(start, kind, deaths):
    ranks = start("allreduce", jobs.job(RunSpec(min_workers=1, seed=0)))
    ranks.run.report = lambda event: None
    ranks.train()
    counted, attempt = [], ranks.attempt
    ranks.run.executors.died = counted.append
    with attempt._changed:
        attempt._start_another()
    ranks.connect(2)
    attempt.on_end(2, RankEnd("failed", Failure(2, "h", kind, "why")))
    with attempt._changed:
        attempt._replace_dead_ranks()
    assert counted == [2] * deaths and attempt._jobs.configs[-1] == (3, 1)


@pytest.mark.parametrize("regroups", [True, False], ids=["the others go on", "all restart"])
def test_what_a_death_means_to_workers_that_meet_seldom_is_known_at_once(start, regroups):
    ranks = start("average", jobs.job(RunSpec(min_workers=1, seed=0)))
    ranks.run.report, ranks.run.enter_from = lambda event: None, lambda *arguments: None
    ranks.train()
    fit = {"fit": 0, "model": "m", "epochs": 1, "steps": 10}
    ranks.attempt.on_event(0, events.make("fit", 0, **fit, **({"regroups": True} if regroups else {})))
    before = len(ranks.attempt._jobs.configs)
    ranks.attempt.on_end(1, RankEnd("failed", Failure(1, "h", "signal", "killed")))
    with ranks.attempt._changed:
        ranks.attempt._replace_dead_ranks()
    result = attempts.judge(ranks.attempt._record, time.monotonic())
    assert (result is None) == regroups and len(ranks.attempt._jobs.configs) == before + regroups
    assert result is None or result.death


def test_a_death_after_a_stop_does_not_count(start):
    ranks, counted = start("allreduce"), []
    ranks.run.executors.died = counted.append
    ranks.train()
    ranks.attempt.stop("")
    ranks.attempt.on_end(1, RankEnd("failed", Failure(1, "h", "signal", "killed")))
    assert ranks.attempt.wait().death and counted == []


@pytest.mark.parametrize(
    "strategy, least, stops, replaced",
    [
        ("allreduce", 1, False, [1]),
        ("allreduce", 2, False, []),
        ("allreduce", 1, True, []),
        ("average", 1, False, [1]),
        ("allreduce", 1, False, None),
    ],
    ids=["lost", "too few are left", "stops", "an average", "all would restart"],
)
def test_a_slow_rank_is_lost_where_the_others_can_train_on(start, strategy, least, stops, replaced):
    ranks = start(strategy, jobs.job(RunSpec(min_workers=least, seed=0)))
    done, executors = [], ranks.run.executors
    executors.replace_slow, executors.stepped = done.append, lambda event: event.rank == 1
    ranks.run.report = lambda event: None
    ranks.train()
    if stops:
        ranks.attempt.stop("")
    fit = {"fit": 0, "model": "m", "epochs": 1, "steps": 10}
    ranks.attempt.on_event(0, events.make("fit", 0, **fit, **({} if replaced is None else {"regroups": True})))
    for rank in (0, 1):
        ranks.attempt.on_event(rank, steps(rank, 0))
    executors.stepped = lambda event: True
    ranks.attempt._numbers[2] = 1
    ranks.attempt.on_event(2, steps(2, 0))  # one of those before, that has not joined
    if replaced:
        until(lambda: done, 5)
    assert done == (replaced or [])


FIT = {"fit": 0, "model": "m", "epochs": 1, "steps": 10}


@pytest.fixture
def coming(start, each_counts, monkeypatch):
    """`coming(strategy)`: two ranks that train, on executor 7, of which one may go; attempt.said: what is told."""

    def coming(strategy):
        monkeypatch.setattr(elastic_attempt, "EXECUTORS_SECONDS", 0.01)
        ranks = start(strategy, jobs.job(RunSpec(strategy=strategy, min_workers=1, seed=0)))
        ranks.attempt.said = []
        ranks.run.enter_from = lambda *arguments: ranks.attempt.said.append(arguments[-1])
        ranks.run.report = lambda event: None
        ranks.channels = ranks.train()
        ranks.attempt.on_event(0, events.make("fit", 0, **FIT, **({} if strategy == "ps" else {"regroups": True})))
        for rank in (0, 1):
            on_executor(ranks, rank, "7")
        return ranks

    return coming


def told_to_leave(channels):
    return [rank for rank, channel in enumerate(channels) if messages.LEAVE in dict(channel.sent)]


def leave(ranks, rank):
    failure = Failure(rank, "h", "lost", "Spark has decommissioned its executor")
    ranks.attempt.on_end(rank, RankEnd("failed", failure))
    with ranks.attempt._changed:
        ranks.attempt._replace_dead_ranks()


@pytest.mark.parametrize("strategy", ["allreduce", "average", "ps"])
def test_ranks_leave_decommissioned_executors_while_enough_are_left(coming, strategy):
    ranks = coming(strategy)
    attempt = ranks.attempt
    attempt._jobs.decommissioned = {"7"}
    until(lambda: told_to_leave(ranks.channels), 5)
    time.sleep(0.1)
    (gone,) = told_to_leave(ranks.channels)
    assert strategy != "ps" or gone == 1, "all need the chief"
    leave(ranks, gone)
    if strategy == "allreduce":
        assert not attempt.said, "the other one has not noticed yet"
        attempt.on_regroup(1 - gone, None, None)
    time.sleep(0.1)
    assert attempt.said == [f"rank {gone} on h died (Spark has decommissioned its executor); 1 worker trains on"]
    assert attempt._group.members == [1 - gone] and told_to_leave(ranks.channels) == [gone], "MIN is 1"
    assert ranks.run.notices == [], "the executor is not bad"
    assert strategy != "ps" or not attempt._deaths[gone]


def test_between_two_fits_no_rank_leaves_its_executor(coming):
    ranks = coming("allreduce")
    ranks.attempt.on_event(0, events.make("fit_end", 0, fit=0, stopped=False))
    ranks.attempt._jobs.decommissioned = {"7"}
    time.sleep(0.1)
    assert told_to_leave(ranks.channels) == []


def join(ranks, rank):
    """A rank joins in the fit."""
    ranks.attempt._numbers[rank] = 1
    ranks.attempt._record.workers += 1
    ranks.channels.append(ranks.connect(rank))
    on_executor(ranks, rank, "8")
    ranks.attempt.on_regroup(rank, 0, None)
    for member in ranks.attempt._group.members:
        ranks.attempt.on_regroup(member, None, 0)


def test_a_rank_stays_while_the_others_get_the_state_of_the_fit(coming):
    ranks = coming("allreduce")
    ranks.die(1)
    ranks.attempt.on_regroup(0, None, None)
    join(ranks, 2)
    assert ranks.attempt._group.members == [0, 2]
    ranks.attempt._jobs.decommissioned = {"7"}
    time.sleep(0.1)
    assert messages.LEAVE not in dict(ranks.channels[0].sent)
    ranks.attempt.on_event(2, steps(2, 0))
    until(lambda: messages.LEAVE in dict(ranks.channels[0].sent), 5)


def test_where_nobody_has_the_state_of_the_fit_all_restart(coming):
    ranks = coming("allreduce")
    ranks.die(1)
    ranks.attempt.on_regroup(0, None, None)
    join(ranks, 2)
    ranks.die(0)
    assert attempts.judge(ranks.attempt._record, time.monotonic()).death


def test_a_rank_that_has_not_joined_leaves_at_once_and_another_one_is_started(coming):
    ranks = coming("allreduce")
    ranks.attempt._record.departed.add(2)
    ranks.attempt._numbers[2] = 1
    ranks.attempt._record.workers += 1
    ranks.channels.append(ranks.connect(2))
    on_executor(ranks, 2, "8")
    ranks.attempt._jobs.decommissioned = {"8"}
    until(lambda: told_to_leave(ranks.channels) == [2], 5)
    leave(ranks, 2)
    assert ranks.attempt._failed_to_join == 0 and ranks.attempt._jobs.configs[-1] == (3, 1)


@pytest.mark.parametrize("strategy", ["allreduce", "average"])
def test_deaths_of_ranks_that_train_with_others_count(coming, strategy):
    ranks = coming(strategy)
    ranks.die(1)
    if strategy == "allreduce":
        ranks.attempt.on_regroup(0, None, None)
    assert ranks.run.executors._bad._deaths == {"7": 1}


def test_how_many_executors_the_session_holds_is_reported_when_it_changes(start, monkeypatch):
    monkeypatch.setattr(elastic_attempt, "EXECUTORS_SECONDS", 0.01)
    ranks = start("allreduce", jobs.job(RunSpec(min_workers=1, seed=0)))
    reported = []
    ranks.run.report = reported.append
    for count in (2, 5, 0):
        ranks.attempt._jobs.held = count
        until(lambda count=count: reported and reported[-1]["executors"] == count, 5)
    ranks.attempt._jobs.held = None  # Spark does not tell
    time.sleep(0.1)
    assert [(event["kind"], event["executors"]) for event in reported] == [("held", 2), ("held", 5), ("held", 0)]


@pytest.mark.parametrize("is_over", [False, True], ids=["the fit goes on", "the fit is over"])
def test_a_rank_that_has_joined_and_finds_the_others_in_another_fit_is_no_member(start, is_over):
    ranks = start("allreduce", jobs.job(RunSpec(min_workers=1, seed=0)))
    ranks.run.report, ranks.run.enter_from = lambda event: None, lambda *arguments: None
    channels = ranks.train()
    attempt = ranks.attempt
    attempt._numbers[2], attempt._record.workers = 1, 3
    channels.append(ranks.connect(2))
    attempt._group.members.append(2)
    header = Position(fit=0, epoch=1, step=0, complete=True)._asdict()
    attempt._context.checkpoints.files = lambda: [SimpleNamespace(header=header, path="/dev/null")] * is_over
    for rank in (0, 1):
        attempt.on_regroup(rank, None, None)  # they have lost it
    attempt.on_regroup(2, 0, None)
    assert attempt._group.members == [0, 1] and attempt._record.departed == {2}
    groups = [[value["ranks"] for kind, value in channel.sent if kind == messages.GROUP] for channel in channels]
    assert groups == [[[0, 1]], [[0, 1]], []]


def test_a_stop_that_comes_when_the_run_has_ended_says_nothing(start):
    ranks = start()
    ranks.train()
    for rank in (0, 1):
        ranks.attempt.on_end(rank, RankEnd("finished"))
    assert ranks.attempt.wait().state == "FINISHED"
    before = list(ranks.run.states)
    ranks.attempt.stop("")
    assert ranks.run.states == before
