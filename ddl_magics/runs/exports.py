"""A run for other tools: what `history/tensorboard.py` and `history/mlflow.py` write of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ddl_magics.errors import NotInRun
from ddl_magics.history import provenance, tensorboard
from ddl_magics.history.exported import Exported
from ddl_magics.history.scalars import parameters, scalars
from ddl_magics.options.line import cell_of
from ddl_magics.options.redaction import masked, masked_source
from ddl_magics.runs.cell_files import cell_files
from ddl_magics.runtime import events as ev
from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.store import RunRecord, find_run

if TYPE_CHECKING:
    from ddl_magics.runs.run import Run


def to_tensorboard(run: Run, folder: str | Path) -> Path:
    """Write a run below `folder`, in a folder of its own; as `Run.to_tensorboard`."""
    home = Path(tensorboard.run_folder(str(Path(folder).expanduser()), run.name, run.id))
    return tensorboard.write(home, for_others(run))


def for_others(run: Run) -> Exported:
    """A run for other tools."""
    record = find_run(run.id)
    if record is None:
        raise NotInRun(f"{run.name} is not in the store any more.")
    return exported(run.spec, record, run.events)


def exported(spec: RunSpec, record: RunRecord, events: Sequence[ev.RawEvent]) -> Exported:
    """The same of a run with these events, which has its models and the files of its cell on this machine."""
    stored = [path for path in sorted((record.folder / "files").glob("*")) if not path.name.startswith(".")]
    written = [file.path for file in cell_files(events).values() if file.path is not None and file.path.is_file()]
    files = [*stored, *written]
    elsewhere = [event.uri for event in ev.select(ev.Artifact, events) if event.uri is not None]
    checkpoints = [f"{spec.checkpoint.rstrip('/')}/{spec.run}"] if spec.checkpoint else []
    return Exported(
        record,
        parameters(spec),
        scalars(events),
        provenance.read(record.folder),
        files,
        [*map(str, files), *elsewhere, *checkpoints],
        {"cell.py": _cell(spec)},
    )


def _cell(spec: RunSpec) -> str:
    """The cell with its options, without what may be a secret."""
    shown = dataclasses.replace(spec, set=masked(spec.set or {}), cell=masked_source(spec.cell))
    return cell_of(shown, spec.name)
