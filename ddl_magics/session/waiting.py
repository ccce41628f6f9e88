"""A cell that waits for its run or its search: prints the progress, and handles interrupts of the kernel."""

from __future__ import annotations

import queue
from typing import Any

from ddl_magics.dashboard.state_words import state_word
from ddl_magics.dashboard.text import TextProgress
from ddl_magics.errors import RunInterrupted
from ddl_magics.runs import Run
from ddl_magics.runs.ending import kept
from ddl_magics.search import Search
from ddl_magics.search.text import SearchProgress

#: Longest delay until an interrupt is handled and new lines are printed.
POLL_SECONDS = 0.2


def wait_in_cell(awaited: Run | Search, text: bool) -> None:
    """Block until a run, or a search, has ended.

    The first interrupt stops it and waits for its end. The second returns at once.

    Args:
        awaited: a run or a search of this kernel.
        text: whether to print its progress.

    Raises:
        DistributedCellError: the run failed or was lost.
        SearchFailed: the search failed.
        RunInterrupted: the kernel was interrupted.
    """
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    if text:
        progress = SearchProgress() if isinstance(awaited, Search) else TextProgress(awaited.name)

        def collect(update: Any) -> None:
            # The cell's own thread prints the lines: front ends do not show text of a thread that belongs to no cell.
            for line in progress.feed(update):
                lines.put(line)

        awaited.listen(collect)
    interrupted = False
    while True:
        try:
            _print_until_settled(awaited, lines)
            break
        except KeyboardInterrupt:
            if interrupted:
                name, state = awaited.name, state_word(awaited.state)
                raise RunInterrupted(
                    f"no longer waiting for {name}, which is {state}; {name}.wait() waits again."
                ) from None
            interrupted = True
            awaited.request_stop()
            print(f"{awaited.name}  {_stopping(awaited)}")
    if interrupted:
        raise RunInterrupted(f"{awaited.name} is {awaited.state}; {_outcome(awaited)}.")
    awaited.wait()


def _stopping(awaited: Run | Search) -> str:
    if isinstance(awaited, Search):
        return "its trials stop; interrupt again to stop waiting for them"
    if awaited.spec.strategy == "monitor":
        return "stops; interrupt again to stop waiting for it"
    return "stops after its current step; interrupt again to stop waiting for it"


def _outcome(awaited: Run | Search) -> str:
    if isinstance(awaited, Search):
        return "its trials are kept"
    if awaited.spec.strategy == "monitor":
        return "what it has counted is kept"
    if not awaited.launched:
        return "it had not started"
    return kept(awaited)


def _print_until_settled(run: Run | Search, lines: queue.SimpleQueue[str]) -> None:
    settled = False
    while not settled:
        settled = run.settled(POLL_SECONDS)
        while not lines.empty():
            print(lines.get())
