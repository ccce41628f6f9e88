"""`--dry-run`: what a cell would do, as a run or as a search, as a table; nothing is started."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from IPython.core.error import UsageError

from ddl_magics.clusters import dataset_shape, local_spark, machine, preflight
from ddl_magics.clusters.base import NotStarted, Ready, Unreachable
from ddl_magics.clusters.cluster import Cluster
from ddl_magics.options.table import OPTIONS, STRATEGIES
from ddl_magics.runs import live_tracking
from ddl_magics.runtime.assert_never import assert_never
from ddl_magics.runtime.parameter_server import update_rules
from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.search import space
from ddl_magics.search.launcher import capacity
from ddl_magics.search.plan import make_plan
from ddl_magics.search.warm_start import with_earlier_trials
from ddl_magics.wording import counted, in_bytes

#: Number of variables that are listed, the largest first.
MOST_VARIABLES = 8


def report(spec: RunSpec, cluster: Cluster, namespace: Mapping[str, Any]) -> str:
    """A table of what the run or the search would need and do, and why it would be refused."""
    refused = cluster.check(spec, namespace)
    problem = refused.message if refused else None
    lines = [("cluster", f"{cluster.name}: {_slots(cluster, spec)}")]
    try:
        lines += _trials(spec, cluster, namespace) if spec.trials else _parameters(spec)
        live_tracking.require(spec)
    except UsageError as error:
        problem = str(error)
    lines += _training(spec)
    if problem is None and cluster.in_kernel:
        lines += _sizes(spec, preflight.captured(spec, namespace))
        settings = preflight.session_settings(streams=spec.seed is None)
        lines += [("settings", settings)] if settings else []
        lines += [("dataset", shape) for shape in [dataset_shape.described(spec, namespace)] if shape]
    lines += [("notice", notice) for notice in ([] if problem else cluster.notices(spec, namespace))]
    lines.append(("refused", problem) if problem else ("start", "nothing was started: leave --dry-run out"))
    width = max(len(subject) for subject, _ in lines)
    return "\n".join(f"{subject:<{width}}  {finding}" for subject, finding in lines)


def _slots(cluster: Cluster, spec: RunSpec) -> str:
    workers, status = counted(spec.workers, "worker") + _per_trial(spec), cluster.status()
    if spec.min_workers is not None:
        workers = f"{spec.min_workers} to {workers}"
    if isinstance(status, Ready):
        if spec.trials:
            return f"{workers}; it has {counted(status.slots, 'slot')}"
        then = "; the run would wait for its turn"
        if status.free >= spec.min_slots:
            then = ""
        elif status.slots < spec.min_slots and cluster.grows(spec):
            then = "; Spark would be started anew with more"
        return f"{workers} on {status.free} free of {counted(status.slots, 'slot')}{then}"
    if isinstance(status, NotStarted | Unreachable):
        return f"{workers}; {status.message}"
    assert_never(status)


def _per_trial(spec: RunSpec) -> str:
    return " for each trial" if spec.trials else ""


def _parameters(spec: RunSpec) -> Iterator[tuple[str, str]]:
    """The values of the cell's parameters in an ordinary run. Raises UsageError for an invalid value."""
    values = spec.set or {}
    space.check_values(spec.cell, values)
    parameters = {call.parameter.name: call.parameter for call in space.calls(spec.cell) if call.parameter is not None}
    for name, parameter in parameters.items():
        yield "parameter", f"{name} = {values.get(name, f'{parameter.default}, its default')}"


def _trials(spec: RunSpec, cluster: Cluster, namespace: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What a search would do. Raises UsageError if it cannot start."""
    plan = with_earlier_trials(make_plan(spec))
    yield from plan.lines()
    status = cluster.status()
    if isinstance(status, NotStarted) and cluster.in_kernel and "spark.master" not in spec.conf:
        slots = local_spark.default_slots(spec.workers)
        status = Ready(slots, slots, {"master": "local"})
    if isinstance(status, Ready):
        max_runs = (
            preflight.max_concurrent_runs(spec, namespace) if cluster.in_kernel and spec.parallel is None else None
        )
        trials = min(capacity(status, spec.workers, max_runs), spec.parallel or status.slots, plan.spec.trials or 0)
        yield "at once", counted(trials, "trial")


def _training(spec: RunSpec) -> Iterator[tuple[str, str]]:
    yield "strategy", f"{spec.strategy}: {STRATEGIES[spec.strategy]}"
    if spec.rule is not None:
        rule = update_rules.parse(spec.rule)
        settings = (f"{name} = {value:g}" for name, value in sorted(rule.settings.items()))
        derived = (
            f"{setting.name} = {setting.default}"
            for setting in update_rules.RULES[rule.name].settings
            if setting.name not in rule.settings
        )
        yield "rule", ", ".join([rule.name, f"window {spec.window or 'the number of workers'}", *settings, *derived])
    options = [_set(spec, option.name) for option in OPTIONS if option.name not in _NOT_LISTED]
    set_options = [option for option in dict.fromkeys(options) if option]
    if set_options:
        yield "options", ", ".join(set_options)


#: Fields that have a line of their own or do not affect the training.
_NOT_LISTED = (
    *("strategy", "rule", "window", "workers", "dry_run", "wait", "conf"),
    *("set", "trials", "search", "prune", "objective", "parallel", "warm_start"),
)


def _set(spec: RunSpec, name: str) -> str:
    value = getattr(spec, name)
    if value in (None, ""):
        return ""
    return f"{name} {' '.join(map(str, value)) if isinstance(value, tuple) else value}"


def _sizes(spec: RunSpec, captured: preflight.Captured) -> Iterator[tuple[str, str]]:
    largest = sorted(captured.sizes.items(), key=lambda item: -item[1])
    listing = ", ".join(f"{name} ({in_bytes(size)})" for name, size in largest[:MOST_VARIABLES])
    omitted = f" and {len(largest) - MOST_VARIABLES} more" if len(largest) > MOST_VARIABLES else ""
    yield "variables", f"{in_bytes(captured.total)} to each worker: {listing}{omitted}" if captured.sizes else "none"
    memory = machine.memory()
    available = "" if memory is None else f" of {in_bytes(memory)}"
    estimate = f"about {in_bytes(preflight.required_memory(spec, captured))}{_per_trial(spec)}"
    yield "memory", f"{estimate}{available}, without the model and --data"
