"""What a monitor reports: its counts as events, a notice for what has moved, and the reasons to train again."""

from __future__ import annotations

import time
from typing import Any, Mapping

from .. import events
from ..monitoring import drift
from ..monitoring.windows import MAX_REPORTED, ROWS
from ..run_spec import MonitorSpec
from ..wording import counted
from .journal import Journal
from .monitor_arrivals import Arrivals
from .monitor_counts import StoredCounts

#: Between two events of the kind `watch`, at least; and of a monitor that is so many times older, more.
EVENT_SECONDS, EVENTS_PER_AGE = 2.0, 500


class MonitorReport:
    """uri: of the log. All methods are called in the monitor's thread."""

    def __init__(self, spec: MonitorSpec, uri: str, journal: Journal, counts: StoredCounts, arrivals: Arrivals) -> None:
        self._spec, self._uri, self._journal = spec, uri, journal
        self._counts, self._arrivals = counts, arrivals
        self._began_at = self._reported_at = time.monotonic()
        self._levels: dict[str, str] = {}
        self._advice = ""
        self._says_late = False

    def report_if_due(self) -> None:
        now = time.monotonic()
        with self._counts.lock:
            pause = max(EVENT_SECONDS, (now - self._began_at) / EVENTS_PER_AGE)
            if self._counts.changed and now - self._reported_at >= pause:
                self.report()

    def report(self) -> None:
        """Report the counts. Their lock is held."""
        self._reported_at, self._counts.changed = time.monotonic(), False
        watch = self._counts.watch
        features, error = watch.feature_drifts(), watch.error()
        _, rows = watch.newest()
        self._arrivals.count_in(watch.totals)
        if error is not None:
            error = {**error, "name": self._spec.error.name, "before": self._spec.error.before}
        reasons = _reasons(features, error)
        self._journal.report(
            events.make(
                "watch",
                events.JOB,
                model=self._spec.model,
                log=self._uri,
                window=float(self._spec.window),
                rows=rows,
                wanted=ROWS,
                totals=dict(watch.totals),
                lines=watch.lines(float(self._spec.window), time.time()),
                things=features[:MAX_REPORTED],
                hidden=max(0, len(features) - MAX_REPORTED),
                bounds={"drift": drift.DRIFT, "severe": drift.SEVERE},
                error=error,
                advice={"reasons": reasons, "cell": self._spec.cell} if reasons else None,
            )
        )
        self._warn_of_drift(features)
        self._warn_of_late_records()
        if reasons and "; ".join(reasons) != self._advice:
            self._advice = "; ".join(reasons)
            self._journal.notice("warning", "train again: %s" % self._advice)

    def _warn_of_late_records(self) -> None:
        batch = self._arrivals.late_batch
        if batch is not None and not self._says_late:
            message = (
                "%d of %s of a batch are older than the newest one by more than --late (%s), and are not counted: look "
                "at the clocks of the hosts that log, or start with a larger --late and another --checkpoint"
            )
            self._journal.notice("warning", message % (batch[0], counted(batch[1], "record"), self._spec.delay))
        self._says_late = batch is not None

    def _warn_of_drift(self, features: list[dict[str, Any]]) -> None:
        for feature in features:
            name, level = feature["name"], feature["level"]
            if level != "none" and self._levels.get(name, "none") == "none":
                drifted = "%s has moved: PSI %.2f over %.2f" % (_name_of(feature), feature["psi"], feature["threshold"])
                self._journal.notice("warning", "%s, in %s" % (drifted, counted(sum(feature["now"]), "row")))
            self._levels[name] = level


def _reasons(features: list[dict[str, Any]], error: Mapping[str, Any] | None) -> list[str]:
    """Why the model should be trained again."""
    reasons = [
        "%s has drifted from the training data (PSI %.2f, limit %.2f)"
        % (_name_of(feature), feature["psi"], drift.SEVERE)
        for feature in features
        if feature["level"] == "severe"
    ]
    if len(reasons) > 3:
        reasons = [*reasons[:3], "%d more" % (len(reasons) - 3)]
    before = None if error is None else error["before"]
    if error is None or before is None:
        return reasons
    if drift.error_rose(before, error["mean"], error["spread"], error["rows"]):
        reasons.append("the error rose from %.3g to %.3g (%s)" % (before, error["mean"], error["name"]))
    return reasons


def _name_of(feature: Mapping[str, Any]) -> str:
    name = str(feature["name"])
    return "the output %s" % name if feature["output"] and name != "output" else name
