"""The Optuna study of a search: the only file that imports Optuna, which is an optional dependency.

The study is an append-only file (Optuna's journal) in the folder of the search. Optuna's own retries and heartbeats
work only in `Study.optimize`, so the search itself retries or fails a trial whose run has died.
"""

from __future__ import annotations

import contextlib
import math
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

from ddl_magics.errors import SearchFailed
from ddl_magics.runtime.cell.suggestions import FloatRange, IntRange, Parameter
from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.search.plan import Plan, objectives
from ddl_magics.search.scores import Score
from ddl_magics.search.space import grid
from ddl_magics.wording import first_line, nearest, plain

if TYPE_CHECKING:
    import optuna
    import plotly.graph_objects as go

#: Attributes of a trial in the study. EARLIER: the id of the search that --warm-start took it from.
REASON, RUN, EARLIER = "reason", "run", "earlier"

#: Of `asha` and `hyperband`: this part of the trials continues at each rung.
REDUCTION_FACTOR = 3
#: Of `evolution`: the number of generations that the trials are divided into, and the fewest trials of one.
GENERATIONS, SMALLEST_GENERATION = 5, 4
#: A search that continues samples with another seed, as the first would repeat its values.
_SEED_STEP = 1_000_003
_SEED_LIMIT = 2**32

PLOTS: Mapping[str, str] = {
    "history": "plot_optimization_history",
    "curves": "plot_intermediate_values",
    "importances": "plot_param_importances",
    "parallel": "plot_parallel_coordinate",
    "slice": "plot_slice",
    "contour": "plot_contour",
    "rank": "plot_rank",
    "edf": "plot_edf",
    "timeline": "plot_timeline",
}
#: Plots that show no objective.
_OF_ALL = ("curves", "timeline")


@dataclass(frozen=True)
class Ask:
    """A new trial: its number, and its values as text, by name."""

    number: int
    values: Mapping[str, str]


class Study:
    """The study of one search. For one thread; `open_study` makes another that only reads."""

    def __init__(self, journal: Path, plan: Plan) -> None:
        """Open the study in the file `journal`, or create it."""
        import optuna

        spec = plan.spec
        _cut_half_line(journal)
        storage = _storage(journal)
        kinds = {"max": optuna.study.StudyDirection.MAXIMIZE, "min": optuna.study.StudyDirection.MINIMIZE}
        directions = [kinds[direction] for _, direction in objectives(spec)]
        self._multi_objective = len(directions) > 1
        with _quiet(), _damage(journal):
            self._space = {name: distribution(parameter) for name, parameter in plan.space.items()}
            self._asking = optuna.create_study(
                storage=storage, study_name=spec.run, directions=directions, load_if_exists=True
            )
            _check(self._asking, len(directions))
            if not self._asking.get_trials(deepcopy=False):
                self._asking.add_trials(plan.earlier)
            self._asking.sampler = _sampler(plan, self._asking.get_trials(deepcopy=False))
            self._asking.pruner = pruner = _pruner(spec.prune or "no")
            # Making a Trial of the study with the sampler would sample it anew.
            self._telling = optuna.load_study(
                study_name=spec.run, storage=storage, sampler=optuna.samplers.RandomSampler(), pruner=pruner
            )
        self._trials: dict[int, optuna.Trial] = {}
        for trial in self.trials:
            if not trial.state.is_finished() and trial.params.keys() != self._space.keys():
                self._sample_missing(trial)

    def _sample_missing(self, trial: optuna.trial.FrozenTrial) -> None:
        """Give a trial all its values, whose kernel ended while it was being asked for."""
        import optuna

        asked = self._trials[trial.number] = optuna.Trial(self._asking, trial._trial_id)
        for name, values in self._space.items():
            asked._suggest(name, values)  # one that it has stays

    @property
    def trials(self) -> list[optuna.trial.FrozenTrial]:
        """The trials of this search as they are now, in order of their numbers. Not to be changed."""
        return own_trials(self._asking)

    def ask(self) -> Ask:
        """Sample a new trial."""
        trial = self._asking.ask(self._space)
        self._trials[trial.number] = trial
        return Ask(trial.number, texts(trial.params))

    def report(self, number: int, step: int, value: float) -> bool:
        """Report the first objective after so many epochs, once per step. Returns whether to prune the trial."""
        trial = self._trial(number)
        if step in self._frozen(number).intermediate_values:
            return False
        if self._multi_objective:  # Optuna takes no reports then, as it does not prune
            self._asking._storage.set_trial_intermediate_value(self._frozen(number)._trial_id, step, value)
            return False
        trial.report(value, step)
        return bool(trial.should_prune())

    def note(self, number: int, name: str, value: Any) -> None:
        """Set an attribute of a trial that has not ended."""
        self._trial(number).set_user_attr(name, value)

    def complete(self, number: int, values: Sequence[float]) -> None:
        """The trial has finished. values: of the objectives."""
        self._record_end(number, values=values)

    def prune(self, number: int, reason: str) -> None:
        """The trial was pruned; its value is that of its last step."""
        self._record_end(number, reason, state="PRUNED")

    def fail(self, number: int, reason: str) -> None:
        self._record_end(number, reason, state="FAIL")

    def _record_end(
        self, number: int, reason: str = "", *, values: Sequence[float] | None = None, state: str = "COMPLETE"
    ) -> None:
        from optuna.trial import TrialState

        if self._frozen(number).state.is_finished():
            return
        if reason:
            self.note(number, REASON, reason)
        try:
            self._asking.tell(number, values, state=TrialState[state])
        except RuntimeError:
            # The grid's last trial calls `Study.stop`, which is for `Study.optimize`; the trial has been stored before.
            if not self._frozen(number).state.is_finished():
                raise
        self._trials.pop(number, None)

    def _frozen(self, number: int) -> optuna.trial.FrozenTrial:
        trial: optuna.trial.FrozenTrial = self._asking.get_trials(deepcopy=False)[number]
        return trial

    def _trial(self, number: int) -> optuna.Trial:
        """The trial as Optuna's handle for reports; of an earlier kernel, a new one."""
        import optuna

        if number not in self._trials:
            self._trials[number] = optuna.Trial(self._telling, self._frozen(number)._trial_id)
        return self._trials[number]


