"""`%%distributed`: train the Keras cell you already have on Spark, watch it learn, get the model back."""

from __future__ import annotations

from typing import Any

from ddl_magics._version import __version__
from ddl_magics.clusters.scoring import evaluate, predict
from ddl_magics.clusters.tfrecord import write_tfrecord
from ddl_magics.errors import CannotExport, CannotScore, DistributedCellError, SearchFailed
from ddl_magics.models.registry import Registry
from ddl_magics.runs import Run

__all__ = [
    "CannotExport",
    "CannotScore",
    "DistributedCellError",
    "Registry",
    "Run",
    "SearchFailed",
    "__version__",
    "evaluate",
    "load_ipython_extension",
    "predict",
    "unload_ipython_extension",
    "write_tfrecord",
]


def load_ipython_extension(shell: Any) -> None:
    """Called by `%load_ext ddl_magics`."""
    from ddl_magics.notebook import load

    load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Called by `%unload_ext ddl_magics`."""
    from ddl_magics.notebook import unload

    unload(shell)
