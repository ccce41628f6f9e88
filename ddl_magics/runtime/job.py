"""One run on the driver: submits the Spark job, lets the ranks find each other, hears what they say, and ends it.

A thread of its own carries the run from SUBMITTED to its end; another waits for Spark's answer; one more for each rank
reads what its supervisor sends. All of them only note what they heard; `verdict.judge` decides.
"""

import contextlib
import hashlib
import json
import os
import secrets
import socket
import threading
import time

from . import events, gpus, messages, out, own_context, package, scratch, slots, spark_error, task, verdict, wire
from .eventlog import EventLog, state
from .server_process import Servers
from .strategies import COLLECTIVE

#: Executors that a session's settings promise may take this long to come.
EXECUTORS_SECONDS = 120.0
#: From the submission until every rank has reported.
RANKS_SECONDS = 120.0
#: The same where they get their rows first.
RANKS_WITH_DATA_SECONDS = 1800.0
#: A rank that was asked to stop may take this long to finish its step before the job is cancelled.
STOP_GRACE_SECONDS = 20.0
TICK_SECONDS = 0.5
CANCEL_SECONDS = 20.0
MAX_FRAME_BYTES = messages.CHUNK_BYTES + (1 << 16)


class Job:
    """`state`, `log` and `artifacts` are what the driver's API reads; `start`, `stop` and `forget` what it calls."""

    def __init__(self, sc, spec, packed, prepare):
        """packed: `names.pack`'s bytes; prepare: (sc, job group) -> the run's `feed.Feed`, or None without --data."""
        self.workers = 1 if spec["strategy"] == "single" else spec["workers"]
        self.state = events.PREFLIGHT
        self.log = EventLog(spec["run"])
        self.artifacts = {}
        self._sc, self._spec, self._packed, self._prepare, self._data = sc, spec, packed, prepare, None
        self._attempt = 1
        self._secret = secrets.token_bytes(32)
        self._group = "ddl_magics " + spec["run"]
        self._heard = verdict.Heard(self.workers)
        self._changed = threading.Condition()
        self._channels, self._ready, self._hosts = {}, {}, {}
        self._servers = None
        self._time_is_up_at = None
        self._folder = scratch.make("run")

    def start(self):
        threading.Thread(target=self._live, name=self._group, daemon=True).start()

    def stop(self, reason=""):
        """Ask the ranks to end after their step. `reason`: words that follow "stopped"."""
        with self._changed:
            if self._heard.stop_asked_at is not None or self.state in events.TERMINAL:
                return
            now = time.monotonic()
            self._heard.stop_asked_at, self._heard.stop_reason = now, reason
            started = len(self._ready) == self.workers
            self._heard.stop_deadline = now + (STOP_GRACE_SECONDS if started else 0.0)
            self._enter(events.STOPPING, "finishing the step" if started else "stopping before the workers started")
            channels = list(self._channels.values())
            self._changed.notify_all()
        for channel in channels:
            self._send(channel, messages.STOP, {})

    def forget(self):
        scratch.remove(self._folder)

    # -- the run's thread

    def _live(self):
        self._enter(events.PREFLIGHT, "looking for %s" % _count(self.workers, "slot"))
        listener = spark = parcel = None
        try:
            end = self._wait_for_executors()
            if end is None:
                rdd, manifest = self._partitions()
                if self._spec["strategy"] == "ps":
                    self._servers = Servers(
                        self._spec, self._secret, self._bind_host(), self._host(), self._on_server_death
                    )
                listener = wire.Listener(
                    self._bind_host(),
                    self._secret,
                    self._spec["run"],
                    wire.Identity("driver", -1, 0),
                    self._admit,
                    self._accept,
                )
                parcel = self._sc.broadcast(self._parcel(listener, manifest))
                spark = threading.Thread(target=self._submit, args=(rdd, parcel), daemon=True)
                spark.start()
                end = self._watch()
        except Exception as error:  # Spark refused: its first line is the reason
            end = verdict.Verdict(events.FAILED, spark_error.cause(error), _spark_failure(error), kill=True)
        try:
            self._clear(end, listener, spark, parcel)
            if self._spec.get("out"):
                self._write_out()
        finally:
            fields = {"failure": end.failure} if end.failure else {}
            self._enter(end.state, end.message, **fields)

    def _wait_for_executors(self):
        """Wait until the slots are there. None when they are, or the run's end."""
        deadline = time.monotonic() + EXECUTORS_SECONDS
        told = None
        while True:
            ready = slots.ready(self._sc, self._spec.get("gpus"))
            if ready >= self.workers:
                return None
            if ready != told:
                told = ready
                self._enter(
                    events.WAITING, "%d of %s" % (ready, _count(self.workers, "slot")), ready=ready, needed=self.workers
                )
            with self._changed:
                self._changed.wait(1.0)
                if self._heard.stop_asked_at is not None:
                    return verdict.Verdict(events.STOPPED, "stopped before the workers started")
            if time.monotonic() > deadline:
                message = (
                    "%d of %d slots after %g s: ask for fewer with --workers %d, or raise spark.executor.instances"
                )
                message %= (ready, self.workers, EXECUTORS_SECONDS, max(1, ready))
                return verdict.Verdict(events.FAILED, message, _spark_failure(message))

    def _partitions(self):
        if self._prepare is None:
            return self._sc.parallelize(range(self.workers), self.workers), None
        self._enter(
            events.PREFLIGHT, "dealing the rows of %s to %s" % (self._spec["data"], _count(self.workers, "worker"))
        )
        self._data = self._prepare(self._sc, self._group)
        for notice in self._data.notices:
            self._hint("info", notice)
        return self._data.rdd, self._data.manifest

    def _host(self):
        """Where executors reach the driver."""
        return socket.gethostbyname(self._sc.getConf().get("spark.driver.host") or "127.0.0.1")

    def _bind_host(self):
        address = self._sc.getConf().get("spark.driver.bindAddress")
        return socket.gethostbyname(address) if address else self._host()

    def _parcel(self, listener, manifest):
        folder = os.path.dirname(os.path.abspath(__file__))
        job = {
            "run": self._spec["run"],
            "attempt": self._attempt,
            "secret": self._secret.hex(),
            "driver": [self._host(), listener.address[1]],
            "size": self.workers,
            "executor_cores": slots.executor_cores(self._sc),
            "manifest": manifest,
        }
        for field in ("cell", "strategy", "rule", "window", "batch_size", "seed"):
            job[field] = self._spec[field]
        return {
            "runtime": package.zipped(os.path.basename(folder), package.sources(folder)),
            "job": job,
            "names": self._packed,
        }

    def _submit(self, rdd, parcel):
        error = None
        try:
            rank = task.make_task(parcel, __package__)
            stage = rdd.barrier() if self._spec["strategy"] in COLLECTIVE else rdd
            description = "%s: %s on %s" % (self._spec["name"], self._spec["strategy"], _count(self.workers, "worker"))
            ranks = gpus.request(stage.mapPartitionsWithIndex(rank), self._spec.get("gpus"))
            own_context.collect(ranks, self._group, description)
        except Exception as problem:  # Py4J's, of many kinds
            error = spark_error.cause(problem)
        with self._changed:
            self._heard.spark_error, self._heard.spark_done_at = error, time.monotonic()
            self._changed.notify_all()

    def _watch(self):
        with self._changed:
            message = "%s did not report within %g s; see the executors' logs"
            bound = RANKS_SECONDS if self._data is None else RANKS_WITH_DATA_SECONDS
            message %= (_count(self.workers, "worker"), bound)
            self._heard.start_deadline, self._heard.start_message = time.monotonic() + bound, message
            if self._heard.stop_asked_at is None:
                self._enter(events.SUBMITTED, "Spark is starting %s" % _count(self.workers, "task"))
        while True:
            if self._time_is_up_at is not None and time.monotonic() > self._time_is_up_at:
                self.stop(" by --timeout after %g s" % self._spec["timeout"])
            with self._changed:
                end = verdict.judge(self._heard, time.monotonic())
                if end is not None:
                    return end
                self._changed.wait(TICK_SECONDS)

    def _clear(self, end, listener, spark, parcel):
        """Leave nothing of the run behind but its log and its artifacts."""
        if end.kill and spark is not None:
            self._ask_spark(lambda: self._sc.cancelJobGroup(self._group))
        if spark is not None:
            spark.join(CANCEL_SECONDS)
        if listener is not None:
            listener.close()
        for channel in list(self._channels.values()):
            channel.close()
        if self._servers is not None:
            self._servers.close()
        if parcel is not None:
            self._ask_spark(parcel.destroy)
        if self._data is not None:
            self._ask_spark(self._data.close)

    @staticmethod
    def _ask_spark(request):
        """Call Spark; a context that the user has stopped meanwhile has nothing to clear."""
        with contextlib.suppress(Exception):  # Py4J's, of many kinds
            request()

    # -- what the ranks say

    def _admit(self, identity):
        with self._changed:
            if identity.role != "supervisor" or not 0 <= identity.rank < self.workers:
                return "not a rank of this run"
            if identity.attempt != self._attempt:
                return "attempt %d is not the current one" % identity.attempt
            if identity.rank in self._channels:
                return "rank %d is connected already" % identity.rank
        return None

    def _accept(self, channel):
        rank = channel.peer.rank
        with self._changed:
            self._channels[rank] = channel
        self._hosts[rank] = channel.address[0]
        threading.Thread(target=self._hear, args=(rank, channel), daemon=True).start()

    def _hear(self, rank, channel):
        incoming = None
        try:
            while True:
                kind, payload = channel.recv(MAX_FRAME_BYTES)
                if kind == messages.CHUNK:
                    incoming.write(payload)
                    if incoming.complete:
                        self._keep(incoming)
                elif kind == messages.EVENTS:
                    for event in messages.parse(payload):
                        self._note(rank, event)
                elif kind == messages.READY:
                    self._on_ready(rank, messages.parse(payload))
                elif kind == messages.ARTIFACT:
                    incoming = _Incoming(self._folder, messages.parse(payload))
                elif kind == messages.END:
                    self._on_end(rank, messages.parse(payload))
        except (wire.ConnectionLost, wire.ProtocolError, OSError, ValueError, KeyError, AttributeError):
            pass
        with self._changed:
            if rank not in self._heard.ends:
                self._heard.lost[rank] = (self._hosts[rank], time.monotonic())
            self._changed.notify_all()

    def _note(self, rank, event):
        if event["kind"] not in events.SCHEMA:
            return
        if event["kind"] == "worker":
            self._hosts[rank] = event["host"]
        self.log.append(dict(event, rank=rank), self._attempt)

    def _on_ready(self, rank, ready):
        with self._changed:
            self._ready[rank] = ready["address"]
            if self.state in (events.SUBMITTED, events.WAITING):
                count = len(self._ready)
                self._enter(
                    events.WAITING,
                    "%d of %s" % (count, _count(self.workers, "worker")),
                    ready=count,
                    needed=self.workers,
                )
            if len(self._ready) < self.workers:
                return
            self._heard.start_deadline = None
            if self._heard.stop_asked_at is None:
                self._enter(events.RUNNING, "training on %s" % _count(self.workers, "worker"))
            if self._spec.get("timeout"):
                self._time_is_up_at = time.monotonic() + self._spec["timeout"]
            addresses = [self._ready[r] for r in range(self.workers)]
            channels = list(self._channels.values())
        hosts = [channel.address[0] for channel in channels]
        for channel in channels:
            peers = {
                "addresses": addresses,
                "ranks_on_host": hosts.count(channel.address[0]),
                "servers": self._servers.addresses if self._servers else None,
            }
            self._send(channel, messages.PEERS, peers)

    def _on_end(self, rank, end):
        failure = end.get("failure")
        if failure:
            failure.update(rank=rank, host=self._hosts[rank])
        with self._changed:
            self._heard.ends[rank], self._heard.ended_at[rank] = end, time.monotonic()
            self._changed.notify_all()

    def _on_server_death(self, message):
        with self._changed:
            self._heard.server_died = message
            self._changed.notify_all()

    def _keep(self, incoming):
        incoming.check()
        self.artifacts[incoming.name] = {"path": incoming.path, "size": incoming.size, "sha256": incoming.sha256}
        if not self._spec.get("out"):
            self._announce(incoming.name)

    def _announce(self, name, **where):
        about = {field: self.artifacts[name][field] for field in ("size", "sha256")}
        self.log.append(events.make("artifact", 0, name=name, **about, **where), self._attempt)

    def _write_out(self):
        """What --out's folder does not take goes to the notebook, as without --out."""
        files = {name: artifact["path"] for name, artifact in self.artifacts.items()}
        said = map(json.loads, self.log.read(0, float("inf"))[0])
        written, problem = out.write(self._sc, self._spec, files, said, self._folder)
        for name in files:
            self._announce(name, **({"uri": written[name]} if name in written else {}))
        if written:
            folder = next(iter(written.values())).rpartition("/")[0]
            self._hint("info", "written to %s: %s" % (folder, ", ".join(written)))
        if problem:
            self._hint("warning", "%s; what is not there comes to the notebook" % problem)

    def _hint(self, level, message):
        self.log.append(events.make("notice", events.JOB, level=level, message=message), self._attempt)

    @staticmethod
    def _send(channel, kind, value):
        try:
            channel.send_json(kind, value)
        except (wire.ConnectionLost, OSError):
            pass  # its reader notes the loss

    def _enter(self, name, message, **fields):
        self.log.append(state(name, message, **fields), self._attempt)
        self.state = name


class _Incoming:
    """An artifact on its way from a rank to the driver's disk."""

    def __init__(self, folder, header):
        self.name, self.size, self.sha256 = str(header["name"]), int(header["size"]), str(header["sha256"])
        self.path = os.path.join(folder, "%d" % len(os.listdir(folder)))
        self._file = open(self.path, "wb")  # noqa: SIM115 - open until the last chunk has come
        self._digest, self._received = hashlib.sha256(), 0

    @property
    def complete(self):
        return self._received == self.size

    def write(self, block):
        self._received += len(block)
        if self._received > self.size:
            raise ValueError("more bytes than announced")
        self._digest.update(block)
        self._file.write(block)

    def check(self):
        self._file.close()
        if self._digest.hexdigest() != self.sha256:
            raise ValueError("checksum of %s does not match" % self.name)


def _count(number, what):
    return "%d %s%s" % (number, what, "" if number == 1 else "s")


def _spark_failure(error):
    return verdict.of_the_job("spark", spark_error.cause(error))
