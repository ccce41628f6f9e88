"""Executes a notebook in a kernel of its own, prints what its cells print, and waits for the runs that they start.

An interrupt (Ctrl-C) or SIGTERM stops the runs after their current step; the second one ends the kernel at once.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from IPython.core.error import UsageError
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager, NoSuchKernel
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError
from nbformat import NotebookNode

from ddl_magics import store
from ddl_magics.runs import ending
from ddl_magics.runtime import events as ev
from ddl_magics.runtime.wording import without_colours
from ddl_magics.store import RunFolder, RunRecord, SearchFolder, SearchRecord, owner
from ddl_magics.wording import visible_print

#: How often runs are looked at that no cell waits for.
POLL_SECONDS = 1.0
#: Exit statuses. One that a signal has ended has 128 and the number of the signal.
FAILED, STOPPED = 1, 3
#: State of a run, or of all -> exit status.
STATUSES = {ev.FINISHED: 0, ev.STOPPED: STOPPED, ev.FAILED: FAILED}

_STANDARD_ERROR = 2


@dataclass(frozen=True)
class Outcome:
    """What became of a notebook.

    Attributes:
        runs, searches: those that its kernel has started or attached, the oldest first; without the runs of searches.
        error: why it has not come to its end, in one line, or empty.
        signal: the number of the signal that has ended it, or None.
    """

    runs: Sequence[RunRecord]
    searches: Sequence[SearchRecord]
    error: str = ""
    signal: int | None = None

    @property
    def state(self) -> str:
        """FINISHED, STOPPED or FAILED."""
        states = {run.state for run in self.runs} | {search.state for search in self.searches}
        if self.signal is not None:
            return ev.STOPPED
        if self.error or states & {ev.FAILED, ev.LOST}:
            return ev.FAILED
        return ev.STOPPED if ev.STOPPED in states else ev.FINISHED

    @property
    def status(self) -> int:
        """The exit status."""
        if self.signal is not None:
            return 128 + self.signal
        return STATUSES[self.state]


def started_by(process: Mapping[str, Any]) -> tuple[list[RunRecord], list[SearchRecord]]:
    """The runs, but for those of searches, and the searches that a process owns or has owned, the oldest first."""
    runs = [record for record in store.list_runs() if not record.spec.get("parent")]
    searches = store.list_searches()
    return (
        [record for record in reversed(runs) if RunFolder(record.folder).owned_by(process)],
        [record for record in reversed(searches) if SearchFolder(record.folder).owned_by(process)],
    )


class Execution:
    """One execution of a notebook, which gets its outputs.

    Args:
        notebook: to execute.
        folder: the working directory of its kernel.
        kernel_name: of the kernel; empty for IPython's in this Python.
        at_start: called with the kernel's process, as `store.owner` writes one.
    """

    def __init__(
        self,
        notebook: NotebookNode,
        folder: Path,
        kernel_name: str = "",
        at_start: Callable[[owner.Owner], None] = lambda kernel: None,
    ) -> None:
        # Files, which are this user's alone, and no ports of TCP, of which another process could take one.
        self._sockets = tempfile.TemporaryDirectory(prefix="kernel-")
        spec: dict[str, Any] = {"kernel_name": kernel_name} if kernel_name else {"kernel_spec_manager": _ThisPython()}
        self._manager = AsyncKernelManager(transport="ipc", ip=os.path.join(self._sockets.name, "s"), **spec)
        resources = {"metadata": {"path": str(folder)}}
        self._client = _Client(notebook, km=self._manager, resources=resources, timeout=None)
        self._at_start = at_start
        self._signal: int | None = None
        self._kernel: owner.Owner | None = None

    def run(self) -> Outcome:
        """Execute all cells up to the first that fails, and wait for the end of all runs.

        Raises:
            UsageError: the kernel does not start.
        """
        try:
            error = asyncio.run(self._run())
        except NoSuchKernel as missing:
            raise UsageError(f"there is no kernel {missing.name}: jupyter kernelspec list, or name another.") from None
        except RuntimeError as problem:  # of nbclient, for a kernel that dies as it starts
            if self._kernel is not None:
                raise
            raise UsageError(f"the kernel does not start: {problem}") from None
        except asyncio.CancelledError:
            error = ""
        finally:
            self._sockets.cleanup()
        runs, searches = ([], []) if self._kernel is None else started_by(self._kernel)
        return Outcome(runs, searches, "" if self._signal else error, self._signal)

    async def _run(self) -> str:
        # What the kernel's libraries print beside its cells is a message, and no result.
        async with self._client.async_setup_kernel(cleanup_kc=True, stdout=_STANDARD_ERROR):
            self._kernel = owner.process(int(getattr(self._manager.provisioner, "pid", 0)))
            self._listen_to_signals()
            self._at_start(self._kernel)
            error = await self._execute_cells()
            await self._settle()
        return error

    async def _execute_cells(self) -> str:
        """Returns the error of the cell that failed, in one line, or an empty text."""
        for index, cell in enumerate(self._client.nb.cells):
            if self._signal:
                break
            try:
                await self._client.async_execute_cell(cell, index)
            except CellExecutionError as error:
                message = next(iter(error.evalue.splitlines()), "")
                return f"{error.ename}: {message}" if message else error.ename
            except DeadKernelError:
                return "the kernel has died"
        return ""

    async def _settle(self) -> None:
        """Wait for the runs and searches that no cell has waited for."""
        assert self._kernel is not None
        runs, searches = started_by(self._kernel)
        folders: list[RunFolder | SearchFolder] = [RunFolder(run.folder) for run in runs]
        folders += [SearchFolder(search.folder) for search in searches]
        while any((record := folder.record()) is not None and not record.over for folder in folders):
            await asyncio.sleep(POLL_SECONDS)

    def _listen_to_signals(self) -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def stop(number: int) -> None:
            if self._signal:
                task.cancel()
                return
            self._signal = number
            self._interrupting = asyncio.ensure_future(self._manager.interrupt_kernel())
            self._ask_to_stop()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop, number)

    def _ask_to_stop(self) -> None:
        """The kernel's interrupt stops a run that a cell waits for; this stops the others."""
        assert self._kernel is not None
        runs, searches = started_by(self._kernel)
        for run in runs:
            ending.ask_stored(run)
        for search in searches:
            ending.ask_stored_search(search)


class _Client(NotebookClient):
    """Prints what the cells print, as it comes."""

    def process_message(self, msg: dict[str, Any], cell: NotebookNode, cell_index: int) -> NotebookNode | None:
        content = msg["content"]
        if msg["msg_type"] == "stream":
            _report(content["text"])
        elif msg["msg_type"] == "error":
            _report("\n".join(content["traceback"]) + "\n")
        return super().process_message(msg, cell, cell_index)


def _report(text: str) -> None:
    text = visible_print(text if sys.stdout.isatty() else without_colours(text))
    print(text, end="", flush=True)


class _ThisPython(KernelSpecManager):
    """Knows IPython's kernel in this Python, under any name."""

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        return KernelSpec(argv=command, display_name="Python 3", language="python")
