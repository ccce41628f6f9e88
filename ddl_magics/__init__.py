"""`%%distributed`: train the Keras cell you already have on Spark, watch it learn, get the model back."""

from __future__ import annotations

from typing import Any

from ddl_magics._version import __version__
from ddl_magics.errors import DistributedCellError
from ddl_magics.run import Run

__all__ = ["DistributedCellError", "Run", "__version__", "load_ipython_extension", "unload_ipython_extension"]


def load_ipython_extension(shell: Any) -> None:
    """Called by `%load_ext ddl_magics`."""
    from ddl_magics.extension import load

    load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Called by `%unload_ext ddl_magics`."""
    from ddl_magics.extension import unload

    unload(shell)
