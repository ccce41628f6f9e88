"""Faults of the rooms that need no run: a process of ours at work in a folder, what befalls it, and what must be true.

A room's fault is a function of an `Act`. It returns what was said, for the record, where that had to be said; "" where
all went well; and raises `Wrong` with what is wrong.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from support import paths

from chaos import power
from chaos.hosts import mount, unmount

CHILD_SECONDS = 120.0
#: A folder of a killed process is a later one's to remove, once it is so old.
FORGOTTEN_SECONDS = 120.0


class Wrong(Exception):
    """What a room's fault has found."""


def check(condition, words):
    if not condition:
        raise Wrong(words)


@dataclass(frozen=True)
class Room:
    """begin(act): does a fault, and judges it. seconds: within which it must be over. kinds: of what it is done to."""

    begin: Callable
    kinds: tuple = ("",)
    seconds: float = 240.0


class Act:
    """A fault that is being done: `base` is a folder of its own, `random` its seed's, `kind` one of the room's."""

    def __init__(self, base, random, kind):
        self.base, self.random, self.kind = Path(base), random, kind
        self.about = ""
        self._stack = contextlib.ExitStack()
        for name in ("tmp", "store", "work", "power"):
            (self.base / name).mkdir()
        self.work = self.base / "work"
        self._logs = 0

    def start(self, function, *arguments, recorded=None, **variables):
        """A process of chaos.child. recorded: (its file of changes, which one ends it)."""
        environment = {
            **paths.environment(),
            "TMPDIR": str(self.base / "tmp"),
            "JUPYTER_DATA_DIR": str(self.base / "store"),
            "CHAOS_ROOM": str(self.base),
            **variables,
        }
        if recorded:
            environment["CHAOS_POWER"] = json.dumps([str(self.base), *recorded])
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "chaos.child",
                f"{function.__module__}.{function.__qualname__}",
                json.dumps(arguments),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=self.work,
            start_new_session=True,
        )
        self._stack.callback(_end, process)
        return process

    def ended(self, function, *arguments, seconds=CHILD_SECONDS, **how):
        """(the lines that a process has printed, its exit status, its last line of errors)."""
        process = self.start(function, *arguments, **how)
        try:
            out, errors = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise Wrong(f"{function.__name__} has not ended within {seconds:g} s") from None
        return out.splitlines(), process.returncode, (errors.strip().splitlines() or [""])[-1]

    def done(self, function, *arguments, **how):
        """The lines of a process that must end well."""
        lines, status, error = self.ended(function, *arguments, **how)
        check(status == 0, f"{function.__name__} has ended with {status}: {error}")
        return lines

    def broken_off(self, function, *arguments, changes, cut=False):
        """The lines of a process that is killed at one of its `changes`, or after them. cut: as by a power cut."""
        self._logs += 1
        log = self.base / "power" / f"{self._logs}.log"
        log.touch()
        end_at = self.random.randint(1, changes + 1)
        lines, status, error = self.ended(function, *arguments, recorded=(str(log), end_at))
        check(status in (0, -signal.SIGKILL), f"{function.__name__} has ended with {status}: {error}")
        self.about = f"at change {end_at} of {changes}"
        if cut:
            temporary = str(self.base / "tmp")  # which is empty after a start of the machine, or not cut
            lasting = [change for change in power.read(log) if not change[1].startswith(temporary)]
            self.about += f", {power.cut(lasting, self.random)} changes of folders lost"
        return lines

    def changes(self, function, *arguments):
        """How many changes a process makes that is not broken off."""
        self._logs += 1
        log = self.base / "power" / f"{self._logs}.log"
        log.touch()
        self.done(function, *arguments, recorded=(str(log), 0))
        return len(power.read(log))

    def disk(self, name, size):
        """A folder with a disk of its own."""
        folder = self.work / name
        mount(folder, size)
        self._stack.callback(unmount, folder)
        return folder

    def close(self):
        self._stack.close()

    def left(self):
        """What is left of ours, a line each, once a later process has removed what killed ones had."""
        deadline = time.monotonic() + 10
        while (found := _processes(self.base)) and time.monotonic() < deadline:
            time.sleep(0.1)
        problems = [f"processes are left: {found}"] if found else []
        past = time.time() - FORGOTTEN_SECONDS
        for pattern in ("ddl-*/.owner", "ddl-*"):
            for path in (self.base / "tmp").glob(pattern):
                os.utime(path, (past, past))
        self.done(sweep)
        return problems + [f"{path.name} is left in the temporary folder" for path in (self.base / "tmp").glob("ddl-*")]


def sweep():
    """As each process of ours that makes a temporary folder."""
    from ddl_magics.runtime import scratch

    scratch.sweep()


def age(folder):
    """Make what has a hidden name in a folder as old as what a writer removes that finds it."""
    for path in Path(folder).rglob(".*.part"):
        os.utime(path, (1, 1))


@contextlib.contextmanager
def acting(random, kind):
    """An `Act`, and nothing of it afterwards."""
    base = tempfile.mkdtemp(prefix="chaos-")
    act = Act(base, random, kind)
    try:
        yield act
    finally:
        act.close()
        shutil.rmtree(base, ignore_errors=True)


def _end(process):
    for pipe in (process.stdout, process.stderr):
        pipe.close()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _processes(base):
    variable = f"CHAOS_ROOM={base}".encode()
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if variable in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.append(int(pid))
    return found
