"""Where a run is started from: its notebook and the cell, as far as the frontend tells the kernel."""

from __future__ import annotations

import os


def notebook() -> str:
    """The path of the notebook, or nothing."""
    return os.environ.get("JPY_SESSION_NAME", "")


def cell() -> str:
    """The id of the cell that is being executed, or nothing: JupyterLab and Notebook 7 send it with their requests."""
    from IPython.core.getipython import get_ipython

    parent = getattr(get_ipython(), "get_parent", dict)()
    found = parent.get("metadata", {}).get("cellId") if isinstance(parent, dict) else None
    return found if isinstance(found, str) else ""
