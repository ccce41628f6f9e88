"""Runs as TensorBoard reads them: scalars and hyperparameters in event files, written by tensorboardX."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ddl_magics.errors import NotInstalled
from ddl_magics.history.scalars import Scalar

INSTALL = "pip install tensorboardX"


def write(
    folder: Path, scalars: Iterable[Scalar], parameters: Mapping[str, Any], results: Mapping[str, float], text: str
) -> Path:
    """Write a run into a folder, which becomes one run of TensorBoard; returns the folder.

    Args:
        folder: of the run; another one that was written there before is replaced.
        scalars: of the run.
        parameters: the hyperparameters.
        results: what they led to.
        text: the cell.

    Raises:
        NotInstalled: tensorboardX is missing.
        OSError: the folder cannot be written.
    """
    if find_spec("tensorboardX") is None:
        raise NotInstalled(f"TensorBoard's files are written by tensorboardX, which is missing here: {INSTALL}")
    from tensorboardX import SummaryWriter
    from tensorboardX.summary import hparams

    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("events.out.tfevents.*"):
        old.unlink()
    with SummaryWriter(str(folder), write_to_disk=True) as writer:
        # Not `add_hparams`, which makes a run of its own for them. And without the list of all hyperparameters:
        # TensorBoard would take one run's list for all runs below its folder.
        _, begin, end = hparams(dict(parameters), {name: float(value) for name, value in results.items()})
        writer.file_writer.add_summary(begin)
        writer.file_writer.add_summary(end)
        for scalar in scalars:
            writer.add_scalar(scalar.name, scalar.value, scalar.step, walltime=scalar.time)
        if text:
            writer.add_text("cell", f"```python\n{text}\n```")
    return folder
