"""Runs on disk, where they outlive their kernel; the panel and the command line read them there."""

from ddl_magics.options.redaction import MASK
from ddl_magics.store.files import write_atomically
from ddl_magics.store.owned_folder import RunInUse
from ddl_magics.store.run_folder import (
    FORMAT,
    RUN_ID,
    RunFolder,
    RunRecord,
    create_run,
    find_run,
    list_runs,
    new_run_id,
    runs_folder,
)
from ddl_magics.store.search_folder import SearchFolder, SearchRecord, find_search, list_searches, searches_folder

__all__ = [
    "FORMAT",
    "MASK",
    "RUN_ID",
    "RunFolder",
    "RunInUse",
    "RunRecord",
    "SearchFolder",
    "SearchRecord",
    "create_run",
    "find_run",
    "find_search",
    "list_runs",
    "list_searches",
    "new_run_id",
    "runs_folder",
    "searches_folder",
    "write_atomically",
]
