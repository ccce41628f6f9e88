"""What a word of `%ddl predict`, `evaluate`, `monitor` and `serve` names: a run, or a path of this machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from IPython.core.error import UsageError

from ddl_magics.runs import Run


def run_or_path(name: str, find: Callable[[str], Run]) -> Run | Path:
    """The run with this name or id, else the path. Of both with one name, it is the run: `./NAME` is the path.

    Args:
        name: the name.
        find: returns the run of a name or id; UsageError if there is none.

    Raises:
        UsageError: there is no such run, and nothing at such a path.
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
