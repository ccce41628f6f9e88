"""A search at one moment, as values: the source of the text and the live view. Pure."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan
from typing import TYPE_CHECKING, Any

from ddl_magics.dashboard.schema import ENDED_TRIAL_STATES, TRIAL_STATES
from ddl_magics.runtime import events as ev
from ddl_magics.runtime.cell.suggestions import Parameter
from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.search.study import REASON, RUN, texts
from ddl_magics.wording import counted

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

#: States of a trial.
WAITING, TRAINING, FINISHED, PRUNED, FAILED = TRIAL_STATES
ENDED_STATES = ENDED_TRIAL_STATES

_OF_OPTUNA = {"COMPLETE": FINISHED, "PRUNED": PRUNED, "FAIL": FAILED, "RUNNING": TRAINING, "WAITING": WAITING}


@dataclass(frozen=True)
class TrialRow:
    """A trial as it is now.

    Attributes:
        number: from 0.
        state: one of the states above.
        value: of the objective, or the first of several, after the last epoch; None before the first.
        further_values: of further objectives, once the trial has finished.
        params: the sampled values.
        epochs: with a value of the objective.
        seconds: since the trial began, or that it took.
        reason: why it was pruned or failed; else empty.
        run: the id of its run, the last one if it was tried again.
        tries: how many runs it has had.
        begun: when the trial began, in seconds since the epoch; 0 if that is not known.
        curve: (epoch, value of the objective) of each, in order.
    """

    number: int
    state: str
    value: float | None
    params: Mapping[str, Any]
    epochs: int
    seconds: float
    reason: str = ""
    run: str = ""
    tries: int = 1
    begun: float = 0.0
    curve: Sequence[tuple[int, float]] = ()
    further_values: Sequence[float] = ()

    @property
    def values(self) -> dict[str, str]:
        """The parameters as text, as --set takes them."""
        return texts(self.params)


@dataclass(frozen=True)
class SearchView:
    """A search as it is now.

    Attributes:
        metric, direction: the objective, or the first of several; direction is "max" or "min".
        further_objectives: with their directions.
        planned: number of trials.
        seconds: since its begin, or that it took.
        description: how it samples, prunes and runs, in words.
        rows: the trials, by number.
        space: the parameters that are sampled, by name.
    """

    id: str
    name: str
    state: str
    message: str
    metric: str
    direction: str
    planned: int
    seconds: float
    description: str = ""
    rows: Sequence[TrialRow] = field(default_factory=tuple)
    space: Mapping[str, Parameter] = field(default_factory=dict)
    further_objectives: Sequence[tuple[str, str]] = ()

    @property
    def ended_trials(self) -> int:
        return sum(row.state in ENDED_STATES for row in self.rows)

    @property
    def best(self) -> TrialRow | None:
        """The best of the finished trials; with several objectives None."""
        return None if self.further_objectives else min(self._finished, key=self.rank, default=None)

    @property
    def front(self) -> list[TrialRow]:
        """The Pareto front: the finished trials that no other one beats."""
        if not self.further_objectives:
            return [self.best] if self.best else []
        directions = (self.direction, *(direction for _, direction in self.further_objectives))
        signs = [-1 if direction == "max" else 1 for direction in directions]
        points = [
            (row, [sign * value for sign, value in zip(signs, (row.value or 0.0, *row.further_values), strict=True)])
            for row in self._finished
        ]
        front: dict[int, list[float]] = {}
        for row, point in sorted(points, key=lambda row_and_point: row_and_point[1]):  # a point beats only later ones
            if not any(_beats(rival, point) for rival in front.values()):
                front[row.number] = point
        return [row for row in self._finished if row.number in front]

    @property
    def _finished(self) -> list[TrialRow]:
        return [row for row in self.rows if row.state == FINISHED]

    def rank(self, row: TrialRow) -> tuple[bool, float]:
        """A key that sorts trials by value, the best first, and those without a value last."""
        if row.value is None or isnan(row.value):
            return True, float(row.number)
        return False, -row.value if self.direction == "max" else row.value

    @property
    def seconds_left(self) -> float | None:
        """An estimate from the trials that have ended; None without any, and after the end."""
        took = [row.seconds for row in self.rows if row.state in ENDED_STATES]
        if not took or self.state in ev.TERMINAL:
            return None
        mean = sum(took) / len(took)
        training = [row for row in self.rows if row.state == TRAINING]
        seconds = sum(max(mean - row.seconds, 0.0) for row in training) + mean * (self.planned - len(self.rows))
        return seconds / max(len(training), 1)


def _beats(a: Sequence[float], b: Sequence[float]) -> bool:
    """Whether `a` is as low as `b` everywhere, and lower somewhere."""
    return a != b and all(x <= y for x, y in zip(a, b, strict=True))


def description(spec: RunSpec, parallel: int | None = None) -> str:
    """How the search samples, prunes and runs: "tpe, asha, 4 at a time, 1 worker each"."""
    parallel = spec.parallel if parallel is None else parallel
    phrases = [
        str(spec.search),
        "no pruning" if spec.prune == "no" else str(spec.prune),
        *([f"{parallel} at a time"] if parallel else []),
        f"{counted(spec.workers, 'worker')} each",
    ]
    return ", ".join(phrases)


def row(trial: FrozenTrial, *, waiting: bool = False) -> TrialRow:
    """The row of a trial of the study. waiting: its run has not begun to train."""
    state = _OF_OPTUNA[trial.state.name]
    if state == TRAINING and waiting:
        state = WAITING
    value = trial.values[0] if trial.values else None
    if value is None and trial.last_step is not None:
        value = trial.intermediate_values[trial.last_step]
    begun = trial.datetime_start.timestamp() if trial.datetime_start else None
    end_time = trial.datetime_complete.timestamp() if trial.datetime_complete else time.time()
    reason = str(trial.user_attrs.get(REASON, "")) if state in (PRUNED, FAILED) else ""
    noted = trial.user_attrs.get(RUN)
    runs = [run for run in noted if isinstance(run, str)] if isinstance(noted, list) else []
    return TrialRow(
        number=trial.number,
        state=state,
        value=value,
        params=trial.params,
        epochs=len(trial.intermediate_values),
        seconds=0.0 if begun is None else max(end_time - begun, 0.0),
        reason=reason,
        run=runs[-1] if runs else "",
        tries=max(len(runs), 1),
        begun=begun or 0.0,
        further_values=tuple(trial.values[1:]) if trial.values else (),
        curve=tuple(sorted(trial.intermediate_values.items())),
    )
