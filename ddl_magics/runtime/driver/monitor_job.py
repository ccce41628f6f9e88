"""A monitor on the driver: a Spark stream counts what is logged of a model in use, and its events say what has moved.

A batch of the stream is counted once: its counts and its number are written to the checkpoint's folder before Spark
marks it as done, and a batch whose number is there is not added again. A stream that ends by itself is started again,
from the checkpoint.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from typing import Any, Callable, Iterator, Mapping, cast

from .. import events
from ..checkpoints import checkpoint_files
from ..monitoring import drift, labels, sources
from ..monitoring.counting import Counter
from ..monitoring.reference import Reference
from ..monitoring.windows import ROWS, SHOWN, Watch
from ..run_spec import MonitorSpec, RunSpec
from ..spark import jvm_gateway, spark_error
from ..wording import counted
from . import run_result
from .journal import Journal
from .run_files import RunFiles

#: How often the stream looks for new records, and this thread at the stream.
TRIGGER_SECONDS, LOOK_SECONDS = 2.0, 0.5
#: Between two events of the kind `watch`, at least; and of a monitor that is so many times older, more.
EVENT_SECONDS, EVENTS_PER_AGE = 2.0, 500
#: Before a stream that has ended is started again, at first and at most.
AGAIN_SECONDS, MOST_AGAIN_SECONDS = 1.0, 60.0
#: A monitor fails after so many such starts without a batch between them, which takes hours.
MOST_FAILURES = 200
#: For the batch that a stream is in when it is stopped. What it would have counted is counted after a restart.
STOP_SECONDS = 10.0
#: Between two joins of a DataFrame of labels with the log.
LABELS_SECONDS = 60.0
#: The state of the counts is in files of this name; the newest two are kept.
STATE = "counts-%d.json"


class MonitorJob:
    """What the driver's API needs of a run: `start`, `stop`, `forget`, `state`, `spec`, `workers`, `log`, `files`."""

    def __init__(self, session: Any, spec: RunSpec, namespace: Mapping[str, Any]) -> None:
        """Raises `BadSource` or `ValueError`, one line. namespace: the session's variables, for --labels."""
        self.spec, self.workers = spec, 0
        self.journal = Journal(spec.run)
        self.files = RunFiles(spec, self.journal)
        self.checkpoints = checkpoint_files.CheckpointFiles(
            lambda text: self.journal.notice("warning", text)
        )  # it has none
        assert spec.monitor is not None
        self._monitor = spec.monitor
        self._reference = cast("Reference", spec.monitor.reference)
        self._seconds = float(spec.monitor.window)
        self._source = sources.read("--log", self._monitor.log)
        self._counter = Counter(self._reference, self._seconds)
        self._session = session.newSession()
        sc = session.sparkContext
        self._session.conf.set("spark.sql.shuffle.partitions", str(max(2, min(64, sc.defaultParallelism))))
        self._own = jvm_gateway.separate_context(sc)
        self.group = "ddl_magics " + spec.run
        self._labels = _Labels(self, self._monitor.labels, namespace)
        self._folder = _Folder(self._own, self._monitor.checkpoint)
        self._watch = Watch(self._reference, self._counter)
        self._lock = threading.Lock()
        self._collecting = threading.Lock()
        self._stopping = threading.Event()
        self._reason = ""
        self._began = self._told = time.monotonic()
        self._changed = self._stale = False
        self._levels: dict[str, str] = {}
        self._advised = ""
        self._at_start: dict[str, int] = {}
        #: (records, late ones) of the batches that Spark still knows; and the sums of those before.
        self._recent: dict[tuple[str, int], tuple[int, int]] = {}
        self._came = self._late = 0

    # -- what the API calls

    def start(self) -> None:
        self.journal.enter(events.PREFLIGHT, "opening the checkpoint")
        threading.Thread(target=self._run, name=self.group, daemon=True).start()

    def stop(self, reason: str = "") -> None:
        if self.journal.state in events.TERMINAL or self._stopping.is_set():
            return
        self._reason = reason
        self.journal.enter(events.STOPPING, "the stream ends after its batch, or in %g s" % STOP_SECONDS)
        self._stopping.set()

    def forget(self) -> None:
        self._stopping.set()
        self.files.remove()

    # -- the monitor's thread

    def _run(self) -> None:
        try:
            self._watch = Watch(self._reference, self._counter, self._folder.read())
            if self._watch.batch >= 0:
                self.journal.notice("info", "continues after %s" % counted(self._watch.totals["requests"], "request"))
            self._at_start = dict(self._watch.totals)
            self._follow()
            with self._lock:
                self._tell()
                self._folder.write(self._watch.to_json())
            done = counted(self._watch.totals["requests"], "request")
            if self._stopping.is_set():
                self.journal.enter(events.STOPPED, "stopped%s after %s" % (self._reason, done))
            else:
                self.journal.enter(events.FINISHED, "caught up with %s" % done)
        except Exception as error:  # Spark's and Py4J's, of many kinds
            message = _explained(self._session.version, spark_error.cause(error))
            result = run_result.failed_job("spark", message)
            assert result.failure is not None
            self.journal.enter(result.state, result.message, failure=result.failure.to_json())

    def _follow(self) -> None:
        """Keep the streams running until a stop, or with --once until all is counted."""
        starts: list[Callable[[], Any]] = [self._start_counting, *self._labels.starts()]
        streams: list[_Stream] = []
        try:
            for start in starts:
                streams.append(_Stream(start))
            self.journal.enter(events.RUNNING, "watching %s" % self._source.uri)
            while not self._stopping.wait(LOOK_SECONDS):
                for stream in streams:
                    self._look_at(stream)
                if all(stream.done for stream in streams):
                    return self._labels.join_now()
                self._labels.join_if_due()
                self._tell_if_due()
        finally:
            until = time.monotonic() + STOP_SECONDS
            with contextlib.ExitStack() as ending:  # all are ended, also where one raises
                for stream in streams:
                    ending.callback(stream.end, until)

    def _look_at(self, stream: _Stream) -> None:
        """Note how far a stream is; one that has ended by itself is started again, after a pause."""
        query = stream.query
        if stream.done or stream.waits():
            return
        self._note_progress(query)
        if query.isActive:
            if query.lastProgress:
                stream.failures = 0
            return
        problem = query.exception()
        if problem is None and self._monitor.once:
            stream.done = True
        elif stream.again is not None:
            try:
                stream.start()
            except Exception as error:  # of Spark, of several kinds: the storage of the log may still be away
                self._pause(stream, spark_error.cause(error))
        else:
            self._pause(stream, "it was stopped" if problem is None else spark_error.cause(problem))

    def _pause(self, stream: _Stream, problem: str) -> None:
        """Have a stream started again later. RuntimeError after too many failures."""
        pause = stream.pause()
        if stream.failures > MOST_FAILURES:
            raise RuntimeError(problem)
        if stream.failures in (1, 10, 100):
            message = "the stream was interrupted: %s; it is started again in %g s, and counts nothing twice"
            self.journal.notice("warning", message % (problem, pause))

    def _start_counting(self) -> Any:
        stream = sources.stream(self._session, self._source)
        requests = self._counter.requests(stream, self._monitor.delay)
        return self._started(requests, "requests", self._count)

    def _started(self, frame: Any, name: str, function: Callable[[Any, int], None]) -> Any:
        writer = frame.writeStream.foreachBatch(function).option("checkpointLocation", self._folder.inside(name))
        writer = writer.queryName("%s %s" % (self.group, name))
        if self._monitor.once:
            now = tuple(map(int, self._session.version.split(".")[:2])) >= (3, 3)
            return writer.trigger(**({"availableNow": True} if now else {"once": True})).start()
        return writer.trigger(processingTime="%g seconds" % float(self._monitor.every or TRIGGER_SECONDS)).start()

    def collected(self, frame: Any) -> list[Any]:
        """The rows of a small DataFrame."""
        with self._collecting:
            rows: list[Any] = jvm_gateway.collect(
                jvm_gateway.dataframe_rdd(frame, self._own, self.group), self.group, "requests of a monitor"
            )
        return rows

    def _count(self, batch: Any, number: int) -> None:
        """A batch of the stream. It may come again after a restart."""
        with self._lock:
            self._read_if_stale()
            if number <= self._watch.batch:
                self._changed = True
                return
        rows = self.collected(self._counter.counts(batch))
        with self._lock, self._stored():
            self._watch.add(number, [tuple(row) for row in rows])

    def add_errors(self, number: int, rows: list[Any]) -> None:
        """The errors of newly labelled requests."""
        with self._lock, self._stored():
            self._watch.add_errors(number, [tuple(row) for row in rows])

    @contextlib.contextmanager
    def _stored(self) -> Iterator[None]:
        """What changes the counts within is stored at the end. Where that fails, the counts are those on the disk."""
        self._read_if_stale()
        self._stale = True
        yield
        self._folder.write(self._watch.to_json())
        self._stale, self._changed = False, True

    def _read_if_stale(self) -> None:
        if self._stale:
            self._watch, self._stale = Watch(self._reference, self._counter, self._folder.read()), False

    def replace_errors(self, rows: list[Any]) -> None:
        """The errors of all labelled requests."""
        with self._lock:
            self._watch.set_errors([tuple(row) for row in rows])
            self._changed = True

    def _note_progress(self, query: Any) -> None:
        """Note how many records have come, and how many of them were late."""
        if not str(query.name).endswith("requests"):
            return
        recent: dict[tuple[str, int], tuple[int, int]] = {}
        for progress in query.recentProgress:
            progress = progress if isinstance(progress, Mapping) else json.loads(progress.json)
            late = sum(int(one.get("numRowsDroppedByWatermark") or 0) for one in progress["stateOperators"])
            recent[str(progress["runId"]), int(progress["batchId"])] = int(progress["numInputRows"]), late
        for batch in self._recent.keys() - recent.keys():
            came, late = self._recent[batch]
            self._came, self._late = self._came + came, self._late + late
        self._recent = recent

    # -- events

    def _tell_if_due(self) -> None:
        now = time.monotonic()
        with self._lock:
            if self._changed and now - self._told >= max(EVENT_SECONDS, (now - self._began) / EVENTS_PER_AGE):
                self._tell()

    def _tell(self) -> None:
        self._told, self._changed = time.monotonic(), False
        watch = self._watch
        things, error = watch.things(), watch.error()
        _, rows = watch.newest()
        self._count_left_out()
        metric = self._monitor.error
        if error is not None:
            error = {**error, "name": metric.name, "before": metric.before}
        reasons = self._reasons(things, error)
        advice = {"reasons": reasons, "cell": self._monitor.cell} if reasons else None
        self.journal.report(
            events.make(
                "watch",
                events.JOB,
                model=self._monitor.model,
                log=self._source.uri,
                window=self._seconds,
                rows=rows,
                wanted=ROWS,
                totals=dict(watch.totals),
                lines=watch.lines(self._seconds, time.time()),
                things=things[:SHOWN],
                hidden=max(0, len(things) - SHOWN),
                bounds={"drift": drift.DRIFT, "severe": drift.SEVERE},
                error=error,
                advice=advice,
            )
        )
        self._alert(things)
        if reasons and "; ".join(reasons) != self._advised:
            self._advised = "; ".join(reasons)
            self.journal.notice("warning", "train again: %s" % self._advised)

    def _count_left_out(self) -> None:
        """How many records were late or doubles since the start: what went in, less what was counted."""
        totals, before = self._watch.totals, self._at_start
        came = self._came + sum(count for count, _ in self._recent.values())
        late = self._late + sum(late for _, late in self._recent.values())
        counted_ = sum(totals[name] - before.get(name, 0) for name in ("requests", "unreadable"))
        totals["late"] = before.get("late", 0) + late
        totals["double"] = before.get("double", 0) + max(0, came - late - counted_)

    def _alert(self, things: list[dict[str, Any]]) -> None:
        for thing in things:
            name, level = thing["name"], thing["level"]
            if level != "none" and self._levels.get(name, "none") == "none":
                text = "%s has moved: PSI %.2f over %.2f, in %s"
                rows = sum(thing["now"])
                self.journal.notice(
                    "warning", text % (_of(thing), thing["psi"], thing["threshold"], counted(rows, "row"))
                )
            self._levels[name] = level

    def _reasons(self, things: list[dict[str, Any]], error: Mapping[str, Any] | None) -> list[str]:
        """Why the model should be trained again."""
        found = [
            "%s has drifted from the training data (PSI %.2f, limit %.2f)" % (_of(thing), thing["psi"], drift.SEVERE)
            for thing in things
            if thing["level"] == "severe"
        ]
        if len(found) > 3:
            found = [*found[:3], "%d more" % (len(found) - 3)]
        before = None if error is None else error["before"]
        if error is None or before is None:
            return found
        if drift.error_rose(before, error["mean"], error["spread"], error["rows"]):
            found.append("the error rose from %.3g to %.3g (%s)" % (before, error["mean"], error["name"]))
        return found

    # -- for the labels

    @property
    def session(self) -> Any:
        return self._session

    @property
    def monitor(self) -> MonitorSpec:
        return self._monitor

    def requests(self, of_stream: bool) -> Any:
        """The requests of the log, once more."""
        read = sources.stream if of_stream else sources.table
        return self._counter.requests(read(self._session, self._source), self._monitor.delay)

    def errors(self, pairs: Any) -> Any:
        kind = self._monitor.error.kind
        return labels.errors(pairs, self._reference["outputs"][0], kind, self._seconds)

    def started(self, frame: Any, function: Callable[[Any, int], None]) -> Any:
        return self._started(frame, "labels", function)