def open_study(journal: Path, spec: RunSpec) -> optuna.Study:
    """The study of a search in a file, for the user and for views. Raises SearchFailed where it is damaged."""
    import optuna

    with _quiet(), _damage(journal):
        study = optuna.load_study(study_name=spec.run, storage=_storage(journal))
        _check(study, len(objectives(spec)))
        return study


def own_trials(study: optuna.Study) -> list[optuna.trial.FrozenTrial]:
    """The trials of a study without those that --warm-start has added, which have the first numbers."""
    return [trial for trial in study.get_trials(deepcopy=False) if EARLIER not in trial.user_attrs]


def figure(study: optuna.Study, plot: str, metrics: Sequence[str]) -> go.Figure:
    """One of `PLOTS`, of the first objective; with several also "front". metrics: the names of the objectives.

    Raises:
        ValueError: there is no such plot.
    """
    plots = [*PLOTS, *(["front"] if len(metrics) > 1 else [])]
    if plot not in plots:
        raise ValueError(f"there is no plot {plot!r}; there are {', '.join(plots)}.{nearest(plot, plots)}")
    import optuna

    if plot == "front":
        return optuna.visualization.plot_pareto_front(study, target_names=list(metrics))
    if plot == "importances" and len(metrics) == 1:
        study = _with_pruned(study)
    draw = getattr(optuna.visualization, PLOTS[plot])
    if len(metrics) == 1 or plot in _OF_ALL:
        return draw(study)
    # Importances are those for low values.
    sign = -1 if plot == "importances" and study.directions[0].name == "MAXIMIZE" else 1
    with _quiet():  # Optuna warns of just that
        return draw(study, target=lambda trial: sign * trial.values[0], target_name=metrics[0])


def _with_pruned(study: optuna.Study) -> optuna.Study:
    """The study, or if trials were pruned one of the first value that each trial has reported.

    Optuna's importances are those of the trials that were not pruned, of which a search with ASHA has few.
    """
    import optuna

    trials = study.get_trials(deepcopy=False)
    if not any(trial.state == optuna.trial.TrialState.PRUNED for trial in trials):
        return study
    with _quiet():
        early = optuna.create_study(direction=study.direction)
    for trial in trials:
        reported = [value for _, value in sorted(trial.intermediate_values.items()) if math.isfinite(value)]
        if reported:
            ranges = trial.distributions
            early.add_trial(optuna.trial.create_trial(params=trial.params, distributions=ranges, value=reported[0]))
    return early


def texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Values as --set takes them. Reading them back gives exactly the same values."""
    return {
        name: str(value) if isinstance(value, str) or value is None else repr(value) for name, value in values.items()
    }


def _storage(journal: Path) -> Any:
    """Optuna's storage in a file. Raises SearchFailed where a line cannot be read: what follows would be misread."""
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

    # The lock works also where there are no symbolic links.
    backend = JournalFileBackend(str(journal), JournalFileOpenLock(str(journal)))
    with _damage(journal):
        return JournalStorage(backend)


def _check(study: optuna.Study, count: int) -> None:
    """Raises an error of some kind where a trial is of another form than a search's. count: of the objectives."""
    if len(study.directions) != count:
        raise ValueError("it has other objectives")
    for trial in study.get_trials(deepcopy=False):
        for number in (*(trial.values or ()), *trial.intermediate_values, *trial.intermediate_values.values()):
            math.isnan(number)  # a TypeError for what is no number, and an OverflowError for one too large
        if (trial.values and len(trial.values) != count) or not all(isinstance(name, str) for name in trial.params):
            raise ValueError(f"trial {trial.number} is of another form")


@contextlib.contextmanager
def _damage(journal: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, SearchFailed, UsageError):
        raise
    except Exception as error:  # of Optuna, of many kinds
        raise SearchFailed(
            f"{journal} is damaged ({plain(first_line(error))}): the search cannot be shown or continued; its runs are "
            "whole, %ddl runs lists them"
        ) from None


def _cut_half_line(journal: Path) -> None:
    """Make the file if it is missing. A kernel that was killed may have left half a line, which Optuna cannot read."""
    with open(journal, "ab") as file:
        size = file.tell()
    if not size:
        return
    data = journal.read_bytes()
    complete_size = data.rfind(b"\n") + 1
    if complete_size < size:
        os.truncate(journal, complete_size)


def distribution(parameter: Parameter) -> Any:
    from optuna import distributions

    if isinstance(parameter, FloatRange):
        return distributions.FloatDistribution(parameter.low, parameter.high, log=parameter.log, step=parameter.step)
    if isinstance(parameter, IntRange):
        return distributions.IntDistribution(parameter.low, parameter.high, log=parameter.log, step=parameter.step)
    return distributions.CategoricalDistribution(parameter.choices)


def _sampler(plan: Plan, trials: Sequence[optuna.trial.FrozenTrial]) -> Any:
    """trials: those that the study has already."""
    from optuna import samplers

    spec = plan.spec
    base_seed = spec.seed or 0
    seed = (base_seed + len(trials) * _SEED_STEP) % _SEED_LIMIT
    match spec.search:
        case "tpe" | None:
            return samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True)
        case "random":
            return samplers.RandomSampler(seed=seed)
        case "grid":
            # The order of the grid follows from the seed, and must be the same when the search continues.
            return samplers.GridSampler(grid(plan.space), seed=base_seed)
        case "evolution":
            population = max(SMALLEST_GENERATION, math.ceil((spec.trials or 0) / GENERATIONS))
            return samplers.NSGAIISampler(population_size=population, seed=seed)
        case "cmaes":
            earlier = [trial for trial in trials if EARLIER in trial.user_attrs and trial.state.name == "COMPLETE"]
            return samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False, source_trials=earlier or None)
        case other:
            raise UsageError(f"this version has no --search {other}.")


def _pruner(name: str) -> Any:
    from optuna import pruners

    match name:
        case "asha":
            return pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=REDUCTION_FACTOR)
        case "median":
            return pruners.MedianPruner()
        case "hyperband":
            return pruners.HyperbandPruner(min_resource=1, reduction_factor=REDUCTION_FACTOR)
        case _:
            return pruners.NopPruner()


def why_pruned(pruner: str | None, metric: str, score: Score) -> str:
    """In words, why a pruner has ended a trial after this value of the objective."""
    if score.diverged:
        return f"pruned after {score.label}: {metric} is not a number"
    verdict = "worse than the median" if pruner == "median" else "not among the best third"
    return f"pruned after {score.label}: {metric} {score.value:.4g} was {verdict} of the trials"


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Optuna prints a line for each study that it makes, and warns where a step does not divide its range."""
    from optuna import logging

    before = logging.get_verbosity()
    logging.set_verbosity(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(before)
