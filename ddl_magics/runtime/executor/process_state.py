"""What a process is doing, as Linux sees it: its state and where it waits in the kernel; and its Python stack.

The stack is written by the process itself, as a signal asks for it: `faulthandler` does so without the interpreter's
lock. A process that is stopped, or waits in an uninterruptible call, cannot answer.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import time
from typing import NamedTuple

from .telemetry import children, proc_text, stat_fields

#: Asks for the stack; 0 where there are no such signals. No library is known to use it. Its default action would end a
#: process, so see `_catches`.
STACK_SIGNAL = int(signal.SIGRTMAX) - 7 if hasattr(signal, "SIGRTMAX") else 0
STACK_SECONDS = 2.0
#: Frames that are shown, the innermost ones.
FRAMES = 8

#: States in which a process cannot continue by itself, and cannot answer a signal.
STOPPED = frozenset("Tt")
BLOCKED = frozenset("TtD")
_WORDS = {
    "R": "is running",
    "S": "is asleep",
    "D": "waits for a disk or a network file system",
    "T": "is stopped",
    "t": "is stopped by a debugger",
}


class ProcessState(NamedTuple):
    """pid: its number. letter: as in `ps`. Its text reads more of the process: where it waits, what is swapped out."""

    pid: int
    letter: str

    def __str__(self) -> str:
        channel = proc_text(self.pid, "wchan")
        swapped_bytes = int(_status(self.pid).get("VmSwap", "0").split()[0]) * 1024
        details = "state " + self.letter + (", in " + channel if channel not in ("", "0") else "")
        text = "process %d %s (%s)" % (self.pid, _WORDS.get(self.letter, "does not run"), details)
        return text + ("; %.1f GB of it are swapped out" % (swapped_bytes / 1e9) if swapped_bytes >= 1e8 else "")


def read(pid: int, with_children: bool = False) -> ProcessState | None:
    """The state of the main thread of a process, or of its first child that is blocked; None when it is gone."""
    states = [_read(process_id) for process_id in [pid] + (children(pid) if with_children else [])]
    return next((state for state in states if state is not None and state.letter in BLOCKED), states[0])


def _read(pid: int) -> ProcessState | None:
    fields = stat_fields(pid)
    return ProcessState(pid, fields[0]) if fields else None


def _status(pid: int) -> dict[str, str]:
    """The lines of /proc/PID/status, by name; none when the process is gone."""
    pairs = (line.partition(":") for line in proc_text(pid, "status").splitlines())
    return {name: value.strip() for name, _, value in pairs}


# -- the Python stack


def offer_stack(folder: str) -> None:
    """Have this process write the stack of its main thread to a file in `folder` whenever it gets STACK_SIGNAL."""
    if STACK_SIGNAL:
        file = open(_stack_file(folder), "ab")  # noqa: SIM115 - the handler writes to it as long as the process lives
        faulthandler.register(STACK_SIGNAL, file, all_threads=False)


def stack(pid: int, folder: str) -> str:
    """The innermost frames of a process' main thread, a line each; "" where it cannot be had within seconds.

    folder: the one that it gave to `offer_stack`.
    """
    path = _stack_file(folder)
    try:
        before = os.path.getsize(path)
        if not _catches(pid, STACK_SIGNAL):
            return ""
        os.kill(pid, STACK_SIGNAL)
        deadline, size = time.monotonic() + STACK_SECONDS, before
        while time.monotonic() < deadline:
            time.sleep(0.1)
            size, previous_size = os.path.getsize(path), size
            if size > before and size == previous_size:
                break
        with open(path, errors="replace") as file:
            file.seek(before)
            lines = file.read().splitlines()
    except OSError:
        return ""
    frames = [line for line in lines if line.startswith("  File ")]
    return "\n".join(frames[:FRAMES] + (["  ..."] if len(frames) > FRAMES else []))


def _stack_file(folder: str) -> str:
    return os.path.join(folder, "stack")


def _catches(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal, which would end it otherwise."""
    return bool(int(_status(pid).get("SigCgt", "0"), 16) >> (number - 1) & 1)