class _Stream:
    """A stream, and when it is started again."""

    def __init__(self, start: Callable[[], Any]) -> None:
        self._start = start
        self.query = start()
        self.done = False
        self.failures = 0
        self.again: float | None = None

    def start(self) -> None:
        self.query, self.again = self._start(), None

    def end(self, until: float) -> None:
        """Stop it after the batch that it is in, and at `until` of the monotonic clock at the latest."""
        while self.query.isActive and self.query.status["isTriggerActive"] and time.monotonic() < until:
            time.sleep(0.1)
        self.query.stop()

    def pause(self) -> float:
        """It has ended: returns after how many seconds it is started again."""
        pause = min(MOST_AGAIN_SECONDS, AGAIN_SECONDS * 2.0 ** min(self.failures, 10))
        self.failures += 1
        self.again = time.monotonic() + pause
        return pause

    def waits(self) -> bool:
        return self.again is not None and time.monotonic() < self.again


class _Labels:
    """--labels of a monitor: a source of JSON objects, which is streamed, or a DataFrame of the session."""

    def __init__(self, job: MonitorJob, text: str | None, namespace: Mapping[str, Any]) -> None:
        self._job, self._frame = job, namespace.get(text or "")
        self._source = None
        self._joined = -1e9
        if text and self._frame is None:
            self._source = sources.read("--labels", text)
        elif self._frame is not None and not {"id", "label"} <= set(self._frame.columns):
            raise ValueError("--labels %s: it needs the columns id and label" % text)
        if text and not job._reference["outputs"]:
            raise ValueError("--labels: the reference knows no output of the model, so that nothing can be compared")

    def starts(self) -> list[Callable[[], Any]]:
        return [] if self._source is None else [self._start]

    def _start(self) -> Any:
        job = self._job
        assert self._source is not None
        true = labels.labels_of(sources.stream(job.session, self._source))
        pairs = labels.joined(job.requests(of_stream=True), true, job.monitor.label_delay)
        return job.started(pairs, lambda batch, number: job.add_errors(number, job.collected(job.errors(batch))))

    def join_if_due(self) -> None:
        if self._frame is not None and time.monotonic() - self._joined >= LABELS_SECONDS:
            self.join_now()

    def join_now(self) -> None:
        if self._frame is None:
            return
        self._joined = time.monotonic()
        job = self._job
        true = self._frame.selectExpr("CAST(id AS STRING) AS label_id", "CAST(label AS STRING) AS label")
        pairs = job.requests(of_stream=False).join(true.dropDuplicates(["label_id"]), on=_same_id())
        job.replace_errors(job.collected(job.errors(pairs)))


