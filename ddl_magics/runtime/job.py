"""One run on the driver, from the wait for its slots to its end: attempt after attempt, while workers die.

A thread of its own carries the run. What an attempt is, is in attempt.py.
"""

import contextlib
import json
import os
import secrets
import socket
import threading
import time

from . import checkpoint_files, checkpoint_storage, events, out, package, scratch, slots, spark_error, verdict, wire
from .attempt import Attempt
from .eventlog import EventLog, state
from .histories import histories
from .server_process import Servers
from .strategies import RESTARTED_ALONE
from .wording import count

#: Executors that a session's settings promise may take this long to come, and to come again when they died.
EXECUTORS_SECONDS = 120.0


class Job:
    """`state`, `log`, `artifacts`, `checkpoints` are what the driver's API reads; `start`, `stop`, `forget` it calls.

    The other public names are its attempts'.
    """

    def __init__(self, sc, spec, packed, prepare, resumed=()):
        """packed: `names.pack`'s bytes; prepare: (sc, job group) -> the run's `feed.Feed`, or None without --data.

        resumed: `checkpoint_files.Source`s of another run's. NoCheckpoint, which is a ValueError, where one cannot be
        read.
        """
        self.workers = 1 if spec["strategy"] == "single" else spec["workers"]
        self.state = events.PREFLIGHT
        self.log = EventLog(spec["run"])
        self.artifacts = {}
        self.sc, self.spec = sc, spec
        self.attempts = spec.get("attempts") or verdict.ATTEMPTS
        self.group = "ddl_magics " + spec["run"]
        self.servers = None
        self._packed, self._prepare, self._data = packed, prepare, None
        self._secret = secrets.token_bytes(32)
        self._changed = threading.Condition()
        self._attempt = None  # the one in progress
        self._number = 1
        self._stopped = None  # the reason, once a stop was asked for
        self._time_is_up_at = None
        self._folder = scratch.make("run")
        self._files = 0
        self._copies = None
        if spec.get("checkpoint"):
            uri = checkpoint_storage.folder_of(spec["checkpoint"], spec["run"])
            self._copies = checkpoint_storage.Copies(sc, uri, spec["run"], self.new_file, self._hint)
        self.checkpoints = checkpoint_files.CheckpointFiles(lambda text: self._hint("warning", text), self._copies)
        try:
            for source in resumed:
                self.checkpoints.adopt(source, self.new_file())
        except ValueError:
            self.forget()
            raise

    def start(self):
        threading.Thread(target=self._live, name=self.group, daemon=True).start()

    def stop(self, reason=""):
        """Ask the ranks to end after their step. `reason`: words that follow "stopped"."""
        with self._changed:
            if self._stopped is not None or self.state in events.TERMINAL:
                return
            self._stopped = reason
            if self._attempt is None:
                self.enter(events.STOPPING, "stopping before the workers started")
            else:
                self._attempt.stop(reason)
            self._changed.notify_all()

    def forget(self):
        scratch.remove(self._folder)

    # -- the run's thread

    def _live(self):
        self.enter(events.PREFLIGHT, "looking for %s" % count(self.workers, "slot"))
        try:
            with contextlib.ExitStack() as clearing:
                end = self._run(clearing)
        except Exception as error:  # Spark refused: its first line is the reason
            end = verdict.Verdict(events.FAILED, spark_error.cause(error), _spark_failure(error))
        try:
            stored = self._copies is not None and self._copies.close()
            if end.state != events.FINISHED:
                end = self._offer_checkpoints(end, stored)
            if self.spec.get("out"):
                self._write_out()
        finally:
            fields = {"failure": end.failure} if end.failure else {}
            self.enter(end.state, end.message, **fields)

    def _run(self, clearing):
        """The run's `Verdict`. clearing: an `ExitStack` for what must be undone, also when this raises."""
        end = self._wait_for_executors()
        if end is not None:
            return end
        rdd, manifest = self._partitions(clearing)
        if self.spec["strategy"] == "ps":
            self.servers = Servers(self.spec, self._secret, self._bind_host(), self._host(), self._on_server_death)
            clearing.callback(self.servers.close)
        me = wire.Identity("driver", -1, 0)
        listener = wire.Listener(
            self._bind_host(), self._secret, self.spec["run"], me, self._admit, lambda c: self._attempt.accept(c)
        )
        clearing.callback(listener.close)
        parcel = self.sc.broadcast(self._parcel())
        clearing.callback(self.ask_spark, parcel.destroy)
        job, why = self._told(listener, manifest), ""
        attempts = self.attempts
        while True:
            end = self._try(rdd, parcel, job, why)
            if not end.of_a_death or self._stopped is not None:
                return end
            if self._number >= attempts or self.spec["strategy"] in RESTARTED_ALONE:
                return end.after("; it was attempt %d of %d" % (attempts, attempts)) if attempts > 1 else end
            self._number += 1
            goes_on = checkpoint_files.where(self.checkpoints.files())
            why = "attempt %d of %d: %s; %s" % (self._number, attempts, end.death, goes_on)
            waited = self._wait_for_executors(why)
            if waited is not None:
                return waited if waited.state == events.STOPPED else end.after("; then " + waited.message)

    def _try(self, rdd, parcel, job, why):
        with self._changed:
            if self._stopped is not None:
                return self._stopped_early()
            attempt = self._attempt = Attempt(self, self._number, why)
        end = None
        try:
            attempt.start(rdd, parcel, job)
            end = attempt.wait()
            return end
        finally:
            with self._changed:
                self._attempt = None
            attempt.clear(kill=end is None or end.kill)

    def _wait_for_executors(self, why=""):
        """Wait until the slots are there. None when they are, or the run's end."""
        deadline = time.monotonic() + EXECUTORS_SECONDS
        told = None
        while True:
            ready = slots.ready(self.sc, self.spec.get("gpus"))
            if ready >= self.workers:
                return None
            if ready != told:
                told = ready
                message = "%d of %s" % (ready, count(self.workers, "slot"))
                message = "%s; %s" % (why, message) if why else message
                self.enter(events.WAITING, message, ready=ready, needed=self.workers)
            self.check_time()
            with self._changed:
                if self._stopped is None:
                    self._changed.wait(1.0)
                if self._stopped is not None:
                    return self._stopped_early()
            if time.monotonic() > deadline:
                message = (
                    "%d of %d slots after %g s: ask for fewer with --workers %d, or raise spark.executor.instances"
                )
                message %= (ready, self.workers, EXECUTORS_SECONDS, max(1, ready))
                return verdict.Verdict(events.FAILED, message, _spark_failure(message))

    def _stopped_early(self):
        if self._number == 1:
            return verdict.Verdict(events.STOPPED, "stopped before the workers started")
        return verdict.Verdict(events.STOPPED, "stopped%s, before attempt %d" % (self._stopped, self._number))

    def check_time(self):
        """Ask for a stop when --timeout is over."""
        if self._time_is_up_at is not None and time.monotonic() > self._time_is_up_at:
            self.stop(" by --timeout after %g s" % self.spec["timeout"])

    def note_start(self):
        """Training begins, or begins again."""
        if self.spec.get("timeout") and self._time_is_up_at is None:
            self._time_is_up_at = time.monotonic() + self.spec["timeout"]

    def _partitions(self, clearing):
        if self._prepare is None:
            return self.sc.parallelize(range(self.workers), self.workers), None
        self.enter(
            events.PREFLIGHT, "dealing the rows of %s to %s" % (self.spec["data"], count(self.workers, "worker"))
        )
        data = self._prepare(self.sc, self.group)
        clearing.callback(self.ask_spark, data.close)
        for notice in data.notices:
            self._hint("info", notice)
        return data.rdd, data.manifest

    def _host(self):
        """Where executors reach the driver."""
        return socket.gethostbyname(self.sc.getConf().get("spark.driver.host") or "127.0.0.1")

    def _bind_host(self):
        address = self.sc.getConf().get("spark.driver.bindAddress")
        return socket.gethostbyname(address) if address else self._host()

    def _parcel(self):
        folder = os.path.dirname(os.path.abspath(__file__))
        zipped = package.zipped(os.path.basename(folder), package.sources(folder))
        return {"runtime": zipped, "names": self._packed}

    def _told(self, listener, manifest):
        """What every rank is told in every attempt."""
        job = {
            "run": self.spec["run"],
            "secret": self._secret.hex(),
            "driver": [self._host(), listener.address[1]],
            "size": self.workers,
            "spark": self.sc.version,
            "executor_cores": slots.executor_cores(self.sc),
            "manifest": manifest,
            "resumed": bool(self.spec.get("resume")),
            "checkpoint_every": self.spec.get("checkpoint_every"),
            "compression": self.spec.get("compression"),
            "sync_batchnorm": self.spec.get("sync_batchnorm"),
            "spare": self.spec.get("spare") is not False,
        }
        for field in ("cell", "strategy", "rule", "window", "batch_size", "seed"):
            job[field] = self.spec[field]
        job["ps"] = self.spec.get("ps")
        return job

    @staticmethod
    def ask_spark(request):
        """Call Spark; a context that the user has stopped meanwhile has nothing to clear."""
        with contextlib.suppress(Exception):  # Py4J's, of many kinds
            request()

    # -- what is heard, while an attempt goes on

    def _admit(self, identity):
        attempt = self._attempt
        return "no attempt goes on" if attempt is None else attempt.admit(identity)

    def _on_server_death(self, message):
        attempt = self._attempt
        if attempt is not None:
            attempt.note_server_death(message)

    def told(self):
        """What has been reported so far: {fit: {metric: [value of each epoch]}}."""
        return dict(enumerate(histories(map(json.loads, self.log.read(0, float("inf"))[0]))))

    def new_file(self):
        """A path on the driver's disk that is not in use."""
        with self._changed:
            self._files += 1
            return os.path.join(self._folder, "%d" % self._files)

    def keep(self, file):
        """Take over an artifact, an `Incoming` that is complete."""
        name = str(file.header["name"])
        self.artifacts[name] = {"path": file.path, "size": file.size, "sha256": file.sha256}
        if not self.spec.get("out"):
            self._announce(name)

    def _announce(self, name, **where):
        about = {field: self.artifacts[name][field] for field in ("size", "sha256")}
        self.log.append(events.make("artifact", 0, name=name, **about, **where), self._number)

    def _offer_checkpoints(self, end, stored):
        """Let the notebook have what a later run can go on from. Returns the `end` that tells of it.

        stored: they are in the cluster's storage, where --checkpoint has them.
        """
        files = self.checkpoints.files()
        for file in () if stored else files:
            self.keep(file)
        if not files:
            return end
        message = "--resume %s goes on %s, where the last checkpoint is"
        return end.after("; " + message % (self.spec["name"], checkpoint_files.where(files)))

    def _write_out(self):
        """What --out's folder does not take goes to the notebook, as without --out."""
        files = {name: artifact["path"] for name, artifact in self.artifacts.items()}
        said = map(json.loads, self.log.read(0, float("inf"))[0])
        written, problem = out.write(self.sc, self.spec, files, said, self._folder)
        for name in files:
            self._announce(name, **({"uri": written[name]} if name in written else {}))
        if written:
            folder = next(iter(written.values())).rpartition("/")[0]
            self._hint("info", "written to %s: %s" % (folder, ", ".join(written)))
        if problem:
            self._hint("warning", "%s; what is not there comes to the notebook" % problem)

    def _hint(self, level, message):
        self.log.append(events.make("notice", events.JOB, level=level, message=message), self._number)

    def enter(self, name, message, **fields):
        """The run enters a state."""
        self.log.append(state(name, message, **fields), self._number)
        self.state = name


def _spark_failure(error):
    return verdict.of_the_job("spark", spark_error.cause(error))
