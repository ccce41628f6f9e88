"""The driver's memory of a run's events: numbered without gaps, merged while nobody reads, read in bounded replies.

Buckets of steps that no reader has seen yet are merged with the next bucket of the same rank and epoch, so that a
reader that polls once a second gets one bucket a rank, and a run that nobody watches does not fill the driver's memory:
no step is lost, only resolution.
"""

import json
import threading

from . import events

#: Buckets longer than this are not merged further, in seconds of training, until the log has `COARSER_AFTER` events.
BUCKET_SECONDS = 1.0
COARSER_AFTER = 10_000
MAX_TEXT_CHARACTERS = 10_000


def merge_steps(first, second):
    """Two consecutive buckets of one rank as one."""
    merged = dict(second)
    merged["step"] = first["step"]
    for field in ("count", "rows", "seconds", "compute", "wait"):
        merged[field] = first[field] + second[field]
    for field in ("copy", "wire"):
        if field in second:
            merged[field] = first.get(field, 0.0) + second[field]
    merged["metrics"] = dict(first["metrics"], **second["metrics"])
    return merged


class EventLog:
    """Events of one run. `append` takes what `events.make` returns; `read` numbers them. Thread-safe."""

    def __init__(self, run):
        self._run = run
        self._sealed = []  # JSON texts: a fifth of the memory of what they say
        self._pending = []
        self._open_bucket = {}  # rank -> index in _pending of its last bucket of steps
        self._lock = threading.Lock()

    def append(self, event, attempt=0):
        event = dict(event, run=self._run, attempt=attempt)
        with self._lock:
            if event["kind"] == "steps" and self._merge(event):
                return
            if event["kind"] == "log":
                event["text"] = event["text"][-MAX_TEXT_CHARACTERS:]
            self._pending.append(event)

    def _merge(self, event):
        rank = event["rank"]
        at = self._open_bucket.get(rank)
        if at is not None:
            last = self._pending[at]
            longest = BUCKET_SECONDS * 2 ** (len(self._sealed) // COARSER_AFTER)
            same = (last["fit"], last["epoch"], last["attempt"]) == (event["fit"], event["epoch"], event["attempt"])
            if same and last["seconds"] + event["seconds"] <= longest:
                self._pending[at] = merge_steps(last, event)
                return True
        self._open_bucket[rank] = len(self._pending)
        return False

    def read(self, after, limit_bytes):
        """Events numbered above `after`, each as JSON, at most `limit_bytes` of it (but one event at least).

        Returns (texts, more): `more` says that there are further ones.
        """
        with self._lock:
            for event in self._pending:
                event["seq"] = len(self._sealed) + 1
                self._sealed.append(json.dumps(event))
            self._pending = []
            self._open_bucket = {}
            tail = self._sealed[max(0, after) :]
        chosen, used = [], 0
        for event in tail:
            used += len(event) + 2
            if chosen and used > limit_bytes:
                break
            chosen.append(event)
        return chosen, len(chosen) < len(tail)


def state(name, message, **fields):
    """A change of the run's state, by the driver."""
    return events.make("state", events.JOB, state=name, message=message, **fields)