def _same_id() -> Any:
    from pyspark.sql import functions as F

    return F.expr("id = label_id")


class _Folder:
    """The checkpoint's folder, on the cluster's storage: Spark's own, and the counts."""

    def __init__(self, sc: Any, uri: str) -> None:
        """uri: a path below the user's home on the default file system, where it is relative."""
        jvm = sc._jvm
        self._jvm, conf = jvm, sc._jsc.hadoopConfiguration()
        path = jvm.org.apache.hadoop.fs.Path(uri)
        self._fs = path.getFileSystem(conf)
        self._path = self._fs.makeQualified(path)

    def inside(self, name: str) -> str:
        return "%s/%s" % (self._path.toString(), name)

    def _at(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._path, name)

    def _numbers(self) -> list[int]:
        if not self._fs.exists(self._path):
            return []
        names = [status.getPath().getName() for status in self._fs.listStatus(self._path)]
        return sorted(int(name[len("counts-") : -len(".json")]) for name in names if name.startswith("counts-"))

    def read(self) -> dict[str, Any]:
        """The newest state, or an empty one."""
        numbers = self._numbers()
        if not numbers:
            return {}
        stream = self._fs.open(self._at(STATE % numbers[-1]))
        try:
            text = self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
        finally:
            stream.close()
        found: dict[str, Any] = json.loads(text)
        return found

    def write(self, state: Mapping[str, Any]) -> None:
        """Write the state whole: under another name first."""
        numbers = self._numbers()
        number = numbers[-1] + 1 if numbers else 0
        part = self._at(".counts-%d.%d.part" % (number, os.getpid()))
        stream = self._fs.create(part, True)
        try:
            stream.write(bytearray(json.dumps(state).encode("utf-8")))
        finally:
            stream.close()
        if not self._fs.rename(part, self._at(STATE % number)):
            raise OSError("%s cannot be written" % self.inside(STATE % number))
        for old in numbers[:-1]:
            self._fs.delete(self._at(STATE % old), False)


def _of(thing: Mapping[str, Any]) -> str:
    name = str(thing["name"])
    return "the output %s" % name if thing["output"] and name != "output" else name


def _explained(version: str, message: str) -> str:
    if "Failed to find data source: kafka" in message or "DATA_SOURCE_NOT_FOUND" in message:
        package = sources.kafka_package(version)
        return "this session has no Kafka source: start it with spark.jars.packages=%s" % package
    return message
