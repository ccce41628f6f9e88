"""The notebook's side: magics, completion, what a cell shows, and the runs of its kernel."""

from ddl_magics.notebook.extension import load, unload

__all__ = ["load", "unload"]
