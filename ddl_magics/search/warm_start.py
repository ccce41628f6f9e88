"""`--warm-start SEARCH`: the trials of an earlier search, from which a new one learns before its first trial."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

from ddl_magics import store
from ddl_magics.options.redaction import as_word
from ddl_magics.runtime.cell.suggestions import BadSuggestion
from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.search.plan import Plan
from ddl_magics.search.study import EARLIER, REASON, RUN, distribution, open_study
from ddl_magics.store import SearchFolder, SearchRecord
from ddl_magics.wording import counted, nearest

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

#: The best tenth of the earlier trials is where CMA-ES begins: one trial at least.
CMAES_TRIALS = 10


def with_earlier_trials(plan: Plan) -> Plan:
    """The plan with the trials that --warm-start names; its spec has the id of the earlier search. Else the same plan.

    Raises:
        UsageError: there is no such search, its objective is another one, or none of its trials fits the parameters.
    """
    if plan.spec.warm_start is None:
        return plan
    record = _find(plan.spec.warm_start)
    earlier_spec = RunSpec.from_record(record.spec)
    if earlier_spec.objective != plan.spec.objective:
        raise UsageError(
            f"--warm-start {record.name}: it optimized {earlier_spec.objective}, and this search "
            f"{plan.spec.objective}: such values cannot be compared; leave --warm-start out."
        )
    study = open_study(SearchFolder(record.folder).journal, earlier_spec)
    trials = [trial for trial in study.get_trials(deepcopy=False) if trial.state.is_finished()]
    earlier = [_adopted(trial, plan, record.id) for trial in trials if _fits(trial, plan)]
    if not earlier:
        raise UsageError(
            f"--warm-start {record.name}: none of its {counted(len(trials), 'ended trial')} has a value of the "
            "objective, and values of all parameters within this cell's ranges; leave --warm-start out."
        )
    finished = sum(trial.state.name == "COMPLETE" for trial in earlier)
    if plan.spec.search == "cmaes" and finished < CMAES_TRIALS:
        raise UsageError(
            f"--warm-start {record.name}: --search cmaes learns from {CMAES_TRIALS} finished trials or more, and "
            f"{finished} fit; use --search tpe."
        )
    return dataclasses.replace(plan, spec=dataclasses.replace(plan.spec, warm_start=record.id), earlier=tuple(earlier))


def _find(name: str) -> SearchRecord:
    records = store.list_searches()
    search = next((record for record in records if name in (record.id, record.name)), None)
    if search is None:
        hint = nearest(name, [record.name for record in records]) or " %ddl runs lists them."
        raise UsageError(f"--warm-start: there is no search {as_word(name)}.{hint}")
    return search


def _fits(trial: FrozenTrial, plan: Plan) -> bool:
    if trial.state.name not in ("COMPLETE", "PRUNED") or not (trial.values or trial.intermediate_values):
        return False
    try:
        for name, parameter in plan.space.items():
            parameter.checked(trial.params[name])
    except (KeyError, BadSuggestion):
        return False
    return True


def _adopted(trial: FrozenTrial, plan: Plan, search: str) -> FrozenTrial:
    """The same trial for the new study. Finished ones leave their epochs out, so that they prune no trial."""
    from optuna.trial import create_trial

    pruned = trial.state.name == "PRUNED"
    attributes: dict[str, Any] = {name: trial.user_attrs[name] for name in (RUN, REASON) if name in trial.user_attrs}
    return create_trial(
        state=trial.state,
        values=trial.values or None,
        params={name: trial.params[name] for name in plan.space},
        distributions={name: distribution(parameter) for name, parameter in plan.space.items()},
        intermediate_values=trial.intermediate_values if pruned else {},
        user_attrs={**attributes, EARLIER: search},
    )
