"""The plan of a search, checked before anything starts: number of trials, and the parameters that it samples."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from IPython.core.error import UsageError

from ddl_magics.clusters import machine
from ddl_magics.options.table import PRUNERS, SEARCHES
from ddl_magics.runtime.cell.suggestions import Choices, FloatRange, IntRange, Parameter
from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.search import space
from ddl_magics.wording import counted

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

#: The oldest Optuna that works as written here: the samplers of earlier ones have other defaults.
OLDEST_OPTUNA = 5

#: Searches that take --warm-start.
LEARNING = ("tpe", "cmaes")

_INSTALL = "on the notebook's machine: pip install 'optuna>=5' 'cmaes>=0.12', the extra search of this package."


@dataclass(frozen=True)
class Plan:
    """A search that can start.

    Attributes:
        spec: its `trials` is the number that will run.
        space: the sampled parameters, by name.
        earlier: the trials that --warm-start adds.
    """

    spec: RunSpec
    space: Mapping[str, Parameter]
    earlier: Sequence[FrozenTrial] = ()

    def lines(self) -> Iterator[tuple[str, str]]:
        """Subject and text of each line of a dry run."""
        spec = self.spec
        yield "search", f"{counted(spec.trials or 0, 'trial')}, {spec.search}: {SEARCHES[str(spec.search)]}"
        yield "pruning", f"{spec.prune}: {PRUNERS[str(spec.prune)]}"
        for metric, direction in objectives(spec):
            yield (
                "objective",
                f"the {'highest' if direction == 'max' else 'lowest'} {metric} after a trial's last epoch",
            )
        if self.earlier:
            yield "warm start", f"{counted(len(self.earlier), 'trial')} of an earlier search"
        for name, parameter in self.space.items():
            yield "parameter", f"{name}: {described(parameter)}"
        for name, value in (spec.set or {}).items():
            yield "parameter", f"{name} = {value}, as --set says"


def make_plan(spec: RunSpec) -> Plan:
    """The plan of a search.

    Raises:
        UsageError: Optuna is missing, the cell's parameters cannot be read, or they do not suit --search or --set.
    """
    require_optuna(spec.search)
    _check_objectives(spec)
    sampled = space.searched(spec.cell, spec.set or {})
    trials = spec.trials or 0
    if spec.search == "grid":
        trials = min(trials, space.grid_size(space.grid(sampled)))
    numeric = [name for name, parameter in sampled.items() if isinstance(parameter, (FloatRange, IntRange))]
    if spec.search == "cmaes" and len(numeric) < 2:
        raise UsageError("--search cmaes needs two or more numeric parameters; use --search tpe.")
    if spec.warm_start is not None and spec.search not in LEARNING:
        raise UsageError(
            f"--warm-start is for --search {' and '.join(LEARNING)}, which learn from earlier trials, not for "
            f"{spec.search}."
        )
    return Plan(dataclasses.replace(spec, trials=trials), sampled)


def require_optuna(search: str | None = None) -> None:
    """Check that the libraries of a search are installed. search: that of --search.

    Raises:
        UsageError: one is missing, or too old.
    """
    installed = machine.installed("optuna")
    if installed is None:
        raise UsageError(f"--trials needs Optuna {_INSTALL}")
    if int(installed.partition(".")[0]) < OLDEST_OPTUNA:
        raise UsageError(f"--trials needs Optuna {OLDEST_OPTUNA} or newer, and {installed} is installed {_INSTALL}")
    if search == "cmaes" and machine.installed("cmaes") is None:
        raise UsageError(f"--search cmaes needs the package cmaes {_INSTALL}")


def objectives(spec: RunSpec) -> tuple[tuple[str, str], ...]:
    """The metrics, each with its direction, "max" or "min"."""
    pairs = (objective.rpartition(":") for objective in str(spec.objective).split(","))
    return tuple((metric, direction) for metric, _, direction in pairs)


def _check_objectives(spec: RunSpec) -> None:
    """UsageError where several objectives do not suit --search or --prune."""
    if len(objectives(spec)) == 1:
        return
    if spec.prune != "no":
        raise UsageError(f"--prune {spec.prune} compares trials by one metric: with several objectives, leave it out.")
    if spec.search == "cmaes":
        raise UsageError("--search cmaes has one objective; use --search evolution.")


def described(parameter: Parameter) -> str:
    """The values of a parameter in words: "0.0001 to 0.1, log", "relu, gelu"."""
    if isinstance(parameter, Choices):
        return ", ".join(map(str, parameter.choices))
    default_step = 1 if isinstance(parameter, IntRange) else None
    step = "" if parameter.step == default_step else f", in steps of {parameter.step:g}"
    return f"{parameter.low:g} to {parameter.high:g}{step}{', log' if parameter.log else ''}"
