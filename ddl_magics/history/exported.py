"""A run for other tools: what TensorBoard and MLflow are written from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ddl_magics.history.provenance import Provenance
from ddl_magics.history.scalars import Scalar
from ddl_magics.store import RunRecord


@dataclass(frozen=True)
class Exported:
    """A run that has ended, or as it is now.

    Attributes:
        record: of the store.
        parameters: the values of --set, and the options that shape the training.
        scalars: its values over its steps.
        kept: what it ran with.
        files: those on this machine: models, checkpoints, what the cell has written.
        places: where models, checkpoints and files of the cell are: paths, and URIs of --out and --checkpoint.
        texts: name -> content of further files.
    """

    record: RunRecord
    parameters: Mapping[str, Any]
    scalars: Iterable[Scalar]
    kept: Provenance
    files: Sequence[Path] = ()
    places: Sequence[str] = ()
    texts: Mapping[str, str] = field(default_factory=dict)
