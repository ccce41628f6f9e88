"""Searches on disk: a folder for each beside those of the runs, with its record and its Optuna study.

As with runs, only the kernel that owns a search writes, except for requests in `control/`. A search whose owner died
reads as LOST. Its trials are runs: `parent` of their spec is its id.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ddl_magics.options.redaction import masked
from ddl_magics.runtime import events as ev
from ddl_magics.runtime.run_spec import RunSpec, under_current_names
from ddl_magics.store import run_record
from ddl_magics.store.files import make_private, write_atomically
from ddl_magics.store.owned_folder import OwnedFolder, RunInUse, read_object, read_to_change
from ddl_magics.store.run_folder import RUN_ID, RunFolder, RunRecord, find_run, list_runs, runs_folder

FORMAT = 1


def searches_folder() -> Path:
    """`ddl_magics/searches` in Jupyter's data folder."""
    return runs_folder().with_name("searches")


@dataclass(frozen=True)
class SearchRecord:
    """`search.json`, read. `state` is LOST if the search has not ended and its owner is dead. Times in seconds."""

    id: str
    name: str
    created: float
    spec: Mapping[str, Any]
    cluster: str
    state: str
    message: str = ""
    notebook: str = ""
    ended: float | None = None
    driver_address: Mapping[str, Any] = field(default_factory=dict)
    #: For the panel's list: number of trials that have ended, best value and its trial, estimated seconds left.
    progress: Mapping[str, Any] = field(default_factory=dict)
    #: Whether `%ddl import` has brought it: its cell may be a stranger's.
    imported: bool = False
    folder: Path = Path()

    @property
    def metric(self) -> str:
        """The first metric of the objective, which "NAME:min" or "NAME:max" names."""
        return str(self.spec.get("objective")).partition(",")[0].rpartition(":")[0]

    @classmethod
    def read(cls, stored: Mapping[str, Any], folder: Path) -> SearchRecord:
        """The record in a `search.json`.

        Raises:
            KeyError, TypeError, ValueError: this version cannot read it.
        """
        created, spec = run_record.moment(stored["created"]), under_current_names(dict(stored["spec"]))
        read = RunSpec.from_record(spec)
        if stored["format"] != FORMAT or stored["state"] not in ev.STATES or created is None:
            raise ValueError("no search of this format")
        if not (read.trials and read.objective and read.run == folder.name):
            raise ValueError("no search")
        return cls(
            id=read.run,
            name=read.name,
            created=created,
            spec=spec,
            cluster=str(stored.get("cluster", "")),
            state=stored["state"],
            message=str(stored.get("message", "")),
            notebook=str(stored.get("notebook", "")),
            ended=run_record.moment(stored.get("ended")),
            driver_address=dict(stored.get("driver_address") or {}),
            progress=_numbers(stored.get("progress")),
            imported=stored.get("imported") is True,
            folder=folder,
        )

    @property
    def over(self) -> bool:
        return self.state in ev.TERMINAL


class SearchFolder(OwnedFolder):
    """The folder of one search, for its owner and for readers."""

    kind = "search"

    @classmethod
    def create(cls, record: Mapping[str, Any]) -> SearchFolder:
        """Make the folder of a new search; `record` has the fields of `SearchRecord` but `id`, `name` and `folder`.

        Raises:
            OSError: the folder cannot be created.
        """
        spec = dict(record["spec"])
        spec["conf"] = masked(spec.get("conf") or {})
        folder = cls(searches_folder() / str(spec["run"]))
        make_private(folder.path.parent)
        folder.path.mkdir(mode=0o700)
        (folder.path / "control").mkdir()
        folder._claim()
        folder.update({"format": FORMAT, **record, "spec": spec})
        return folder

    @property
    def journal(self) -> Path:
        """The file of the Optuna study."""
        return self.path / "study.journal"

    def update(self, changes: Mapping[str, Any]) -> None:
        """Change fields of `search.json`."""
        record = {**read_to_change(self.path / "search.json"), **changes}
        write_atomically(self.path / "search.json", [json.dumps(record, indent=1).encode()])

    @property
    def view_path(self) -> Path:
        """The file that `write_view` writes."""
        return self.path / "view.json"

    def write_view(self, view: Mapping[str, Any]) -> None:
        """Replace the view that the panel draws: see `search/stored_view.py`."""
        text = json.dumps(view, separators=(",", ":"))
        write_atomically(self.view_path, [text.encode()], lasting=False)

    def view(self) -> dict[str, Any]:
        """The view that the panel draws; empty if none is stored."""
        return read_object(self.view_path)

    def record(self) -> SearchRecord | None:
        """The search as it is now; None if the folder has none that this version can read."""
        try:
            record = SearchRecord.read(read_object(self.path / "search.json"), self.path)
        except (KeyError, TypeError, ValueError):
            return None
        if record.over or self.has_live_owner():
            return record
        return replace(record, state=ev.LOST, ended=self._lost_at())

    def take_over(self) -> None:
        """Become the owner of a search that failed or whose owner has died.

        Raises:
            RunInUse: another process is its owner.
        """
        with self._locked():
            record = self.record()
            if record is None or not (record.over or self._is_ours()):
                raise self._in_use()
            self._claim()
            self.update({"state": ev.RUNNING, "message": "", "ended": None})
            (self.path / "control" / "stop").unlink(missing_ok=True)

    def discard(self) -> None:
        """Remove a search that has ended, with its trials.

        Raises:
            RunInUse: the search or one of its trials has not ended.
            OSError: it cannot be removed.
        """
        with self._locked():
            record = self.record()
            if record is not None and not record.over:
                raise RunInUse(f"search {self.path.name} is {record.state}")
            trials = [trial for runs in self.runs().values() for trial in runs]
            living = next((trial for trial in trials if not trial.over), None)
            if living is not None:
                raise RunInUse(f"its run {living.name} is {living.state}")
            for trial in trials:
                RunFolder(trial.folder).discard()
        shutil.rmtree(self.path)

    def runs(self) -> dict[int, list[RunRecord]]:
        """The runs of each trial, oldest first."""
        runs_of_trial: dict[int, list[RunRecord]] = {}
        for record in reversed(list_runs()):
            if record.spec.get("parent") == self.path.name and isinstance(record.spec.get("trial"), int):
                runs_of_trial.setdefault(record.spec["trial"], []).append(record)
        return runs_of_trial


def _numbers(stored: Any) -> dict[str, Any]:
    """The values that are numbers."""
    if not isinstance(stored, dict):
        return {}
    return {name: value for name, value in stored.items() if type(value) in (int, float)}


def list_searches() -> list[SearchRecord]:
    """All readable searches, newest first."""
    try:
        paths = [entry.path for entry in os.scandir(searches_folder()) if RUN_ID.fullmatch(entry.name)]
    except OSError:
        return []
    records = (SearchFolder(Path(path)).record() for path in paths)
    return sorted((r for r in records if r is not None), key=lambda r: (r.created, r.id), reverse=True)


def find_search(name_or_id: str) -> SearchRecord | None:
    """The search with this id, else the newest with this name, unless a run of the same name is newer."""
    search = next((record for record in list_searches() if name_or_id in (record.id, record.name)), None)
    if search is None or search.id == name_or_id:
        return search
    run = find_run(name_or_id)
    return None if run is not None and run.created > search.created else search
