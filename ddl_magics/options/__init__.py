"""The options of `%%distributed`: one table, and what reads it."""

from ddl_magics.options.spec import NO_OPTIONS, RunSpec, under_current_names

__all__ = ["NO_OPTIONS", "RunSpec", "under_current_names"]
