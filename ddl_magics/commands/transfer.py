"""`%ddl export` and `import`: a run, or a search with its trials, as a zip file."""

from __future__ import annotations

from pathlib import Path

from IPython.core.error import UsageError

from ddl_magics import store
from ddl_magics.commands.answer import Answer
from ddl_magics.commands.kernel import Kernel
from ddl_magics.history import bundle
from ddl_magics.options.redaction import as_word
from ddl_magics.wording import counted, in_bytes

EXPORT_KEYS = {
    "file": "path of the zip file",
    "bytes": "its size",
    "runs": "ids of the runs in it",
    "search": "id of the search in it, or null",
}
IMPORT_KEYS = {"runs": "ids of the imported runs", "searches": "ids of the imported searches"}


def export(kernel: Kernel, run: str, file: str) -> Answer:
    """Write a run, or a search with its trials. file: .zip is added.

    Raises:
        UsageError, BundleError: there is no such run or search, it has not ended, or the file cannot be written.
    """
    path = Path(file).expanduser()
    path = path if path.suffix == ".zip" else path.with_name(f"{path.name}.zip")
    search = store.find_search(run)
    if search is not None:
        records = [record for trial in store.SearchFolder(search.folder).runs().values() for record in trial]
    else:
        record = store.find_run(kernel.session.find(run).id)
        if record is None:  # removed since this kernel ran it
            raise UsageError(f"there is no run {as_word(run)}. %ddl runs lists them.")
        records = [record]
    size = bundle.write(path, records, search)
    subject = f"{search.name} with {counted(len(records), 'run')}" if search else records[0].name
    text = f"{subject} is in {path}, {in_bytes(size)}; %ddl import {path.name} reads it, also on another machine"
    ids = [record.id for record in records]
    return Answer(text, {"file": path, "bytes": size, "runs": ids, "search": search.id if search else None})


def import_(kernel: Kernel, file: str) -> Answer:
    """Import such a file into the store.

    Raises:
        BundleError: it cannot be read, or the store has one of its runs.
    """
    imported = bundle.read(Path(file).expanduser())
    runs = [record for run in imported.runs if (record := store.find_run(run)) is not None]
    searches = [search for search_id in imported.searches if (search := store.find_search(search_id)) is not None]
    value = {"runs": imported.runs, "searches": imported.searches}
    if searches:
        text = f"{searches[0].name} is here with {counted(len(runs), 'run')}: %ddl show {searches[0].id}"
        return Answer(text, value)
    names = ", ".join(record.name for record in runs)
    return Answer(f"{names} is here: %ddl show {imported.runs[0]}", value)
