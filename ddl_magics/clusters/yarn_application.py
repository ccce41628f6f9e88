"""What a Livy session, or a batch, on YARN waits for, and why it has ended, in the words of YARN: its log has them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence

from ddl_magics.clusters import livy_description
from ddl_magics.clusters.livy_description import DEAD, SessionId
from ddl_magics.clusters.livy_http import LivyHttp
from ddl_magics.runtime.spark import yarn

#: What starts for so long may wait in a queue of YARN: then, how often that is looked up, and told again.
QUEUE_SECONDS, QUEUE_LOOK_SECONDS, REPEAT_SECONDS = 20.0, 5.0, 60.0
#: How long Livy may take to notice that an application has ended: it asks YARN every 5 s.
NOTICE_SECONDS = 12.0
LOOK_SECONDS = 1.0

_REPORT = re.compile(r"Application report for (application_\d+_\d+) \(state: (\w+)\)")
_QUEUE = re.compile(r"^\s*queue: (\S+)")
#: The line before YARN's words, and the words themselves as `spark-submit` prints them.
_DIAGNOSTICS, _PRINTED = "YARN Diagnostics:", "diagnostics: "
#: What YARN says once the driver has its container.
_LAUNCHED = "AM container is launched"
_USED_CAPACITY = re.compile(r"Queue's Absolute used capacity = ([\d.]+) %")


def waiting(log: Sequence[str]) -> str | None:
    """In one line, which application waits in which queue of YARN, and why; None if none waits."""
    reports = [report for line in log if (report := _REPORT.search(line))]
    printed = [line.partition(_PRINTED)[2].strip() for line in log if _PRINTED in line]
    told = _diagnostics(log)  # of now: what was printed is as old as the application
    words = " ".join(printed[-1:] if told is None else told)
    if not reports or reports[-1][2] != "ACCEPTED" or words in ("", "N/A") or _LAUNCHED in words:
        return None
    queues = [queue[1] for line in log if (queue := _QUEUE.match(line))]
    used_capacity = _USED_CAPACITY.search(words)
    queue_words = f"queue {queues[-1]}" if queues else "its queue"
    filled = f", {float(used_capacity[1]):.0f} % of which is used" if used_capacity else ""
    return f"{reports[-1][1]} waits in {queue_words} of YARN{filled}: {yarn.short(words)}"


class Queue:
    """Whether what starts waits in a queue of YARN: the first line after `QUEUE_SECONDS`, then each minute.

    ask_log: returns the newest lines of its log. waiting: the newest line; "" while it does not wait. waited: whether
    it has.
    """

    def __init__(self, ask_log: Callable[[], Sequence[str]], report: Callable[[str], None]) -> None:
        self.waiting, self.waited = "", False
        self._ask_log, self._report = ask_log, report
        self._began = time.monotonic()
        self._look_at, self._report_at = self._began + QUEUE_SECONDS, self._began

    def look(self) -> None:
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + QUEUE_LOOK_SECONDS
        self.waiting = waiting(self._ask_log()) or ""
        self.waited = self.waited or bool(self.waiting)
        if self.waiting and now >= self._report_at:
            self._report_at = now + REPEAT_SECONDS
            self._report(f"after {now - self._began:.0f} s, {self.waiting}")

    @property
    def advice(self) -> str:
        """What a session is that has waited too long, and that Livy does not take out of the queue with the session."""
        if not self.waiting:
            return ""
        application = self.waiting.partition(" ")[0]
        return f" {self.waiting}. It stays there: `yarn application -kill {application}` takes it out."

    @property
    def given_up(self) -> str:
        """Why a session is dead that was waiting; "" where it was not."""
        limit = "longer than its Livy lets a session start (livy.rsc.server.connect.timeout, 90 s unless set)"
        remedy = "ask for less with session_configs in sparkmagic's config.json, or end other sessions"
        return f"{self.waiting}, {limit}: {remedy}" if self.waiting else ""


def end_reason(log: Sequence[str], application: str) -> str:
    """In one line, why YARN has ended the application, and where its logs are."""
    return yarn.end_words(" ".join(_diagnostics(log) or ()), application)


def why_ended(http: LivyHttp, session_id: SessionId) -> str:
    """The same of a session; "" if it is not on YARN, or Livy has forgotten it. Waits until Livy knows the end, for
    `NOTICE_SECONDS` at most.
    """
    path, deadline = livy_description.path_of(session_id), time.monotonic() + NOTICE_SECONDS
    try:
        while True:
            description = http.get(path)
            application = str(description.get("appId") or "")
            if not application.startswith("application_"):
                return ""
            if description.get("state") in DEAD or time.monotonic() > deadline:
                return end_reason(http.get(f"{path}/log?size=200")["log"], application)
            time.sleep(LOOK_SECONDS)
    except (ConnectionError, ProcessLookupError, AttributeError, KeyError, TypeError, ValueError):
        return ""


def reason(log: Sequence[str]) -> str:
    """YARN's newest words on the application; "" if Livy has none."""
    return yarn.short(" ".join(_diagnostics(log) or ()))


def _diagnostics(log: Sequence[str]) -> list[str] | None:
    """The lines behind the last "YARN Diagnostics:" of the log; None where it has none."""
    starts = [index for index, line in enumerate(log) if line.strip() == _DIAGNOSTICS]
    return [line.strip() for line in log[starts[-1] + 1 :] if line.strip()] if starts else None
