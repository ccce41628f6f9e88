"""Makes the runs of a scaling report, one after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from IPython.core.error import UsageError

from ddl_magics import store
from ddl_magics.errors import DistributedCellError, RunInterrupted
from ddl_magics.runs import Run
from ddl_magics.runtime import events as ev
from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.scaling.measurement import MeasuredRun, measured_run
from ddl_magics.scaling.prediction import shown
from ddl_magics.scaling.report import ScalingReport
from ddl_magics.wording import counted

#: Longest time until an interrupt of the kernel is handled.
POLL_SECONDS = 0.2

#: Fields in which two runs may differ that measure the same.
_ANY = dict.fromkeys(("run", "name", "folder"))


def earlier(parent: str, cluster: str) -> list[Run]:
    """The finished runs that were measured for the same run, on the cluster, the newest first."""
    records = store.list_runs()
    mine = [r for r in records if r.spec.get("parent") == parent and r.cluster == cluster and r.state == ev.FINISHED]
    return [Run.stored(record) for record in mine]


class ScalingRuns:
    """The runs of `%ddl scale`, which fill its report.

    Args:
        report: what is measured is added to it at once.
        check: why a run would be refused, in one line, or None; it starts nothing.
        submit: starts a run. UsageError where it is refused.
        known: runs that were measured earlier.
        write_line: prints a line.
    """

    def __init__(
        self,
        report: ScalingReport,
        check: Callable[[RunSpec], str | None],
        submit: Callable[[RunSpec], Run],
        known: Sequence[Run] = (),
        write_line: Callable[[str], None] = print,
    ) -> None:
        self._report, self._check, self._submit = report, check, submit
        self._known, self._write_line = list(known), write_line

    def run(self, specs: Sequence[RunSpec]) -> None:
        """Measure all of them.

        Raises:
            UsageError: none can be run.
            RunInterrupted: the kernel was interrupted. What has been measured is in the report.
        """
        report, wanted = self._report, self._accepted(specs)
        report.planned = len(wanted)
        left = []
        for spec in wanted:
            measurement = self._earlier(spec)
            if measurement is None:
                left.append(spec)
            else:
                report.runs.append(measurement)
        if report.runs:
            was = "was" if len(report.runs) == 1 else "were"
            self._write_line(f"{counted(len(report.runs), 'run')} {was} measured before; --again measures anew")
        refused: set[tuple[str, int]] = set()
        for position, spec in enumerate(left, 1):
            if (spec.strategy, spec.workers) not in refused and not self._measure(spec, f"{position}/{len(left)}"):
                refused.add((spec.strategy, spec.workers))

    def _accepted(self, specs: Sequence[RunSpec]) -> list[RunSpec]:
        """Those that the cluster takes; a note for each combination that it does not."""
        problems: dict[tuple[str, int], str | None] = {}
        for spec in specs:
            key = (spec.strategy, spec.workers)
            if key not in problems:
                problems[key] = self._check(spec)
                if problems[key]:
                    self._note(spec, f"left out: {problems[key]}")
        accepted = [spec for spec in specs if problems[spec.strategy, spec.workers] is None]
        if not accepted:
            raise UsageError(str(next(iter(problems.values()))))
        return accepted

    def _earlier(self, spec: RunSpec) -> MeasuredRun | None:
        wanted = _comparable(spec)
        for run in self._known:
            if _comparable(run.spec) == wanted:
                measurement = measured_run(run.spec, run.events)
                if measurement is not None:
                    return measurement
        return None

    def _measure(self, spec: RunSpec, position: str) -> bool:
        """Make the run, and add what it measures. False where the same with another seed would fail as well."""
        head = f"{position}  {spec.strategy}, {counted(spec.workers, 'worker')}, seed {spec.seed}"
        try:
            run = self._submit(spec)
        except UsageError as error:
            self._note(spec, f"refused: {error}")
            return False
        try:
            while not run.settled(POLL_SECONDS):
                pass
            run.wait()
        except KeyboardInterrupt:
            run.request_stop()
            done = f"{len(self._report.runs)} of {counted(self._report.planned, 'run')} measured"
            raise RunInterrupted(f"{run.name} stops; {done}. The same line again continues with the others.") from None
        except DistributedCellError as error:
            self._note(spec, f"{run.name} failed: {error.message.splitlines()[0]}")
            return False
        measurement = measured_run(run.spec, run.events) if run.state == ev.FINISHED else None
        if measurement is None:
            self._note(spec, f"{run.name} is {run.state}, and has measured nothing: train for more steps")
            return run.state == ev.STOPPED
        self._report.runs.append(measurement)
        self._write_line(f"{head}: {shown(measurement.seconds)} s, {shown(measurement.rate)} samples/s")
        return True

    def _note(self, spec: RunSpec, text: str) -> None:
        line = f"{spec.strategy} with {counted(spec.workers, 'worker')} {text}"
        self._report.notes.append(line)
        self._write_line(line)


def _comparable(spec: RunSpec) -> dict[str, Any]:
    """What is the same in two runs that measure the same."""
    return {**spec.to_record(), **_ANY}
