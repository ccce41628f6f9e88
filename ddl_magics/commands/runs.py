"""`%ddl runs`, `show`, `logs`, `stop` and `attach`: the runs and searches of this kernel and of the store."""

from __future__ import annotations

from typing import Any

from IPython.core.error import UsageError

from ddl_magics import store
from ddl_magics.commands import values
from ddl_magics.commands.answer import Answer
from ddl_magics.commands.kernel import Kernel
from ddl_magics.dashboard.state_words import state_word
from ddl_magics.history.query import Query, QueryError, of_search, parse_words, unknown_name
from ddl_magics.runs import Run, batch_run, run_text
from ddl_magics.runtime import events as ev
from ddl_magics.search import Search, ask_to_stop
from ddl_magics.search.text import searches_table

RUNS_KEYS = {
    "runs": f"the newest first; of each {', '.join(values.RUN)}",
    "searches": f"the newest first; of each {', '.join(values.SEARCH)}",
}


def list_runs(kernel: Kernel, query: tuple[str, ...]) -> Answer:
    """The newest runs, or those that match all terms of the query."""
    try:
        return _listed(parse_words(query))
    except QueryError as error:
        raise UsageError(str(error) if str(error).endswith("?") else f"{error}.") from None


def _listed(query: Query) -> Answer:
    """The matches; as text the newest, a line each, or one line if nothing matches."""
    runs, searches = batch_run.refreshed(store.list_runs()), store.list_searches()
    matching_runs = [record for record in runs if query.matches(record)]
    matching_searches = [record for record in searches if query.matches(of_search(record))]
    value = {
        "runs": [values.of_run(record) for record in matching_runs],
        "searches": [values.of_search(record) for record in matching_searches],
    }
    if query.terms and not matching_runs and not matching_searches:
        unknown = unknown_name(query, [*runs, *map(of_search, searches)]) if runs or searches else None
        return Answer(unknown or f"none of {len(runs)} runs matches", value)
    table = [run_text.runs_table(matching_runs)] if matching_runs or not query.terms else []
    return Answer("\n".join([*table, *searches_table(matching_searches)]), value)


SHOW_KEYS = {
    **values.RUN,
    "failure": "of a failed run: kind, rank, host, message, traceback; else null",
    "history": "name -> list of values per epoch, of the last fit",
    "ranks": "of each rank its rank, host, pid, device, samples/s, state, from, until",
    "files": "name -> size in bytes, of the files that the cell has written",
    "damage": "what is missing of the stored run, or empty",
    **{key: f"of a search: {values.SEARCH[key]}" for key in values.SEARCH if key not in values.RUN},
    "trials": f"of a search: of each trial its {', '.join(values.TRIAL)}",
}


def show(kernel: Kernel, run: str) -> Answer:
    """A live view of a run of this kernel that has not ended, else what is stored."""
    search_record = store.find_search(run)
    if search_record is not None:
        search = kernel.session.searches.get(search_record.id) or Search.stored(search_record)
        return Answer(str(search), {**values.of_search(search_record), "trials": values.of_trials(search.view)})
    if (batch := _batch(run)) is not None:
        batch_run.refreshed([batch])
    shown = kernel.session.find(run)
    if shown in kernel.session.live() and kernel.display.show_live(shown):
        return Answer("", {})
    text = run_text.describe(shown)
    return Answer("" if kernel.display.show_static(shown, text) else text, _shown(shown))


def _shown(run: Run) -> dict[str, Any]:
    record = store.find_run(run.id)
    if record is None:  # removed since this kernel ran it
        return run.summary
    return {
        **values.of_run(record),
        "failure": record.failure,
        "history": run.history,
        "ranks": run.workers.to_dict("records"),
        "files": run.files,
        "damage": run.damage,
    }


LOGS_KEYS = {
    "id": "of the run",
    "name": "of the run",
    "state": "of the run",
    "rank": "whose text it is, or null for all ranks",
    "lines": "in their order: rank (-1: the driver), stream, text",
}


def logs(kernel: Kernel, run: str, rank: int | None) -> Answer:
    """What a run printed. rank: None for all ranks."""
    printed = kernel.session.find(run)
    lines = [
        {"rank": event.rank, "stream": event.stream, "text": line}
        for event in ev.select(ev.Log, printed.events)
        if rank in (None, event.rank)
        for line in event.text.splitlines()
    ]
    value = {"id": printed.id, "name": printed.name, "state": printed.state, "rank": rank, "lines": lines}
    return Answer(run_text.logs(printed, rank).removesuffix("\n"), value)


STOP_KEYS = {
    "outcome": "asked: its kernel will end it; stopped: it has ended now; ended: it had ended before; nothing: its "
    "kernel is gone, and it does not train; runs: its kernel is gone, and it may still train",
    "message": "the outcome in one line",
    "how": "what to do if it may still train, or empty",
}


def stop(kernel: Kernel, run: str) -> Answer:
    """End a run or a search."""
    search, batch = kernel.session.find_search(run), _batch(run)
    if batch is not None:
        ending = batch_run.end(batch)
    else:
        ending = kernel.end_run(kernel.session, run) if search is None else ask_to_stop(search)
    return Answer(ending.text, ending.to_record(), int(not ending.success))


def _batch(run: str) -> store.RunRecord | None:
    """The stored run, if it is a batch of Livy."""
    record = store.find_run(run)
    return record if record is not None and record.is_batch else None


def attach(kernel: Kernel, run: str) -> str:
    """Follow a run again, or continue a search, and define its variable."""
    record = store.find_search(run)
    attached: Run | Search
    if record is None:
        attached = kernel.session.attach(run, kernel.choice.at)
        state = f"is {state_word(attached.state)} on {attached.cluster}"
    else:
        attached = kernel.session.attach_search(record, kernel.namespace, kernel.choice.at)
        state = "continues"
    lines = _define(attached, kernel)
    if not kernel.display.show_live(attached):
        lines.append(f"{attached.name} {state}; {attached.name}.wait() waits for its end")
    return "\n".join(lines)


def _define(attached: Run | Search, kernel: Kernel) -> list[str]:
    """Define the variable of what was attached. Returns a line where the user has another one of this name."""
    variable = kernel.namespace.get(attached.name)
    if variable is None or isinstance(variable, type(attached)):
        kernel.namespace[attached.name] = attached
        return []
    kind = type(attached).__name__.lower()
    return [f"your variable {attached.name} is kept; %ddl show {attached.id} shows the {kind}"]
