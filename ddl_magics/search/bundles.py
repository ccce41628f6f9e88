"""`%ddl export` and `%ddl import`, and what they print."""

from __future__ import annotations

from pathlib import Path

from IPython.core.error import UsageError

from ddl_magics import store
from ddl_magics.history import bundle
from ddl_magics.options.redaction import as_word
from ddl_magics.wording import counted, in_bytes


def export(path: Path, name: str) -> str:
    """Write a run, or a search with its trials, to a zip file; returns what to print.

    Args:
        path: of the file; .zip is added.
        name: of the run or the search, or its id.

    Raises:
        UsageError: there is no such run or search, it has not ended, or the file cannot be written.
    """
    path = path.expanduser()
    path = path if path.suffix == ".zip" else path.with_name(f"{path.name}.zip")
    search, record = store.find_search(name), store.find_run(name)
    if search is not None:
        runs = [run for trial in store.SearchFolder(search.folder).runs().values() for run in trial]
    elif record is not None:
        runs = [record]
    else:
        raise UsageError(f"there is no run {as_word(name)}. %ddl runs lists them.")
    try:
        size = bundle.write(path, runs, search)
    except bundle.BundleError as error:
        raise UsageError(str(error)) from None
    subject = f"{search.name} with {counted(len(runs), 'run')}" if search else runs[0].name
    return f"{subject} is in {path}, {in_bytes(size)}; %ddl import {path.name} reads it, also on another machine"


def import_(path: Path) -> str:
    """Import such a file into the store; returns what to print.

    Raises:
        UsageError: it cannot be read, or the store has one of its runs.
    """
    try:
        imported = bundle.read(path.expanduser())
    except bundle.BundleError as error:
        raise UsageError(str(error)) from None
    runs = [record for run in imported.runs if (record := store.find_run(run)) is not None]
    searches = [search for search_id in imported.searches if (search := store.find_search(search_id)) is not None]
    if searches:
        return f"{searches[0].name} is here with {counted(len(runs), 'run')}: %ddl show {searches[0].id}"
    names = ", ".join(record.name for record in runs)
    return f"{names} is here: %ddl show {imported.runs[0]}"
