"""The notebook and the cell that start a run, if the front end sends them to the kernel."""

from __future__ import annotations

import os
from typing import Any


def notebook() -> str:
    """The path of the notebook, or ""."""
    return os.environ.get("JPY_SESSION_NAME", "")


def folder() -> str | None:
    """The folder of the kernel, which is the notebook's; None if it has been deleted."""
    try:
        return os.getcwd()
    except OSError:
        return None


def cell() -> str:
    """The id of the cell that is being executed, or "". JupyterLab and Notebook 7 send it with their requests."""
    from IPython.core.getipython import get_ipython

    # Only ipykernel's shell has `get_parent`.
    request: Any = getattr(get_ipython(), "get_parent", dict)()
    cell_id = request.get("metadata", {}).get("cellId") if isinstance(request, dict) else None
    return cell_id if isinstance(cell_id, str) else ""
