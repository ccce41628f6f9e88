"""A run as TensorBoard and MLflow track it: parameters, values over its steps, files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ddl_magics.history.provenance import Provenance
from ddl_magics.history.scalars import Scalar
from ddl_magics.store import RunRecord


@dataclass(frozen=True)
class TrackingData:
    """A run that has ended, or as it is now.

    Attributes:
        record: of the store.
        parameters: the values of --set, and the options that shape the training.
        scalars: its values over its steps.
        provenance: what it ran with.
        files: those on this machine: models, checkpoints, what the cell has written.
        locations: where models, checkpoints and files of the cell are: paths, and URIs of --out and --checkpoint.
        texts: name -> content of further files.
    """

    record: RunRecord
    parameters: Mapping[str, Any]
    scalars: Iterable[Scalar]
    provenance: Provenance
    files: Sequence[Path] = ()
    locations: Sequence[str] = ()
    texts: Mapping[str, str] = field(default_factory=dict)
