"""--labels of a monitor: a source of JSON objects, which is streamed, or a DataFrame of the session."""

from __future__ import annotations

import time
from typing import Any, Callable, Mapping

from ..monitoring import sources
from ..monitoring.reference import Reference
from .monitor_counts import StoredCounts
from .monitor_queries import MonitorQueries

#: Between two joins of a DataFrame of labels with the log.
LABELS_SECONDS = 60.0


class MonitorLabels:
    """The labels of requests, and the errors that they make known. Raises ValueError, one line."""

    def __init__(
        self,
        queries: MonitorQueries,
        counts: StoredCounts,
        reference: Reference,
        text: str | None,
        namespace: Mapping[str, Any],
    ) -> None:
        """text: of --labels, or None. namespace: the session's variables."""
        self._queries, self._counts = queries, counts
        self._frame, self._source = namespace.get(text or ""), None
        self._joined_at = -1e9
        if text and self._frame is None:
            self._source = sources.read("--labels", text)
        elif self._frame is not None and not {"id", "label"} <= set(self._frame.columns):
            raise ValueError("--labels %s: it needs the columns id and label" % text)
        if text and not reference["outputs"]:
            raise ValueError("--labels: the reference knows no output of the model, so that nothing can be compared")

    def starts(self) -> list[Callable[[], Any]]:
        """What starts the streams of the labels."""
        return [] if self._source is None else [self._start]

    def _start(self) -> Any:
        def add(batch: Any, number: int) -> None:
            self._counts.add_errors(number, self._queries.errors(batch))

        return self._queries.start(self._queries.labelled_requests(self._source), "labels", add)

    def join_if_due(self) -> None:
        if self._frame is not None and time.monotonic() - self._joined_at >= LABELS_SECONDS:
            self.join_now()

    def join_now(self) -> None:
        if self._frame is None:
            return
        from pyspark.sql import functions as F

        self._joined_at = time.monotonic()
        labels = self._frame.selectExpr("CAST(id AS STRING) AS label_id", "CAST(label AS STRING) AS label")
        labelled = self._queries.stored_requests().join(labels.dropDuplicates(["label_id"]), on=F.expr("id = label_id"))
        self._counts.replace_errors(self._queries.errors(labelled))
