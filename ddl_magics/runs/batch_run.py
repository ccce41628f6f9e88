"""A batch of Livy as a stored run: the command that has submitted it may follow it, and Livy is asked for its state."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ddl_magics import store
from ddl_magics.clusters import livy_description, sparkmagic_link
from ddl_magics.clusters.livy_batch import Batch, outcome
from ddl_magics.clusters.livy_description import DEAD
from ddl_magics.clusters.livy_http import Gone, LivyHttp
from ddl_magics.clusters.livy_session import NoSession
from ddl_magics.runs.ending import REACH_SECONDS, Ending
from ddl_magics.runtime import events as ev
from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.store import RunFolder, RunRecord
from ddl_magics.store.owner import HEARTBEAT_SECONDS

#: How long Livy may take to tell the state of a batch, for a list of runs.
ASK_SECONDS = 5.0

_PROBLEMS = (NoSession, ConnectionError, TimeoutError, ProcessLookupError, KeyError, TypeError, ValueError)


class BatchRun:
    """The folder of a batch's run, for the process that writes it."""

    def __init__(self, folder: RunFolder, record: RunRecord | None = None) -> None:
        """record: None for a new run."""
        self.folder = folder
        self._number = sum(1 for _ in folder.lines())  # of its events so far
        self._told = ("", "") if record is None else (record.state, record.message)
        self._heartbeat_at = 0.0

    @classmethod
    def create(cls, spec: RunSpec) -> BatchRun:
        """Of a run that is about to be submitted. Raises OSError, ValueError."""
        return cls(store.create_run(spec, "Livy", {}))

    def submitted(self, batch: Batch) -> None:
        address = {"livy": batch.http.url, "batch": batch.id}
        self.folder.update({"cluster": f"Livy {batch.name}", "place": address})
        self.enter(ev.SUBMITTED)

    def enter(self, state: str, message: str = "") -> None:
        """The run is in this state, whether it has been before or not."""
        if (state, message) != self._told:
            self._told, self._number = (state, message), self._number + 1
            event = {**ev.make(ev.State.kind, ev.JOB, state=state, message=message), "seq": self._number}
            self.folder.append([{**event, "run": self.folder.path.name, "attempt": 0}])
            ended = time.time() if state in ev.TERMINAL else None
            self.folder.update({"state": state, "message": message, "ended": ended})

    def follow(self, state: str, message: str) -> None:
        """As `enter`, for the process that created the run and follows it."""
        self.enter(state, message)
        if time.monotonic() > self._heartbeat_at:
            self._heartbeat_at = time.monotonic() + HEARTBEAT_SECONDS
            self.folder.heartbeat()


def refreshed(records: Iterable[RunRecord]) -> list[RunRecord]:
    """The runs; those of batches that have not ended, and that no command follows, as Livy says now."""
    silent: set[str] = set()  # a Livy that does not answer is asked once
    return [_refreshed(record, silent) for record in records]


def _refreshed(record: RunRecord, silent: set[str]) -> RunRecord:
    folder, livy = RunFolder(record.folder), str(record.driver_address.get("livy"))
    if not record.is_batch or record.over or livy in silent or folder.has_live_owner():
        return record
    run = BatchRun(folder, record)
    try:
        batch = _batch(record)
        state = livy_description.read(batch.http.get(batch.path, ASK_SECONDS)).state
        ended = outcome(batch, state) if state in DEAD else None
    except Gone:
        run.enter(ev.LOST, f"its Livy does not have batch {record.driver_address['batch']} any more")
    except _PROBLEMS as error:
        silent.add(livy)
        return replace(record, message=f"its batch could not be asked: {error}")
    else:
        if ended is None:
            run.enter(ev.RUNNING if state == "running" else ev.SUBMITTED)
        else:
            run.enter(ended.state, ended.error)
    return folder.record() or record


def _batch(record: RunRecord) -> Batch:
    address: Any = record.driver_address
    http = LivyHttp(sparkmagic_link.connection(None, str(address["livy"])))
    return Batch(http, livy_description.checked_id(address["batch"]))


def end(record: RunRecord) -> Ending:
    """Delete the batch of a run, which ends it at once."""
    (record,) = refreshed([record])
    if record.over:
        return Ending("ended", f"{record.name} has ended already: {record.state}.")
    folder = RunFolder(record.folder)
    followed = folder.has_live_owner()
    folder.request("stop")
    try:
        batch = _batch(record)
        batch.delete(REACH_SECONDS)
    except Gone:
        pass  # deleted meanwhile
    except _PROBLEMS as error:
        address = record.driver_address
        how = f"Or ask it yourself: DELETE {address.get('livy')}/batches/{address.get('batch')}"
        return Ending("runs", f"{record.name} may still train, as its batch could not be deleted: {error}", how)
    gone = "its batch is deleted, which ends it at once: there is no model of it"
    if followed:
        return Ending("asked", f"{record.name} stops: {gone}.")
    BatchRun(folder, record).enter(ev.STOPPED, f"stopped: {gone}")
    return Ending("stopped", f"{record.name} is STOPPED: {gone}.")
