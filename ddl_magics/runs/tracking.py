"""What TensorBoard and MLflow get of a run: `history/tensorboard.py` and `history/mlflow.py` write it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ddl_magics.history import provenance
from ddl_magics.history.scalars import parameters, scalars
from ddl_magics.history.tracking_data import TrackingData
from ddl_magics.options.redaction import masked, masked_source
from ddl_magics.runs.cell_files import cell_files
from ddl_magics.runtime import events as ev
from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.store import RunRecord


def tracking_data(spec: RunSpec, record: RunRecord, events: Sequence[ev.RawEvent]) -> TrackingData:
    """A run with these events, which has its models and the files of its cell on this machine."""
    stored = [path for path in sorted((record.folder / "files").glob("*")) if not path.name.startswith(".")]
    written = [file.path for file in cell_files(events).values() if file.path is not None and file.path.is_file()]
    files = [*stored, *written]
    elsewhere = [event.uri for event in ev.select(ev.Artifact, events) if event.uri is not None]
    checkpoints = [f"{spec.checkpoint.rstrip('/')}/{spec.run}"] if spec.checkpoint else []
    return TrackingData(
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
    from ddl_magics.options.line import cell_of  # loads IPython and numpy, which JupyterLab's server does without

    masked_spec = dataclasses.replace(spec, set=masked(spec.set or {}), cell=masked_source(spec.cell))
    return cell_of(masked_spec, spec.name)
