"""A cell that waits for its run: prints its progress, and hears the interrupt of the kernel."""

from __future__ import annotations

import queue
from collections.abc import Callable

from ddl_magics.dashboard.text import TextProgress
from ddl_magics.errors import RunInterrupted
from ddl_magics.run import Run
from ddl_magics.timeline import Event

#: How often the waiting cell looks up, so that an interrupt is heard and printed lines come in time.
LOOK_SECONDS = 0.2


def wait_in_cell(run: Run, text: bool, say: Callable[[str], None] = print) -> None:
    """Block until the run has ended.

    The first interrupt stops the run and waits for its end, the second leaves it to itself.

    Args:
        run: a run of this kernel.
        text: whether to print its progress.
        say: prints a line.

    Raises:
        DistributedCellError: the run failed.
        RunInterrupted: the kernel was interrupted.
    """
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    if text:
        progress = TextProgress(run.name)

        def collect(events: list[Event]) -> None:
            # Printed by the cell's own thread: a front end shows no text of a thread whose cell it does not know.
            for line in progress.feed(events):
                lines.put(line)

        run.listen(collect)
    interrupted = False
    while True:
        try:
            _print_until_settled(run, lines, say)
            break
        except KeyboardInterrupt:
            if interrupted:
                raise RunInterrupted(
                    f"no longer waiting for {run.name}, which is {run.state}; {run.name}.wait() waits again."
                ) from None
            interrupted = True
            run.request_stop()
            say(f"{run.name}  stopping after this step; interrupt again to leave it to itself")
    if interrupted:
        raise RunInterrupted(f"{run.name} is {run.state}; its history and model are kept.")
    run.wait()


def _print_until_settled(run: Run, lines: queue.SimpleQueue[str], say: Callable[[str], None]) -> None:
    settled = False
    while not settled:
        settled = run.settled(LOOK_SECONDS)
        while not lines.empty():
            say(lines.get())
