"""What a monitor has Spark do: read the log of requests, stream it, and collect what was counted."""

from __future__ import annotations

import threading
from typing import Any, Callable

from ..monitoring import labels, sources
from ..monitoring.counting import Counter
from ..monitoring.reference import Reference
from ..run_spec import MonitorSpec
from ..spark import jvm_gateway

#: How often a stream looks for new records, where --every does not say.
TRIGGER_SECONDS = 2.0


class MonitorQueries:
    """Queries of one monitor. Raises `BadSource` for a log that cannot be one. Thread-safe."""

    def __init__(
        self,
        session: Any,
        spec: MonitorSpec,
        reference: Reference,
        counter: Counter,
        group: str,
        checkpoint_of: Callable[[str], str],
    ) -> None:
        """group: of the Spark jobs. checkpoint_of(name): the folder for Spark's checkpoint of a stream."""
        self.log = sources.read("--log", spec.log)
        self._session = session.newSession()
        sc = session.sparkContext
        self._session.conf.set("spark.sql.shuffle.partitions", str(max(2, min(64, sc.defaultParallelism))))
        self._sc = jvm_gateway.separate_context(sc)
        self._spec, self._reference, self._counter = spec, reference, counter
        self._group, self._checkpoint_of = group, checkpoint_of
        self._collecting = threading.Lock()

    @property
    def spark_version(self) -> str:
        return str(self._session.version)

    def streamed_requests(self) -> Any:
        return self._counter.requests(sources.stream(self._session, self.log), self._spec.delay)

    def stored_requests(self) -> Any:
        """All requests of the log so far."""
        return self._counter.requests(sources.table(self._session, self.log), self._spec.delay)

    def labelled_requests(self, source: Any) -> Any:
        """The streamed requests with the labels of another stream."""
        stream = labels.labels_of(sources.stream(self._session, source))
        return labels.joined(self.streamed_requests(), stream, self._spec.label_delay)

    def counts(self, requests: Any) -> list[Any]:
        return self._collected(self._counter.counts(requests))

    def errors(self, labelled: Any) -> list[Any]:
        """The errors of labelled requests."""
        output, kind = self._reference["outputs"][0], self._spec.error.kind
        return self._collected(labels.errors(labelled, output, kind, float(self._spec.window)))

    def start(self, frame: Any, name: str, on_batch: Callable[[Any, int], None]) -> Any:
        """Start a stream of the frame. on_batch(rows, number): called for each batch. Returns Spark's query."""
        writer = frame.writeStream.foreachBatch(on_batch).option("checkpointLocation", self._checkpoint_of(name))
        writer = writer.queryName("%s %s" % (self._group, name))
        if self._spec.once:
            available_now = tuple(map(int, self.spark_version.split(".")[:2])) >= (3, 3)
            return writer.trigger(**({"availableNow": True} if available_now else {"once": True})).start()
        return writer.trigger(processingTime="%g seconds" % float(self._spec.every or TRIGGER_SECONDS)).start()

    def _collected(self, frame: Any) -> list[Any]:
        """The rows of a small DataFrame."""
        with self._collecting:
            rdd = jvm_gateway.dataframe_rdd(frame, self._sc, self._group)
            return list(jvm_gateway.collect(rdd, self._group, "requests of a monitor"))
