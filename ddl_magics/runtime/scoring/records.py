"""What travels to the executors beside a model."""

from __future__ import annotations

from typing import TypedDict

from ..data.records import Inputs


class Plan(TypedDict):
    """How rows are scored.

    places: of each column of `inputs`, its index in a row. batch_rows: rows that the model is called with at once.
    lenient: whether a row that cannot be read gets no prediction, instead of an error.
    """

    inputs: Inputs
    places: list[int]
    batch_rows: int
    lenient: bool
