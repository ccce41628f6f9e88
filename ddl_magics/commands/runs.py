"""`%ddl runs`, `show`, `logs`, `stop` and `attach`: the runs and searches of this kernel and of the store."""

from __future__ import annotations

import json
from dataclasses import dataclass

from IPython.core.error import UsageError

from ddl_magics import store
from ddl_magics.commands.kernel import Kernel
from ddl_magics.history import query
from ddl_magics.runs import Run, run_text
from ddl_magics.search import Search, ask_to_stop
from ddl_magics.search.listing import listed


@dataclass(frozen=True)
class RunsRequest:
    """query: the terms that a run must match; none for all runs."""

    query: tuple[str, ...]


def list_runs(request: RunsRequest, kernel: Kernel) -> str:
    """The newest runs, or those that match."""
    try:
        return listed(query.parse_words(request.query))
    except query.QueryError as error:
        raise UsageError(f"{error}.") from None


@dataclass(frozen=True)
class ShowRequest:
    run: str


def show(request: ShowRequest, kernel: Kernel) -> str:
    """A live view of a run of this kernel that has not ended, else what is stored."""
    search = kernel.session.find_search(request.run)
    if search is not None:
        return str(search)
    run = kernel.session.find(request.run)
    if run in kernel.session.live() and kernel.display.show_live(run):
        return ""
    print(run_text.describe(run))
    kernel.display.show_static(run)
    return ""


@dataclass(frozen=True)
class LogsRequest:
    """rank: None for all ranks."""

    run: str
    rank: int | None


def logs(request: LogsRequest, kernel: Kernel) -> str:
    run = kernel.session.find(request.run)
    try:
        return run_text.logs(run, request.rank).removesuffix("\n")
    except LookupError as error:
        raise UsageError(str(error)) from None


@dataclass(frozen=True)
class StopRequest:
    """json: print the outcome as one line of JSON."""

    run: str
    json: bool


@dataclass(frozen=True)
class StopAnswer:
    """Prints as `text`; success: the run has ended because of the request, or will."""

    text: str
    success: bool

    def __str__(self) -> str:
        return self.text


def stop(request: StopRequest, kernel: Kernel) -> StopAnswer:
    search = kernel.session.find_search(request.run)
    ending = kernel.end_run(kernel.session, request.run) if search is None else ask_to_stop(search)
    return StopAnswer(json.dumps(ending.to_record()) if request.json else ending.text, ending.success)


@dataclass(frozen=True)
class AttachRequest:
    run: str


def attach(request: AttachRequest, kernel: Kernel) -> str:
    """Follow a run again, or continue a search, and define its variable."""
    record = store.find_search(request.run)
    attached: Run | Search
    if record is None:
        attached = kernel.session.attach(request.run, kernel.choice.at)
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
