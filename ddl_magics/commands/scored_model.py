"""The model that `%ddl predict` and `%ddl evaluate` score with: from a run, an export, or a `.keras` file."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddl_magics.clusters.base import ScoringRequest
from ddl_magics.clusters.scoring import exported, training_inputs
from ddl_magics.commands.run_or_path import run_or_path
from ddl_magics.errors import CannotScore
from ddl_magics.runs import Run
from ddl_magics.session.session import Session


@dataclass(frozen=True)
class ScoredModel:
    """A model on this machine.

    Attributes:
        key: names the model in a Livy session: the id of its run, or the hash of its file.
        file: the `.keras` file.
        run: the run that trained it; None for a path.
        inputs: the input columns that an export declares, as `ddl_magics.predict` takes them.
        label, weight, transform: options of the run; None for a path.
    """

    key: str
    file: Path
    run: Run | None = None
    inputs: Any = None
    label: str | None = None
    weight: str | None = None
    transform: str | None = None

    def features(self, columns: Sequence[str]) -> Any:
        """The columns of the model's input: those of --features, else of the training or of the export.

        Raises:
            CannotScore: nothing names them.
        """
        if columns:
            return list(columns)
        if self.run is not None:
            return training_inputs(self.run.name, self.run.spec, self.run.events)
        if self.inputs is None:
            raise CannotScore(f"{self.file} does not know the columns of its input: name them, --features a b")
        return self.inputs

    def request(self, data: str, features: Sequence[str], batch_rows: int) -> ScoringRequest:
        """The request to score the DataFrame `data`. Raises `CannotScore` as `features` does."""
        return ScoringRequest(self.file, self.key, data, self.features(features), batch_rows, self.transform)


def find(name: str, session: Session) -> ScoredModel:
    """Find a model by its run's name or id, or by its path. Waits for the end of the run.

    Args:
        name: a run, the folder of an export, or a `.keras` file.

    Raises:
        UsageError: there is none.
        CannotScore: Spark cannot score with the model at the path.
        DistributedCellError, LookupError: as `Run.model`.
    """
    model = run_or_path(name, session.find)
    if not isinstance(model, Path):
        options = {name: getattr(model.spec, name) for name in ("label", "weight", "transform")}
        return ScoredModel(model.id, model.trained().file, model, **options)
    file, inputs = (model, None) if model.suffix == ".keras" else exported(model)
    try:
        key = hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError as error:
        raise CannotScore(f"{file} cannot be read: {error.strerror}") from None
    return ScoredModel(key, file, inputs=inputs)
