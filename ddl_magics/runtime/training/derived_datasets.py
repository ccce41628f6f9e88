"""What the cell makes of `dataset` and `validation` of --data, so that the same can be made of the rows of all ranks.

Each method of tf.data that derives a dataset from another one is noted on its result, if it began with a rank's share,
and can be called again on all rows.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, NamedTuple

import tensorflow as tf

from ..keras_types import Dataset
from ..trial.patching import wrap
from . import share

_METHODS = (
    *("apply", "batch", "bucket_by_sequence_length", "cache", "concatenate", "enumerate", "filter", "flat_map"),
    *("group_by_window", "ignore_errors", "interleave", "map", "padded_batch", "prefetch", "ragged_batch", "rebatch"),
    *("rejection_resample", "repeat", "scan", "shard", "shuffle", "skip", "snapshot", "sparse_batch", "take"),
    *("take_while", "unbatch", "unique", "window", "with_options"),
)

_OWN_ROWS = (
    "this dataset is made of the rows that this worker has, and how is not known, so that it cannot be made of all "
    "rows: begin with all_data = ddl.all_rows(dataset), and derive from that; a dataset of ddl.local(...) has no others"
)

#: The types of elements of datasets that have rows of this rank alone.
_specs_of_parts: list[Any] = []


class Origin(NamedTuple):
    """Where a dataset comes from. all_rows: makes what it would be with the rows of all ranks, in their own order.

    is_part: whether it has rows of this rank alone.
    """

    all_rows: Callable[[], Dataset]
    is_part: bool


def mark(dataset: Dataset, origin: Origin) -> None:
    dataset._ddl_origin = origin
    if origin.is_part and dataset.element_spec not in _specs_of_parts:
        _specs_of_parts.append(dataset.element_spec)


def all_rows(dataset: Dataset) -> Dataset:
    """`dataset` with the rows of all ranks; as it is where each has all of them. ValueError where that is unknown."""
    origin = _origin(dataset)
    if origin is not None:
        return origin.all_rows()
    if share.is_local(dataset):
        raise ValueError(_OWN_ROWS)
    return dataset


def is_part(dataset: Dataset) -> bool:
    """Whether a dataset has rows of --data, of this rank alone.

    As an argument of a tf.function it is another object: its elements' types tell.
    """
    if not tf.executing_eagerly() and dataset.element_spec in _specs_of_parts:
        return True
    origins = filter(None, map(_origin, share.lineage(dataset)))
    return any(origin.is_part for origin in origins)


def _origin(dataset: Dataset) -> Origin | None:
    origin: Origin | None = getattr(dataset, "_ddl_origin", None)
    return origin


def follow() -> None:
    """From now on, note how datasets are derived."""
    for name in _METHODS:
        if hasattr(tf.data.Dataset, name):
            wrap(tf.data.Dataset, name, _derive)
    zipped = functools.partial(_derive, tf.data.Dataset.zip)
    tf.data.Dataset.zip = staticmethod(functools.wraps(tf.data.Dataset.zip)(zipped))


def _derive(method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """In place of the method: its result, which knows the datasets among its arguments."""
    derived = method(*args, **kwargs)
    sources = [value for value in tf.nest.flatten((args, kwargs)) if isinstance(value, tf.data.Dataset)]
    origins = list(filter(None, map(_origin, sources)))
    if origins and isinstance(derived, tf.data.Dataset):

        def again() -> Dataset:
            whole_args, whole_kwargs = tf.nest.map_structure(_whole, (args, kwargs))
            return method(*whole_args, **whole_kwargs)

        mark(derived, Origin(again, any(origin.is_part for origin in origins)))
    return derived


def _whole(value: Any) -> Any:
    return all_rows(value) if isinstance(value, tf.data.Dataset) else value
