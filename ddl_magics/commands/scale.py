"""`%ddl scale`: measures the cell of a run in this kernel, and prints the report."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from IPython.core.error import UsageError

from ddl_magics.commands.kernel import Kernel
from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.scaling import ScalingReport
from ddl_magics.scaling.measuring import ScalingRuns, earlier
from ddl_magics.scaling.request import variants


def scale(
    kernel: Kernel,
    run: str,
    workers: tuple[int, ...],
    strategy: tuple[str, ...],
    seeds: int,
    epochs: int | None,
    global_batch: bool,
    again: bool,
) -> ScalingReport:
    """Measure, print the table, and define the variable RUN_scaling, also after an interrupt.

    again: measure also what was measured before. The other arguments are those of `variants`.

    Raises:
        UsageError: no run can be made.
        RunInterrupted: the kernel was interrupted.
    """
    session, namespace = kernel.session, kernel.namespace
    scaled = session.find(run)
    specs = list(variants(scaled.spec, workers, strategy, seeds, epochs, global_batch))
    cluster = session.cluster
    measured = [] if again else earlier(scaled.id, cluster.name)
    report = ScalingReport(scaled.name)
    names: Mapping[str, Any] = dict(namespace)  # a copy: the runs must not define variables in the notebook

    def check(spec: RunSpec) -> str | None:
        refused = cluster.check(spec, names)
        return None if refused is None else refused.message

    variable = f"{scaled.name}_scaling"
    if not isinstance(namespace.get(variable), ScalingReport | None):
        raise UsageError(f"your variable {variable} would be replaced by the report: rename it.")
    namespace[variable] = report
    try:
        ScalingRuns(report, check, partial(session.submit, namespace=names), measured).run(specs)
    finally:
        if report.runs:
            print(report)
    return report
