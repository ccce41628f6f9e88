"""How many records of the log have come to a monitor, and how many of them were late or doubles."""

from __future__ import annotations

import json
from typing import Any, Mapping

#: Late records of a batch that are worth a notice, where they are most of it.
NOTABLE_LATE = 10


class Arrivals:
    """Sums up what Spark says of each batch, also beyond the batches that Spark still knows."""

    def __init__(self) -> None:
        self._at_start: dict[str, int] = {}
        #: (records, late ones) of the batches that Spark still knows; and the sums of those before.
        self._recent: dict[tuple[str, int], tuple[int, int]] = {}
        self._records = self._late = 0
        #: (late ones, records) of the newest batch with records, where most of its records were late; else None.
        self.late_batch: tuple[int, int] | None = None

    def begin(self, totals: Mapping[str, int]) -> None:
        """The monitor starts, with these totals."""
        self._at_start = dict(totals)

    def note(self, query: Any) -> None:
        """Note the batches of the stream of requests."""
        if not str(query.name).endswith("requests"):
            return
        recent: dict[tuple[str, int], tuple[int, int]] = {}
        for progress in query.recentProgress:
            progress = progress if isinstance(progress, Mapping) else json.loads(progress.json)
            late = sum(int(state.get("numRowsDroppedByWatermark") or 0) for state in progress["stateOperators"])
            recent[str(progress["runId"]), int(progress["batchId"])] = int(progress["numInputRows"]), late
        for batch in sorted(recent.keys() - self._recent.keys(), key=lambda batch: batch[1]):
            records, late = recent[batch]
            if records:
                is_notable = late >= NOTABLE_LATE and 2 * late > records
                self.late_batch = (late, records) if is_notable else None
        for batch in self._recent.keys() - recent.keys():
            records, late = self._recent[batch]
            self._records, self._late = self._records + records, self._late + late
        self._recent = recent

    def count_in(self, totals: dict[str, int]) -> None:
        """Set "late" and "double" of the totals: what came since the start, less what was counted."""
        before = self._at_start
        records = self._records + sum(count for count, _ in self._recent.values())
        late = self._late + sum(count for _, count in self._recent.values())
        counted = sum(totals[name] - before.get(name, 0) for name in ("requests", "unreadable"))
        totals["late"] = before.get("late", 0) + late
        totals["double"] = before.get("double", 0) + max(0, records - late - counted)
