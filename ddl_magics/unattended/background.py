"""A notebook that runs in the background: by a process that outlives the terminal, with its output in a file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ddl_magics import store
from ddl_magics.store import RunRecord, SearchRecord, owner
from ddl_magics.store.files import make_private, write_atomically
from ddl_magics.store.owned_folder import read_object
from ddl_magics.unattended.execution import started_by

#: The environment variable that names a file, in which the process writes which process its kernel is.
KERNEL_FILE = "DDL_MAGICS_KERNEL_FILE"
#: The output of processes that began longer ago is removed.
KEPT_SECONDS = 30 * 86400.0
POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Background:
    """A process in the background, when its first run has been started, or it has ended.

    Attributes:
        pid: of the process, which follows its runs.
        output: the file with what it prints.
        status: its exit status, if it has ended.
        runs, searches: those that it has started so far.
    """

    pid: int
    output: Path
    status: int | None
    runs: Sequence[RunRecord]
    searches: Sequence[SearchRecord]


def start(words: Sequence[str]) -> Background:
    """Start `ddl-magics run` with these words in the background; returns when a run has started, or it has ended."""
    folder = make_private(store.runs_folder().with_name("unattended"))
    _remove_old(folder)
    number = store.new_run_id()
    output, kernel_file = folder / f"{number}.txt", folder / f"{number}.json"
    with open(output, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "ddl_magics", "run", *words],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, KERNEL_FILE: str(kernel_file)},
            start_new_session=True,
        )
    while True:
        status, kernel = process.poll(), read_object(kernel_file)
        runs, searches = started_by(kernel) if kernel else ([], [])
        if runs or searches or status is not None:
            return Background(process.pid, output, status, runs, searches)
        time.sleep(POLL_SECONDS)


def tell_kernel(kernel: owner.Owner) -> None:
    """In the background, tell the process that has started this one which process the kernel is."""
    file = os.environ.pop(KERNEL_FILE, None)
    if file is not None:
        write_atomically(Path(file), [json.dumps(kernel).encode()], lasting=False)


def _remove_old(folder: Path) -> None:
    for file in folder.iterdir():
        if file.stat().st_mtime < time.time() - KEPT_SECONDS:
            file.unlink(missing_ok=True)


def last_lines(output: Path, number: int = 5) -> list[str]:
    """The end of what a process has printed."""
    return [line for line in output.read_text(errors="replace").splitlines() if line.strip()][-number:]
