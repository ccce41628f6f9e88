"""A cell that waits for its run: prints the progress, and handles interrupts of the kernel."""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import Any

from ddl_magics.dashboard.text import TextProgress
from ddl_magics.errors import RunInterrupted
from ddl_magics.runs import Run
from ddl_magics.search import Search
from ddl_magics.search.text import SearchProgress

#: Longest time until an interrupt is handled and new lines are printed.
POLL_SECONDS = 0.2


def wait_in_cell(run: Run, text: bool, write_line: Callable[[str], None] = print) -> None:
    """Block until the run has ended.

    The first interrupt stops the run and waits for its end. The second returns and leaves the run as it is.

    Args:
        run: a run of this kernel.
        text: whether to print its progress.
        write_line: prints a line.

    Raises:
        DistributedCellError: the run failed or was lost.
        RunInterrupted: the kernel was interrupted.
    """

    def kept() -> str:
        return "its history and model are kept" if run.launched else "it had not started"

    progress = TextProgress(run.name) if text else None
    _wait(run, progress, "stops after its current step; interrupt again to stop waiting for it", kept, write_line)


def wait_for_search(search: Search, text: bool, write_line: Callable[[str], None] = print) -> None:
    """Block until the search has ended, as `wait_in_cell` does for a run.

    Raises:
        SearchFailed: it failed.
        RunInterrupted: the kernel was interrupted.
    """
    progress = SearchProgress() if text else None
    stops = "its trials stop; interrupt again to stop waiting for them"
    _wait(search, progress, stops, lambda: "its trials are kept", write_line)


def _wait(
    awaited: Run | Search,
    progress: TextProgress | SearchProgress | None,
    stops: str,
    kept: Callable[[], str],
    write_line: Callable[[str], None],
) -> None:
    """Print the lines of `progress`, and stop at an interrupt, until the end.

    stops, kept: what is said at the interrupt, and at the end after one.
    """
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    if progress is not None:

        def collect(news: Any) -> None:
            # The cell's own thread prints the lines: front ends do not show text of a thread that belongs to no cell.
            for line in progress.feed(news):
                lines.put(line)

        awaited.listen(collect)
    interrupted = False
    while True:
        try:
            _print_until_settled(awaited, lines, write_line)
            break
        except KeyboardInterrupt:
            if interrupted:
                name, state = awaited.name, awaited.state
                raise RunInterrupted(
                    f"no longer waiting for {name}, which is {state}; {name}.wait() waits again."
                ) from None
            interrupted = True
            awaited.request_stop()
            write_line(f"{awaited.name}  {stops}")
    if interrupted:
        raise RunInterrupted(f"{awaited.name} is {awaited.state}; {kept()}.")
    awaited.wait()


def _print_until_settled(run: Run | Search, lines: queue.SimpleQueue[str], write_line: Callable[[str], None]) -> None:
    settled = False
    while not settled:
        settled = run.settled(POLL_SECONDS)
        while not lines.empty():
            write_line(lines.get())
