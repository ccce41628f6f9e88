"""A monitor on the driver: a Spark stream counts what is logged of a model in use, and its events say what has moved.

A batch of the stream is counted once: its counts and its number are written to the checkpoint's folder before Spark
marks it as done, and a batch whose number is there is not added again (monitor_counts.py). A stream that ends by itself
is started again, from the checkpoint (monitor_stream.py).
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any, Callable, Mapping, cast

from .. import events
from ..checkpoints.checkpoint_files import CheckpointFiles
from ..monitoring import sources
from ..monitoring.counting import Counter
from ..monitoring.reference import Reference
from ..run_spec import RunSpec
from ..spark import jvm_gateway, spark_error
from ..wording import counted
from . import run_result
from .journal import Journal
from .monitor_arrivals import Arrivals
from .monitor_counts import StoredCounts
from .monitor_folder import CountsFolder
from .monitor_labels import MonitorLabels
from .monitor_lock import CheckpointLock
from .monitor_queries import MonitorQueries
from .monitor_report import MonitorReport
from .monitor_stream import MonitorStream
from .run_files import RunFiles

#: How often the monitor's thread looks at its streams.
LOOK_SECONDS = 0.5
#: For the batch that a stream is in when it is stopped. What it would have counted is counted after a restart.
STOP_SECONDS = 10.0


class MonitorJob:
    """A run that trains nothing, with the public names of `Job`: it takes no slot, and has no checkpoints to resume."""

    def __init__(self, session: Any, spec: RunSpec, namespace: Mapping[str, Any]) -> None:
        """Raises `BadSource` or `ValueError`, one line. namespace: the session's variables, for --labels."""
        assert spec.monitor is not None
        self.spec, self.workers = spec, 0
        self.journal = Journal(spec.run)
        self.files = RunFiles(spec, self.journal)
        self.checkpoints = CheckpointFiles(lambda text: self.journal.notice("warning", text))
        self._monitor, self._group = spec.monitor, "ddl_magics " + spec.run
        reference = cast("Reference", spec.monitor.reference)
        counter = Counter(reference, float(spec.monitor.window))
        warn = lambda text: self.journal.notice("warning", text)  # noqa: E731
        folder = CountsFolder(jvm_gateway.separate_context(session.sparkContext), spec.monitor.checkpoint, warn)
        self._counts = StoredCounts(reference, counter, folder)
        self._queries = MonitorQueries(session, spec.monitor, reference, counter, self._group, folder.inside)
        self._labels = MonitorLabels(self._queries, self._counts, reference, spec.monitor.labels, namespace)
        self._arrivals = Arrivals()
        self._report = MonitorReport(spec.monitor, self._queries.log.uri, self.journal, self._counts, self._arrivals)
        self._stopping = threading.Event()
        self._reason = ""
        self._lock = CheckpointLock(folder, spec.run)

    def start(self) -> None:
        self.journal.enter(events.PREFLIGHT, "opening the checkpoint")
        threading.Thread(target=self._run, name=self._group, daemon=True).start()

    def stop(self, reason: str = "") -> None:
        if self.journal.state in events.TERMINAL or self._stopping.is_set():
            return
        self._reason = reason
        self.journal.enter(events.STOPPING, "the stream ends after its batch, or in %g s" % STOP_SECONDS)
        self._stopping.set()

    def forget(self) -> None:
        self._stopping.set()
        self.files.remove()

    def _run(self) -> None:
        """The monitor's thread."""
        try:
            self._watch()
        finally:
            self._lock.release()

    def _watch(self) -> None:
        counts = self._counts
        try:
            counts.load()
            if counts.watch.batch >= 0:
                requests = counted(counts.watch.totals["requests"], "request")
                self.journal.notice("info", "continues after %s" % requests)
            self._arrivals.begin(counts.watch.totals)
            self._follow()
            with counts.lock:
                self._report.report()
                counts.store()
            requests = counted(counts.watch.totals["requests"], "request")
            self._lock.release()  # before the end is told: another one may begin then
            if self._stopping.is_set():
                self.journal.enter(events.STOPPED, "stopped%s after %s" % (self._reason, requests))
            else:
                self.journal.enter(events.FINISHED, "caught up with %s" % requests)
        except Exception as error:  # Spark's and Py4J's, of many kinds
            message = _explained(self._queries.spark_version, spark_error.cause(error))
            result = run_result.failed_job("spark", message)
            assert result.failure is not None
            self._lock.release()
            self.journal.enter(result.state, result.message, failure=result.failure.to_json())

    def _follow(self) -> None:
        """Keep the streams running until a stop, or with --once until all is counted."""
        starts: list[Callable[[], Any]] = [self._start_counting, *self._labels.starts()]
        streams: list[MonitorStream] = []
        try:
            for start in starts:
                warn = lambda text: self.journal.notice("warning", text)  # noqa: E731
                streams.append(MonitorStream(start, self._monitor.once, warn))
            self.journal.enter(events.RUNNING, "watching %s" % self._queries.log.uri)
            while not self._stopping.wait(LOOK_SECONDS):
                for stream in streams:
                    if not stream.done and not stream.paused:
                        self._arrivals.note(stream.query)
                        stream.look()
                if all(stream.done for stream in streams):
                    return self._labels.join_now()
                self._labels.join_if_due()
                self._lock.renew()
                self._report.report_if_due()
        finally:
            until = time.monotonic() + STOP_SECONDS
            with contextlib.ExitStack() as ending:  # all are ended, also where one raises
                for stream in streams:
                    ending.callback(stream.end, until)

    def _start_counting(self) -> Any:
        def add(batch: Any, number: int) -> None:
            self._counts.add(number, lambda: self._queries.counts(batch))

        return self._queries.start(self._queries.streamed_requests(), "requests", add)


def _explained(version: str, message: str) -> str:
    if "Failed to find data source: kafka" in message or "DATA_SOURCE_NOT_FOUND" in message:
        package = sources.kafka_package(version)
        return "this session has no Kafka source: start it with spark.jars.packages=%s" % package
    return message
