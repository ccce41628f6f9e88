"""Stopping runs: a request to the kernel that follows the run, or, where it is gone, a process that ends the run.

The process is `python -m ddl_magics stop`, as what it needs (the clusters, their credentials) is nothing that belongs
into Jupyter Server. It gets the run's id and nothing else, its time is bounded, and so is what is read of its output.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from collections import OrderedDict

from ddl_magics import ending, store

#: Ends the run whose id follows, and says what it did in its last line.
COMMAND = (sys.executable, "-m", "ddl_magics", "stop", "--json")
#: How long a request waits for the process; what becomes of it later is told with the run.
ANSWER_SECONDS = 8.0
#: Longer than the process gives itself.
PROCESS_SECONDS = ending.STOP_SECONDS + 60.0
OUTPUT_BYTES = 64 * 2**10
#: What became of so many runs is remembered.
REMEMBERED = 100

_log = logging.getLogger(__name__)

Report = dict[str, str]


class Stopping:
    """The stops of one server, on its event loop. Of several servers each may start a process, and one ends the run."""

    def __init__(self) -> None:
        self._under_way: dict[str, asyncio.Task[Report]] = {}
        self._reports: OrderedDict[str, Report] = OrderedDict()

    async def stop(self, record: store.RunRecord) -> Report:
        """End the run, or have it ended; `Stop` in `openapi.yaml`.

        Raises:
            OSError: its kernel cannot be asked, as the store takes no request, or the run has been removed.
        """
        answer = await asyncio.to_thread(ending.ask_stored, record)
        if answer.outcome != "runs" or not record.place:
            return answer.to_record()
        task = self._under_way.get(record.id)
        if task is None:
            task = self._under_way[record.id] = asyncio.create_task(self._end(record))
        done, _ = await asyncio.wait({task}, timeout=ANSWER_SECONDS)
        return task.result() if done else self._waiting(record.name)

    def report(self, record: store.RunRecord) -> Report | None:
        """What became of the newest stop of a run without a kernel; None if there was none."""
        return self._waiting(record.name) if record.id in self._under_way else self._reports.get(record.id)

    def _waiting(self, name: str) -> Report:
        words = f"{name} has no kernel: its session is being looked for, to end the run there."
        return {"outcome": "stopping", "message": words, "how": ""}

    async def _end(self, record: store.RunRecord) -> Report:
        try:
            report = await self._ask_process(record)
        except OSError as error:
            report = _unknown(record, f"the process that ends runs could not be started: {error}")
        finally:
            self._under_way.pop(record.id, None)
        self._reports[record.id] = report
        while len(self._reports) > REMEMBERED:
            self._reports.popitem(last=False)
        return report

    async def _ask_process(self, record: store.RunRecord) -> Report:
        # In the folder of the runs: -m would import what lies in the server's own folder, the notebooks'.
        process = await asyncio.create_subprocess_exec(
            *COMMAND,
            record.id,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=store.runs_folder(),
            start_new_session=True,
        )
        assert process.stdout is not None
        try:
            output = await asyncio.wait_for(_tail(process.stdout), PROCESS_SECONDS)
            await process.wait()
        except asyncio.TimeoutError:
            return _unknown(record, f"the process that ends runs had not ended after {PROCESS_SECONDS:.0f} s")
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        return _answer(output) or _unknown(record, f"the process that ends runs failed ({process.returncode})")


async def _tail(stream: asyncio.StreamReader) -> bytes:
    tail = b""
    while part := await stream.read(OUTPUT_BYTES):
        tail = (tail + part)[-OUTPUT_BYTES:]
    return tail


def _answer(output: bytes) -> Report | None:
    """The JSON in the last line."""
    try:
        answer = json.loads(output.decode(errors="replace").strip().rpartition("\n")[2])
        return {name: str(answer[name]) for name in ("outcome", "message", "how")}
    except (ValueError, KeyError, TypeError):
        _log.warning("ddl_magics stop said: %s", output[-2000:].decode(errors="replace"))
        return None


def _unknown(record: store.RunRecord, why: str) -> Report:
    lost = f"{record.name} is LOST: its kernel is gone, and whether it still trains on {record.cluster} is unknown"
    return {
        "outcome": "runs",
        "message": f"{lost}: {why}.",
        "how": f"See python -m ddl_magics stop {record.id} in a terminal.",
    }
