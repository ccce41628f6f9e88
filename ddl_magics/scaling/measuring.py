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
from ddl_magics.scaling.prediction import formatted
from ddl_magics.scaling.report import ScalingReport
from ddl_magics.wording import counted

#: Longest time until an interrupt of the kernel is handled.
POLL_SECONDS = 0.2

#: Fields in which runs of the same measurement may differ.
_IDENTITY_FIELDS = dict.fromkeys(("run", "name", "folder"))


def earlier(parent: str, cluster: str) -> list[Run]:
    """The finished runs on the cluster that measured the run `parent`, the newest first."""
    records = store.list_runs()
    runs = [r for r in records if r.spec.get("parent") == parent and r.cluster == cluster and r.state == ev.FINISHED]
    return [Run.stored(record) for record in runs]


class ScalingRuns:
    """The runs of `%ddl scale`, which fill its report.

    Args:
        report: each measurement is added to it at once.
        check: returns why a run would be refused, in one line, or None; starts nothing.
        submit: starts a run. Raises UsageError if it is refused.
        measured: runs of earlier measurements.
    """

    def __init__(
        self,
        report: ScalingReport,
        check: Callable[[RunSpec], str | None],
        submit: Callable[[RunSpec], Run],
        measured: Sequence[Run] = (),
    ) -> None:
        self._report, self._check, self._submit, self._measured = report, check, submit, measured

    def run(self, specs: Sequence[RunSpec]) -> None:
        """Measure the runs.

        Raises:
            UsageError: the cluster takes none.
            RunInterrupted: the kernel was interrupted. The report has the measurements so far.
        """
        report, accepted = self._report, self._accepted(specs)
        report.planned = len(accepted)
        remaining = []
        for spec in accepted:
            measurement = self._earlier(spec)
            if measurement is None:
                remaining.append(spec)
            else:
                report.runs.append(measurement)
        if report.runs:
            was = "was" if len(report.runs) == 1 else "were"
            print(f"{counted(len(report.runs), 'run')} {was} measured before; --again measures anew")
        refused: set[tuple[str, int]] = set()
        for position, spec in enumerate(remaining, 1):
            if (spec.strategy, spec.workers) not in refused and not self._measure(spec, f"{position}/{len(remaining)}"):
                refused.add((spec.strategy, spec.workers))

    def _accepted(self, specs: Sequence[RunSpec]) -> list[RunSpec]:
        """The runs that the cluster takes; adds a note for each combination that it refuses."""
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
        comparable = _comparable(spec)
        for run in self._measured:
            if _comparable(run.spec) == comparable:
                measurement = measured_run(run.spec, run.events)
                if measurement is not None:
                    return measurement
        return None

    def _measure(self, spec: RunSpec, position: str) -> bool:
        """Run, and add the measurement. Returns False if another seed would fail as well."""
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
            progress = f"{len(self._report.runs)} of {counted(self._report.planned, 'run')} measured"
            raise RunInterrupted(
                f"{run.name} stops; {progress}. The same line again continues with the others."
            ) from None
        except DistributedCellError as error:
            self._note(spec, f"{run.name} failed: {error.message.splitlines()[0]}")
            return False
        measurement = measured_run(run.spec, run.events) if run.state == ev.FINISHED else None
        if measurement is None:
            self._note(spec, f"{run.name} is {run.state}, and has measured nothing: train for more steps")
            return run.state == ev.STOPPED
        self._report.runs.append(measurement)
        print(f"{head}: {formatted(measurement.seconds)} s, {formatted(measurement.rate)} samples/s")
        return True

    def _note(self, spec: RunSpec, text: str) -> None:
        line = f"{spec.strategy} with {counted(spec.workers, 'worker')} {text}"
        self._report.notes.append(line)
        print(line)


def _comparable(spec: RunSpec) -> dict[str, Any]:
    """The fields that are equal in runs of the same measurement."""
    return {**spec.to_record(), **_IDENTITY_FIELDS}
