"""The calls of a model's methods in progress on a rank: a fit, its validation, a `train_on_batch` and so on."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Iterator

from .fit_in_progress import FitInProgress

#: Kinds of calls that take one batch.
TRAIN_BATCH, TEST_BATCH = "train_on_batch", "test_on_batch"


@dataclass
class Call:
    """kind: the method's name. shared: its data is cut, and its metrics are the job's."""

    kind: str
    shared: bool

    @property
    def trains(self) -> bool:
        return self.kind in ("fit", TRAIN_BATCH)


class Calls:
    """One call may be within another: a fit evaluates. `fit`: the fit in progress, or None."""

    def __init__(self) -> None:
        self.fit: FitInProgress | None = None
        self._stack: list[Call] = []

    @contextlib.contextmanager
    def during(self, call: Call) -> Iterator[None]:
        """`call` is the innermost one."""
        self._stack.append(call)
        try:
            yield
        finally:
            self._stack.pop()

    @property
    def current(self) -> Call | None:
        """The innermost call."""
        return self._stack[-1] if self._stack else None

    @property
    def training(self) -> bool:
        """Whether the innermost call trains: a fit, and not its validation."""
        return self.current is not None and self.current.trains

    @property
    def scoring(self) -> bool:
        """Whether the innermost call is an evaluation, a fit's validation or a prediction."""
        return self.current is not None and not self.current.trains

    @property
    def begins_training_data(self) -> bool:
        """Whether the data that is taken into use next is the fit's own, and not its validation's."""
        return self.training and self.fit is not None and not self.fit.has_data
