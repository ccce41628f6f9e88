"""Stopping runs: by a request to the kernel that follows the run, or by a process if that kernel is gone.

The process is `python -m ddl_magics stop`, because Jupyter Server should not load the clusters and their credentials.
It gets the id of the run and nothing else; its time and the output that is read of it are limited.
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
from typing import Literal

from ddl_magics import store
from ddl_magics.runs import ending

#: Stops the run with the id that follows, and prints the result as JSON in its last line.
COMMAND = (sys.executable, "-m", "ddl_magics", "stop", "--json")
#: Time that a request waits for the process; the result of a longer one is in `stop` of the run.
ANSWER_SECONDS = 8.0
#: The process limits its own time to `STOP_SECONDS`; it is killed after a minute more.
PROCESS_SECONDS = ending.STOP_SECONDS + 60.0
MAX_OUTPUT_BYTES = 64 * 2**10
#: Number of results that are remembered.
MAX_RESULTS = 100

_log = logging.getLogger(__name__)

#: `StopResult` of `openapi.yaml`.
StopResult = dict[str, str]
#: "stopping": the process is still at work.
Outcome = Literal[ending.Outcome, "stopping"]


class StopService:
    """Stops the runs of one server, on its event loop.

    Two servers may each start a process for the same run: one of them stops it, the other one notices.
    """

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[StopResult]] = {}
        self._results: OrderedDict[str, StopResult] = OrderedDict()

    async def stop(self, record: store.RunRecord) -> StopResult:
        """Stop the run, or ask its kernel to.

        Raises:
            OSError: the request cannot be written into the store, or the run was deleted.
        """
        answer = await asyncio.to_thread(ending.ask_stored, record)
        if answer.outcome != "runs" or not record.driver_address:
            return answer.to_record()
        task = self._tasks.get(record.id)
        if task is None:
            task = self._tasks[record.id] = asyncio.create_task(self._stop_without_kernel(record))
        finished, _ = await asyncio.wait({task}, timeout=ANSWER_SECONDS)
        return task.result() if finished else _stopping(record.name)

    def result(self, record: store.RunRecord) -> StopResult | None:
        """The result of the newest attempt to stop a run without its kernel; None if there was none."""
        return _stopping(record.name) if record.id in self._tasks else self._results.get(record.id)

    async def _stop_without_kernel(self, record: store.RunRecord) -> StopResult:
        try:
            result = await self._run_process(record)
        except OSError as error:
            result = _failed(record, f"python -m ddl_magics stop could not be started: {error}")
        finally:
            self._tasks.pop(record.id, None)
        self._results[record.id] = result
        while len(self._results) > MAX_RESULTS:
            self._results.popitem(last=False)
        return result

    async def _run_process(self, record: store.RunRecord) -> StopResult:
        # `-m` imports from the working directory: the folder of the runs has no modules, that of the notebooks may.
        process = await asyncio.create_subprocess_exec(
            *COMMAND,
            record.id,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=store.runs_folder(),
            start_new_session=True,
        )
        try:
            output = await asyncio.wait_for(_output(process), PROCESS_SECONDS)
        except asyncio.TimeoutError:
            return _failed(record, f"python -m ddl_magics stop did not finish within {PROCESS_SECONDS:.0f} s")
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        status = process.returncode
        return _parse(output) or _failed(record, f"python -m ddl_magics stop failed with exit status {status}")


def _stopping(name: str) -> StopResult:
    message = f"{name} has no kernel: its session is being searched, to stop the run there."
    return {"outcome": "stopping", "message": message, "how": ""}


async def _output(process: asyncio.subprocess.Process) -> bytes:
    """The end of what a process prints, once it has ended."""
    assert process.stdout is not None
    tail = b""
    while chunk := await process.stdout.read(MAX_OUTPUT_BYTES):
        tail = (tail + chunk)[-MAX_OUTPUT_BYTES:]
    await process.wait()
    return tail


def _parse(output: bytes) -> StopResult | None:
    """The JSON in the last line; None if there is none."""
    try:
        answer = json.loads(output.decode(errors="replace").strip().rpartition("\n")[2])
        return {name: str(answer[name]) for name in ("outcome", "message", "how")}
    except (ValueError, KeyError, TypeError):
        _log.warning("python -m ddl_magics stop printed no result: %s", output[-2000:].decode(errors="replace"))
        return None


def _failed(record: store.RunRecord, reason: str) -> StopResult:
    lost = f"{record.name} is LOST: its kernel is gone, and it may still be training on {record.cluster}"
    return {
        "outcome": "runs",
        "message": f"{lost}: {reason}.",
        "how": f"Run python -m ddl_magics stop {record.id} in a terminal to see why.",
    }
