"""The launch on a real YARN: seconds from submitting a cell to its first training step, in client and cluster mode.

    python -m benchmarks.launch_on_yarn [--quick] [--rounds N] [--keep FILE]

The cell, the bare barrier job and the two times of each are those of launch_time (b6). The YARN is that of the tests:
two hosts with a NodeManager each, and 2 executors of one core. In client mode the Spark session is in the notebook's
process. In cluster mode it is behind a Livy 0.7.1, with its driver in a container, and the bare job is a statement of
the Livy session. A round has a session of each kind, ours and bare, in random order, and takes some three minutes.
--keep adds the times to a file, and reports all that it has: a long benchmark in parts. Wants root, `make yarn-env` and
`make livy-env`.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from statistics import median

from IPython.utils.capture import capture_output
from livy.client import Client, Session
from support import processes
from yarn import rig

from .harness import command, report
from .launch_time import WORKERS, Launch, Sessions, by_variant, measure, samples, tables, wait_until

ROUNDS, QUICK_ROUNDS = 3, 1
LATER, QUICK_LATER = 2, 1
#: A driver in a container and its executors are there within so many seconds.
SESSION_SECONDS = 120


class ClientMode(Sessions):
    """With the driver in this process. is_idle: whether YARN has no application any more."""

    def __init__(self, folder: Path, is_idle: Callable[[], bool], **settings: str) -> None:
        super().__init__(folder, **settings)
        self._is_idle = is_idle

    def begin(self) -> None:
        """See Sessions."""
        self._ddl("use embedded")
        super().begin()

    def close(self) -> None:
        """See Sessions."""
        super().close()
        wait_until(self._is_idle)

    def _ddl(self, line: str) -> None:
        with capture_output():
            self.shell.run_line_magic("ddl", line)


class ClusterMode(ClientMode):
    """Behind the Livy at `url`, whose drivers are in containers."""

    _session: Session | None = None

    def __init__(self, folder: Path, is_idle: Callable[[], bool], url: str) -> None:
        super().__init__(folder, is_idle)
        self._client = Client(url)

    def begin(self) -> None:
        """See Sessions."""
        session = self._session = self._client.create()
        session.until("idle", seconds=SESSION_SECONDS)
        counted = "len(sc._jsc.sc().statusTracker().getExecutorInfos()) - 1"
        wait_until(lambda: session.text(counted) == str(WORKERS))
        self._ddl(f"use livy {self._client.url} --session {session.path.rpartition('/')[2]}")

    def close(self) -> None:
        """See Sessions."""
        if self._session is not None:
            self._client.delete(self._session.path)
        self._session = None
        super().close()

    def _execute(self, code: str) -> None:
        assert self._session is not None
        self._session.text(f"exec({code!r}, globals())")


def kept(file: Path, measured: Iterable[tuple[str, Launch]]) -> Iterator[tuple[str, Launch]]:
    """Add launches to a file of JSON lines as they come; yields all that it has."""
    with file.open("a+") as lines:
        for name, launch in measured:
            print(json.dumps([name, *launch]), file=lines, flush=True)
        lines.seek(0)
        for name, *fields in map(json.loads, lines):
            yield name, Launch(*fields)


def ratios(launches: Mapping[str, list[Launch]]) -> str:
    """A table of medians of ours and bare, with their ratio."""
    rows = []
    for mode in ("client mode", "cluster mode"):
        for ours, bare in (("first run", "first job"), ("later run", "later job")):
            pair = [launches[f"{mode}: {name}"] for name in (f"ours, {ours}", f"bare, {bare}")]
            begins = [median(launch.begin for launch in of) for of in pair]
            loads = [median(launch.load for launch in of) for of in pair]
            rows.append((f"{mode}, {ours}", *begins, begins[0] - begins[1], begins[0] / begins[1], *loads))
    header = ("until the first step begins, medians", "ours s", "bare s", "more s", "ratio", "load, ours", "bare")
    return report.table(header, rows)


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = command.parser("launch_on_yarn", __doc__, "one round")
    command.add_rounds(parser, ROUNDS)
    parser.add_argument("--keep", type=Path, metavar="FILE", help="add the times to it, and report all that it has")
    options = parser.parse_args(arguments)
    rounds, later = command.rounds(options, ROUNDS, QUICK_ROUNDS), QUICK_LATER if options.quick else LATER
    if problem := rig.obstacle():
        raise SystemExit(f"launch_on_yarn: {problem}")
    processes.start_session()
    with tempfile.TemporaryDirectory(prefix="ddl-launch-") as name:
        folder = Path(name)
        os.environ["JUPYTER_DATA_DIR"] = str(folder / "data")
        ours = {f"spark.executorEnv.{processes.SESSION_VARIABLE}": os.environ[processes.SESSION_VARIABLE]}
        with rig.Yarn(folder / "yarn") as yarn, yarn.livy(folder / "livy", "cluster", **ours) as livy:
            os.environ.update(yarn.environment())
            times = folder / "yarn" / "times"  # which the hosts have, too
            before = report.machine()
            print(before)
            kinds = {
                "client mode: ": ClientMode(times, lambda: not yarn.applications(), **yarn.settings(WORKERS), **ours),
                "cluster mode: ": ClusterMode(times, lambda: not yarn.applications(), livy.url),
            }
            measured = measure(kinds, rounds, later)
            launches = by_variant(kept(options.keep, measured) if options.keep else measured)
    begins, ends = tables(launches)
    print(ratios(launches) + "\n")
    report.finish(samples(begins, ends), [], machine_before=before)


if __name__ == "__main__":
    main()
