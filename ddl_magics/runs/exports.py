"""A run for other tools: what `history/tensorboard.py` and `history/mlflow.py` write of it."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import TYPE_CHECKING

from ddl_magics.errors import NotInRun
from ddl_magics.history import mlflow, tensorboard
from ddl_magics.history.scalars import parameters, results, scalars
from ddl_magics.options.line import cell_of
from ddl_magics.options.redaction import masked, masked_source
from ddl_magics.runs.cell_files import cell_files
from ddl_magics.store import find_run

if TYPE_CHECKING:
    from ddl_magics.runs.run import Run


def to_tensorboard(run: Run, folder: str | Path) -> Path:
    """Write a run below `folder`, in a folder of its own; as `Run.to_tensorboard`."""
    home = Path(folder).expanduser() / f"{re.sub(r'[^A-Za-z0-9_.-]+', '_', run.name)}-{run.id}"
    found = results(run.histories)
    return tensorboard.write(home, scalars(run.events), parameters(run.spec), found, _cell(run))


def for_mlflow(run: Run) -> mlflow.Exported:
    """A run for MLflow, with its models, its other artifacts and the files of its cell that are on this machine."""
    record = find_run(run.id)
    if record is None:
        raise NotInRun(f"{run.name} is not in the store any more.")
    stored = [path for path in sorted((record.folder / "files").glob("*")) if not path.name.startswith(".")]
    written = [file.path for file in cell_files(run.events).values() if file.path is not None and file.path.is_file()]
    return mlflow.Exported(
        record,
        parameters(run.spec),
        scalars(run.events),
        run.provenance,
        [*stored, *written],
        {"cell.py": _cell(run)},
    )


def _cell(run: Run) -> str:
    """The cell with its options, without what may be a secret."""
    shown = dataclasses.replace(run.spec, set=masked(run.spec.set or {}), cell=masked_source(run.spec.cell))
    return cell_of(shown, run.name)
