"""What a cell does with its share of --data without `fit`: layers that adapt get all rows, a loop is told of its part.

A loop that trains has its share as it should, but only its first update tells that it trains. So it is judged later:
when the next one begins, before a call of `fit`, and when the cell has ended.
"""

from __future__ import annotations

import re
from types import ModuleType
from typing import Any, Callable

import tensorflow as tf

from ..gradients.batch import Share
from ..keras_types import Dataset, Layer, Model, is_of_keras
from ..rank.rank import Rank
from ..trial.patching import wrap
from . import derived_datasets, share
from .calls import Calls
from .own_loop import OwnLoop

#: A cell with one of these knows that ranks have parts of the rows.
_KNOWS = re.compile(r"\bddl\s*\.\s*(all_gather|all_rows|allreduce|result)\b")

_PART = (
    "this cell reads --data itself, where a worker has its own share of the rows: 1 of %d; ddl.all_rows(dataset) has "
    "those of all workers, and adapt takes them by itself"
)
_OF_SHARE = (
    "%s gets --data here, where a worker has its own share of the rows: 1 of %d; model.%s(ddl.all_rows(dataset)) takes "
    "those of all workers"
)
_LOCAL = "adapt learns from this worker's rows alone, as its dataset is one of ddl.local(...)"


class ShareUse:
    """calls, loop: of `fit`, and of the cell's own loops."""

    def __init__(self, rank: Rank, calls: Calls, loop: OwnLoop) -> None:
        self._rank, self._calls, self._loop = rank, calls, loop
        self._is_told = rank.config.workers == 1 or _KNOWS.search(rank.config.spec.cell) is not None
        self._updates: int | None = None  # before the loop that is not judged yet

    def install(self, keras: ModuleType, trainer: type) -> None:
        derived_datasets.follow()
        classes = [value for value in vars(keras.layers).values() if isinstance(value, type)]
        classes += [getattr(keras.utils, name) for name in ("FeatureSpace",) if hasattr(keras.utils, name)]
        bases = {base for kind in classes for base in kind.__mro__ if "adapt" in vars(base) and is_of_keras(base)}
        for kind in bases:
            wrap(kind, "adapt", self._adapt)
        if self._is_told:
            return
        wrap(tf.data.Dataset, "__iter__", self._iterate)
        wrap(tf.data.Dataset, "reduce", self._iterate)
        for name in ("fit", "evaluate", "predict"):
            wrap(trainer, name, self._call)
        self._rank.at_cell_end.insert(0, self._judge)

    def _adapt(self, original: Callable[..., Any], layer: Layer, *args: Any, **kwargs: Any) -> Any:
        """In place of the method of a layer."""
        return original(
            layer, *map(self._all_rows, args), **{name: self._all_rows(arg) for name, arg in kwargs.items()}
        )

    def _all_rows(self, data: Any) -> Any:
        if not isinstance(data, tf.data.Dataset):
            return data
        if share.is_local(data) and not derived_datasets.is_part(data) and self._rank.config.workers > 1:
            self._rank.reporter.notice_once("warning", _LOCAL)
            return data
        return derived_datasets.all_rows(data)

    def _iterate(self, original: Callable[..., Any], dataset: Dataset, *args: Any, **kwargs: Any) -> Any:
        if self._calls.current is None and _is_own_loop(dataset):
            self._judge()
            self._updates = self._loop.updates
        return original(dataset, *args, **kwargs)

    def _call(self, original: Callable[..., Any], model: Model, *args: Any, **kwargs: Any) -> Any:
        """In place of a method of the model that reads a dataset."""
        self._judge()
        data, name = args[0] if args else kwargs.get("x"), original.__name__
        apart = name == "predict" or (name == "evaluate" and self._rank.peers.ring is None)
        if apart and isinstance(data, tf.data.Dataset) and derived_datasets.is_part(data):
            self._rank.reporter.notice_once("info", _OF_SHARE % (name, self._rank.config.workers, name))
        return original(model, *args, **kwargs)

    def _judge(self) -> None:
        """Say that the loop had a part of the rows, if it did not train."""
        before, self._updates = self._updates, None
        if before is not None and self._loop.updates == before and not self._loop.hides_updates:
            self._rank.reporter.notice_once("info", _PART % self._rank.config.workers)


def _is_own_loop(dataset: Dataset) -> bool:
    """Whether the cell iterates over rows of this rank, and not `ddl.distribute`, whose elements are of `Share`."""
    return not isinstance(dataset.element_spec, Share) and derived_datasets.is_part(dataset)
