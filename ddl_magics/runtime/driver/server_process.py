"""The processes of a run's parameter servers, as the driver sees them: started, asked for their ports, watched, ended.

They are processes of their own because in the driver's they would share the interpreter's lock with the user's cells.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
from typing import Any, Callable

from .. import package
from ..transport import wire

START_SECONDS = 30.0
#: How long the servers wait for rank 0 to be started again once it has died.
REJOIN_SECONDS = 300.0
#: The same where ranks come and go: it may have to wait for a slot.
LONG_REJOIN_SECONDS = 1800.0
CLOSE_SECONDS = 5.0
#: What a server prints is shown up to here.
MAX_OUTPUT_BYTES = 1 << 20
MAX_LINE_BYTES = 8 << 10


class ParameterServers:
    """The servers of a run. `addresses`: (host, port) of each. `death`: how one ended before `close`, or None.

    rule: as --rule takes it. count: of servers. host: where they listen; advertised: where the ranks reach them.
    on_output(text): called with lines that a server prints, up to `MAX_OUTPUT_BYTES` of each. on_death(message): called
    once there is a `death`. workers: with which the run begins; max_workers: how many there may be, where they come and
    go, or 0.
    """

    def __init__(
        self,
        credentials: wire.Credentials,
        workers: int,
        rule: str | None,
        count: int,
        host: str,
        advertised: str,
        on_output: Callable[[str], None],
        on_death: Callable[[str], None],
        max_workers: int = 0,
    ) -> None:
        config = {
            "credentials": credentials.to_json(),
            "host": host,
            "size": workers,
            "attempt": 1,
            "rule": rule,
            "options": {
                "rejoin_seconds": LONG_REJOIN_SECONDS if max_workers else REJOIN_SECONDS,
                "max_size": max_workers,
            },
        }
        self.death: str | None = None
        self._on_death = on_death
        self._processes: list[_Process] = []
        try:
            for _ in range(count):
                self._processes.append(_Process(config, on_output))
            self.addresses: list[wire.Address] = [(advertised, process.port()) for process in self._processes]
        except BaseException:
            self.close()
            raise
        for process in self._processes:
            threading.Thread(target=process.watch, args=(self._note_death,), daemon=True).start()

    def _note_death(self, message: str) -> None:
        if self.death is None:
            self.death = message
            self._on_death(message)

    def close(self) -> None:
        for process in self._processes:
            process.ask_to_end()
        for process in self._processes:
            process.end()


class _Process:
    """config: JSON object that parameter_server/server.py reads. on_output: as `ParameterServers` has it."""

    def __init__(self, config: dict[str, Any], on_output: Callable[[str], None]) -> None:
        environment = dict(os.environ)
        environment["PYTHONPATH"] = os.pathsep.join([os.path.dirname(package.FOLDER)] + [p for p in sys.path if p])
        self._process = subprocess.Popen(
            [sys.executable, "-m", package.NAME + ".parameter_server.server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,  # not the driver's: a write to its real stderr ends a Livy session
            env=environment,
            start_new_session=True,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self._closing = False
        self._last_line = ""
        self._reader = threading.Thread(target=self._read_output, args=(on_output,), daemon=True)
        self._reader.start()
        self._stdin.write(json.dumps(config).encode() + b"\n")
        self._stdin.flush()

    def port(self) -> int:
        """Wait until the server has reported its port."""
        readable, _, _ = select.select([self._stdout], [], [], START_SECONDS)
        if not readable:
            raise RuntimeError("the parameter server did not start within %g s%s" % (START_SECONDS, self._last_words()))
        line = self._stdout.readline()
        if not line:
            raise RuntimeError(self._death(self._process.wait(START_SECONDS)))
        return int(json.loads(line.decode())["port"])

    def watch(self, on_death: Callable[[str], None]) -> None:
        status = self._process.wait()
        if not self._closing:
            on_death(self._death(status))

    def _death(self, status: int) -> str:
        message = "the parameter server (process %d) ended with status %s%s"
        return message % (self._process.pid, status, self._last_words())

    def _read_output(self, on_output: Callable[[str], None]) -> None:
        assert self._process.stderr is not None
        printed = 0
        with self._process.stderr as stderr:
            for block in iter(lambda: stderr.readline(MAX_LINE_BYTES), b""):
                text = block.decode("utf-8", "replace")
                self._last_line = text.strip() or self._last_line
                if printed < MAX_OUTPUT_BYTES:
                    on_output(text)
                printed += len(block)

    def _last_words(self) -> str:
        self._reader.join(1.0)
        return ": " + self._last_line if self._last_line else ""

    def ask_to_end(self) -> None:
        self._closing = True
        self._stdin.close()

    def end(self) -> None:
        try:
            self._process.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._stdout.close()
