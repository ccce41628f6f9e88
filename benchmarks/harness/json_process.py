"""Child processes that a benchmark drives by lines of JSON: one in, one out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CHILDREN = ROOT / "benchmarks" / "child_processes"
END_SECONDS = 30.0

_THREADS = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")


def module_command(module: str, *arguments: object, python: str | Path = sys.executable) -> list[str]:
    """The command that runs a file of child_processes/."""
    return [str(python), "-m", f"benchmarks.child_processes.{module}", *map(str, arguments)]


def cpu_environment(one_thread: bool) -> dict[str, str]:
    """The environment of a process that trains without GPU.

    Args:
        one_thread: one thread for operations and one for the graph; else as many as the framework starts by itself.
    """
    environment = {name: value for name, value in os.environ.items() if name not in _THREADS}
    if one_thread:
        environment.update(dict.fromkeys(_THREADS, "1"))
    return {**environment, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}


class JsonProcess:
    """A child process that reads messages from its standard input and writes answers to its standard output.

    Each is one line of JSON. The child imports the packages of this checkout; its standard error is this process' own.

    Args:
        command: its command line.
        environment: its environment variables; this process' own by default.
        folder: its working directory.
        pass_fds: file descriptors that it inherits.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        pass_fds: Sequence[int] = (),
    ) -> None:
        self._command = " ".join(command)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=folder,
            env={**(os.environ if environment is None else environment), "PYTHONPATH": str(ROOT)},
            pass_fds=pass_fds,
        )
        assert self._process.stdin is not None and self._process.stdout is not None  # they are pipes
        self._input, self._output = self._process.stdin, self._process.stdout

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, message: object) -> None:
        """Send a message. SystemExit if the process has ended."""
        try:
            self._input.write(json.dumps(message) + "\n")
            self._input.flush()
        except BrokenPipeError:
            raise self._ended() from None

    def receive(self) -> Any:
        """Wait for the next answer. SystemExit if the process ended without one."""
        line = self._output.readline()
        if not line:
            raise self._ended()
        return json.loads(line)

    def answers(self) -> Iterator[Any]:
        """All answers until the process ends its output."""
        return map(json.loads, self._output)

    def close_input(self) -> None:
        """Ask the process to end."""
        try:
            self._input.close()
        except BrokenPipeError:
            pass  # it has ended, and a message to it was still buffered

    def wait(self, seconds: float = END_SECONDS) -> None:
        """Wait until the process has ended; kill it after `seconds`."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._output.close()

    def _ended(self) -> SystemExit:
        self.wait()
        status = self._process.returncode
        return SystemExit(f"a child process ended with exit status {status}; see its message above: {self._command}")


def ask(processes: Sequence[JsonProcess], message: object) -> list[Any]:
    """Send a message to all processes, then wait for the answer of each."""
    for process in processes:
        process.send(message)
    return [process.receive() for process in processes]


def close(processes: Sequence[JsonProcess]) -> None:
    """End all processes."""
    for process in processes:
        process.close_input()
    for process in processes:
        process.wait()
