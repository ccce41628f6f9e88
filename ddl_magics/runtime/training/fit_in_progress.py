"""The call of `fit` in progress on a rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Protocol, Sequence

from ..keras_types import Model
from .checkpointing import FitCheckpoints
from .membership import Membership
from .repeated_steps import RepeatedSteps
from .share import Cutter


class EpochSync(Protocol):
    """Synchronizes ranks that make updates of their own."""

    def end_epoch(self, model: Model) -> None:
        """Bring all ranks to the same weights and metrics."""


@dataclass
class FitInProgress:
    """checkpoints: None where the strategy takes none. checks_finite: a NaN or infinite loss or gradient ends the run.

    sync: of ranks with updates of their own. validate: with a parameter server, runs a validation on the chief, for all
    workers. has_data: its training data is in use, so that further data is for validation. cuts_validation: this rank
    has its part of each batch of a validation. validates_apart: each rank reads the validation's data without a word to
    the others. cutter: makes this rank's part of a batch in the step. shares_epochs:
    each epoch's batches are shared out among those who are there at its beginning. membership: where ranks come and go.
    batch: rows of a batch, 0 where these are unknown. shapes: of the parts of the first batch, where the dataset does
    not tell.
    """

    model: Model
    checkpoints: FitCheckpoints | None = None
    sync: EpochSync | None = None
    validate: Callable[[Callable[[], Any]], Any] | None = None
    checks_finite: bool = True
    has_data: bool = False
    cuts_validation: bool = False
    validates_apart: bool = True
    cutter: Cutter | None = None
    shares_epochs: bool = False
    membership: Membership | None = None
    batch: int = 0
    shapes: Sequence[tuple[int, ...]] = ()

    @property
    def repeated(self) -> RepeatedSteps | None:
        """Makes steps again when ranks come or go, if it does."""
        return self.membership if isinstance(self.membership, RepeatedSteps) else None

    @property
    def reports(self) -> bool:
        """Whether its begin and end are reported: not where an earlier attempt has done so."""
        return self.checkpoints is None or self.checkpoints.reports
