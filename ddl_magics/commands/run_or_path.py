"""The model argument of `%ddl predict`, `evaluate`, `monitor` and `serve`: a run, or a path on this machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from IPython.core.error import UsageError

from ddl_magics.runs import Run


def run_or_path(name: str, find: Callable[[str], Run]) -> Run | Path:
    """The run with this name or id, else the path. A run takes precedence: `./NAME` is the path.

    Args:
        name: name or id of a run, or a path.
        find: returns the run of a name or id; UsageError if there is none.

    Raises:
        UsageError: there is no such run, and no such path.
    """
    path = Path(name).expanduser()
    if "/" in name:
        return path
    try:
        return find(name)
    except UsageError:
        if not path.exists():
            raise
        return path
