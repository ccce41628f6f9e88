"""One attempt of a run: a Spark job whose ranks find each other, what the driver hears of them, and how it ended.

A thread waits for Spark's answer, and one for each rank reads what its supervisor sends. They only note what they
heard; `verdict.judge` decides.
"""

import threading
import time

from . import checkpoint_files, events, gpus, messages, own_context, spark_error, task, verdict, wire
from .incoming import Incoming
from .strategies import COLLECTIVE, RESTARTED_ALONE
from .wording import count

#: From the submission until every rank has reported.
RANKS_SECONDS = 120.0
#: The same where they get their rows first.
RANKS_WITH_DATA_SECONDS = 1800.0
#: A rank that was asked to stop may take this long to finish its step before the job is cancelled.
STOP_GRACE_SECONDS = 20.0
TICK_SECONDS = 0.5
CANCEL_SECONDS = 20.0
MAX_FRAME_BYTES = messages.CHUNK_BYTES + (1 << 16)


class Attempt:
    """Attempt `number` (from 1) of `run`, a `job.Job`; why: what is said of it when it begins.

    `wait` returns its `verdict.Verdict`, and `clear` must follow. `stop`, `admit` and `accept` may come at any time.
    """

    def __init__(self, run, number, why):
        self.number = number
        self._numbers = dict.fromkeys(range(run.workers), number)  # a rank's own, where it is started again alone
        self.heard = verdict.Heard(run.workers)
        self._run, self._why = run, why
        self._group = "%s attempt %d" % (run.group, number)
        self._changed = threading.Condition()
        self._channels, self._ready, self._hosts = {}, {}, {}
        self._rdd = self._parcel = self._job = None
        self._spark, self._spark_errors = [], []
        self._checkpoints = []  # that rank 0 goes on from

    def start(self, rdd, parcel, job):
        """Submit the Spark job. parcel: the broadcast of what is the same in all attempts; job: what ranks are told."""
        self._rdd, self._parcel, self._job = rdd, parcel, job
        with self._changed:
            self._expect(self._run.workers)
            if self.heard.stop_asked_at is None:
                told = "Spark is starting %s" % count(self._run.workers, "task")
                self._run.enter(events.SUBMITTED, self._why or told)
        self._submit()

    def _expect(self, workers):
        bound = RANKS_WITH_DATA_SECONDS if self._job["manifest"] else RANKS_SECONDS
        message = "%s did not report within %g s; see the executors' logs"
        self.heard.start_message = message % (count(workers, "worker"), bound)
        self.heard.start_deadline = time.monotonic() + bound

    def _submit(self, only=None):
        """Start a Spark job of all ranks, or for the one."""
        self._checkpoints = self._run.checkpoints.files()
        job = dict(self._job, attempt=self.number, resume=checkpoint_files.positions(self._checkpoints))
        if only is not None:
            job.update(attempt=self._numbers[only])
            if self._run.servers:  # which have what the rank goes on from
                job.update(told=self._run.told())
        thread = threading.Thread(target=self._run_tasks, args=(job, only), daemon=True)
        self._spark.append(thread)
        thread.start()

    def _run_tasks(self, job, only):
        error, spec = None, self._run.spec
        try:
            rank = task.make_task(self._parcel, job, __package__, only)
            stage = self._rdd.barrier() if spec["strategy"] in COLLECTIVE else self._rdd
            words = "%s: %s on %s" % (spec["name"], spec["strategy"], count(self._run.workers, "worker"))
            words += "" if only is None else ", rank %d again" % only
            ranks = gpus.request(stage.mapPartitionsWithIndex(rank), spec.get("gpus"))
            own_context.collect(ranks, self._group, words)
        except Exception as problem:  # Py4J's, of many kinds
            error = spark_error.cause(problem)
        with self._changed:
            self._spark_errors.append(error)
            if len(self._spark_errors) == len(self._spark):
                self.heard.spark_error = next(filter(None, self._spark_errors), None)
                self.heard.spark_done_at = time.monotonic()
            self._changed.notify_all()

    def stop(self, reason):
        """Ask the ranks to end after their step. `reason`: words that follow "stopped"."""
        with self._changed:
            now = time.monotonic()
            self.heard.stop_asked_at, self.heard.stop_reason = now, reason
            started = len(self._ready) == self._run.workers
            self.heard.stop_deadline = now + (STOP_GRACE_SECONDS if started else 0.0)
            words = "finishing the step" if started else "stopping before the workers started"
            self._run.enter(events.STOPPING, words)
            channels = list(self._channels.values())
            self._changed.notify_all()
        for channel in channels:
            _send(channel, messages.STOP, {})

    def wait(self):
        """The `Verdict`, when there is one."""
        while True:
            self._run.check_time()
            with self._changed:
                self._start_dead_again()
                end = verdict.judge(self.heard, time.monotonic())
                if end is not None:
                    return end
                self._changed.wait(TICK_SECONDS)

    def _start_dead_again(self):
        """Where ranks do not need each other all the time, those that die are started again while the others go on."""
        alone = self._run.spec["strategy"] in RESTARTED_ALONE
        if not alone or self.heard.stop_asked_at is not None or self.heard.server_died:
            return
        for rank, end in verdict.dead(self.heard).items():
            if self._numbers[rank] >= self._run.attempts:
                continue
            self._numbers[rank] += 1
            for known in (self.heard.ends, self.heard.ended_at, self.heard.lost, self._ready):
                known.pop(rank, None)
            channel = self._channels.pop(rank, None)
            if channel is not None:
                channel.close(0)
            self._expect(1)
            words = "%s; it is started again (attempt %d of %d), the others go on"
            self._run.enter(events.RUNNING, words % (end.death, self._numbers[rank], self._run.attempts))
            self._submit(rank)

    def clear(self, kill):
        """Leave nothing of it behind. kill: tasks may still run."""
        if kill and self._spark:
            self._run.ask_spark(lambda: self._run.sc.cancelJobGroup(self._group))
        deadline = time.monotonic() + CANCEL_SECONDS
        for thread in self._spark:
            thread.join(max(0.0, deadline - time.monotonic()))
        for channel in list(self._channels.values()):
            channel.close()

    def note_server_death(self, message):
        with self._changed:
            self.heard.server_died = message
            self._changed.notify_all()

    # -- what the ranks say

    def admit(self, identity):
        """Why a supervisor is not let in, or None."""
        with self._changed:
            if identity.role != "supervisor" or not 0 <= identity.rank < self._run.workers:
                return "not a rank of this run"
            if identity.attempt != self._numbers[identity.rank]:
                return "attempt %d is not the current one" % identity.attempt
            if identity.rank in self._channels:
                return "rank %d is connected already" % identity.rank
        return None

    def accept(self, channel):
        rank = channel.peer.rank
        with self._changed:
            self._channels[rank] = channel
        self._hosts[rank] = channel.address[0]
        threading.Thread(target=self._hear, args=(rank, channel), daemon=True).start()

    def _hear(self, rank, channel):
        coming = {}  # by the kind of the frames that bring it
        try:
            while True:
                kind, payload = channel.recv(MAX_FRAME_BYTES)
                if kind in (messages.CHUNK, messages.PIECE):
                    if coming[kind].write(payload):
                        self._keep(kind, coming.pop(kind))
                elif kind == messages.EVENTS:
                    for event in messages.parse(payload):
                        self._note(rank, event)
                elif kind == messages.READY:
                    self._on_ready(rank, messages.parse(payload))
                elif kind == messages.ARTIFACT:
                    coming[messages.CHUNK] = Incoming(self._run.new_file(), messages.parse(payload))
                elif kind == messages.CHECKPOINT:
                    coming[messages.PIECE] = Incoming(self._run.new_file(), messages.parse(payload))
                elif kind == messages.END:
                    self._on_end(rank, messages.parse(payload))
        except (wire.ConnectionLost, wire.ProtocolError, OSError, ValueError, KeyError, AttributeError):
            pass
        for file in coming.values():
            file.drop()
        with self._changed:
            if rank not in self.heard.ends and self._channels.get(rank) is channel:
                self.heard.lost[rank] = (self._hosts[rank], time.monotonic())
            self._changed.notify_all()

    def _keep(self, kind, file):
        if kind == messages.CHUNK:
            self._run.keep(file)
        else:
            self._run.checkpoints.keep(file)

    def _note(self, rank, event):
        if event["kind"] not in events.SCHEMA:
            return
        if event["kind"] == "worker":
            self._hosts[rank] = event["host"]
        self._run.log.append(dict(event, rank=rank), self._numbers[rank])

    def _on_ready(self, rank, ready):
        workers = self._run.workers
        with self._changed:
            self._ready[rank] = ready["address"]
            again = self._numbers[rank] != self.number
            here = len(self._ready)
            if self.heard.stop_asked_at is None and not again:
                self._run.enter(
                    events.WAITING, "%d of %s" % (here, count(workers, "worker")), ready=here, needed=workers
                )
            if here < workers:
                return
            self.heard.start_deadline = None
            if self.heard.stop_asked_at is None:
                self._run.enter(events.RUNNING, "training on %s" % count(workers, "worker"))
            self._run.note_start()
            addresses = [self._ready[r] for r in range(workers)]
            channels = dict(self._channels)
        hosts = {r: channel.address[0] for r, channel in sorted(channels.items())}
        waiting = {rank: channels[rank]} if again else channels
        if 0 in waiting:
            checkpoint_files.send(waiting[0], self._checkpoints)
        for r, channel in waiting.items():
            here = [other for other, host in hosts.items() if host == hosts[r]]
            peers = {
                "addresses": addresses,
                "ranks_on_host": len(here),
                "place_on_host": here.index(r),
                "servers": self._run.servers.addresses if self._run.servers else None,
            }
            _send(channel, messages.PEERS, peers)

    def _on_end(self, rank, end):
        failure = end.get("failure")
        if failure:
            failure.update(rank=rank, host=self._hosts[rank])
        with self._changed:
            self.heard.ends[rank], self.heard.ended_at[rank] = end, time.monotonic()
            self._changed.notify_all()


def _send(channel, kind, value):
    try:
        channel.send_json(kind, value)
    except (wire.ConnectionLost, OSError):
        pass  # its reader notes the loss
