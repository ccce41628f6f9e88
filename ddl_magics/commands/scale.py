"""`%ddl scale`: measures the cell of a run in this kernel, and prints the report."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

from IPython.core.error import UsageError

from ddl_magics.runs import Run
from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.scaling import ScalingReport
from ddl_magics.scaling.measuring import ScalingRuns, earlier
from ddl_magics.scaling.request import parse, variants
from ddl_magics.session.session import Session


def scale(arguments: Sequence[str], session: Session, namespace: MutableMapping[str, Any]) -> ScalingReport:
    """Measure, print the table, and define the variable RUN_scaling, which also an interrupt leaves.

    Raises:
        UsageError: the line is wrong, or no run can be made.
        RunInterrupted: the kernel was interrupted.
    """
    request = parse(arguments)
    of = session.find(request.run)
    specs = list(variants(of.spec, request))
    cluster = session.cluster
    known = [] if request.again else earlier(of.id, cluster.name)
    report = ScalingReport(of.name)
    names: Mapping[str, Any] = dict(namespace)  # the runs' variables are not to be added to it

    def check(spec: RunSpec) -> str | None:
        refused = cluster.check(spec, names)
        return None if refused is None else refused.message

    def submit(spec: RunSpec) -> Run:
        return session.submit(spec, names)

    variable = f"{of.name}_scaling"
    taken = namespace.get(variable)
    if taken is not None and not isinstance(taken, ScalingReport):
        raise UsageError(f"your variable {variable} would be replaced by the report: rename it.")
    namespace[variable] = report
    try:
        ScalingRuns(report, check, submit, known).run(specs)
    finally:
        if report.runs:
            print(report)
    return report
