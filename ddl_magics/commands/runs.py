"""`%ddl runs`, `show`, `logs`, `stop` and `attach`: the runs and searches of this kernel and of the store."""

from __future__ import annotations

from dataclasses import dataclass
from json import dumps

from IPython.core.error import UsageError

from ddl_magics import store
from ddl_magics.commands.kernel import Kernel
from ddl_magics.history.query import Query, QueryError, of_search, parse_words
from ddl_magics.runs import Run, run_text
from ddl_magics.search import Search, ask_to_stop
from ddl_magics.search.text import searches_table


def list_runs(kernel: Kernel, query: tuple[str, ...]) -> str:
    """The newest runs, or those that match all terms of the query."""
    try:
        return _listed(parse_words(query))
    except QueryError as error:
        raise UsageError(f"{error}.") from None


def _listed(query: Query) -> str:
    """The newest matches, a line each; or one line if nothing matches."""
    runs, searches = store.list_runs(), store.list_searches()
    matching_runs = [record for record in runs if query.matches(record)]
    matching_searches = [record for record in searches if query.matches(of_search(record))]
    if query.terms and not matching_runs and not matching_searches:
        return f"none of {len(runs)} runs matches"
    table = [run_text.runs_table(matching_runs)] if matching_runs or not query.terms else []
    return "\n".join([*table, *searches_table(matching_searches)])


def show(kernel: Kernel, run: str) -> str:
    """A live view of a run of this kernel that has not ended, else what is stored."""
    search = kernel.session.find_search(run)
    if search is not None:
        return str(search)
    shown = kernel.session.find(run)
    if shown in kernel.session.live() and kernel.display.show_live(shown):
        return ""
    print(run_text.describe(shown))
    kernel.display.show_static(shown)
    return ""


def logs(kernel: Kernel, run: str, rank: int | None) -> str:
    """What a run printed. rank: None for all ranks."""
    return run_text.logs(kernel.session.find(run), rank).removesuffix("\n")


@dataclass(frozen=True)
class StopAnswer:
    """Prints as `text`; success: the run has ended because of the request, or will."""

    text: str
    success: bool

    def __str__(self) -> str:
        return self.text


def stop(kernel: Kernel, run: str, json: bool) -> StopAnswer:
    """End a run or a search. json: answer with one line of JSON."""
    search = kernel.session.find_search(run)
    ending = kernel.end_run(kernel.session, run) if search is None else ask_to_stop(search)
    return StopAnswer(dumps(ending.to_record()) if json else ending.text, ending.success)


def attach(kernel: Kernel, run: str) -> str:
    """Follow a run again, or continue a search, and define its variable."""
    record = store.find_search(run)
    attached: Run | Search
    if record is None:
        attached = kernel.session.attach(run, kernel.choice.at)
        state = f"is {attached.state} on {attached.cluster}"
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
