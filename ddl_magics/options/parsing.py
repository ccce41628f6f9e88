"""Parses the line of a `%%distributed` cell into the spec of its run.

Every mistake is a `UsageError` of one line that names the nearest valid word.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from IPython.core.error import UsageError

from ddl_magics.options import similar, words
from ddl_magics.options.option import Option
from ddl_magics.options.redaction import as_word, safely_quoted
from ddl_magics.options.table import BY_FLAG, DEFAULT_RULE, FORMER_FLAGS, OPTIONS
from ddl_magics.options.values import WorkerRange
from ddl_magics.runtime.parameter_server import update_rules
from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.runtime.strategies import ELASTIC


def _unknown(typed: str) -> UsageError:
    if not typed.startswith("--"):
        hint = similar.flag(typed if typed in similar.FLAGS else "--" + typed.lstrip("-–—"), BY_FLAG)
        return UsageError(f"{safely_quoted(typed)} is not an option: options start with two dashes.{hint}")
    if typed in FORMER_FLAGS:
        return UsageError(f"{typed} is called {FORMER_FLAGS[typed]} now.")
    return UsageError(f"no option {as_word(typed)}.{similar.flag(typed, BY_FLAG)}")


def typed_values(line: str) -> dict[str, Any]:
    """The values that the line itself sets, by field of `RunSpec`."""
    return words.read(words.split(line), OPTIONS, _unknown)


def parse(line: str, configured: Mapping[str, Any] | None = None) -> RunSpec:
    """The spec of a magic's line: `make_spec` of its values. Raises UsageError as that does."""
    return make_spec(typed_values(line), configured)


def make_spec(typed: Mapping[str, Any], configured: Mapping[str, Any] | None = None) -> RunSpec:
    """The spec of typed values; `run`, `name`, `cell` and `seed` may still be empty.

    A default of the table or the configuration is used only where its option applies: `ps = 2` does not affect an
    all-reduce run. An option that was typed and does not apply is refused.

    Args:
        typed: values by field of `RunSpec`.
        configured: the same, for fields that are not typed.

    Raises:
        UsageError: one line, with the nearest valid name.
    """
    values = {option.name: option.default for option in OPTIONS if option.default is not None}
    values.update({name: value for name, value in (configured or {}).items() if value is not None})
    for name, value in typed.items():  # settings of %config stay, but for those that the line names as well
        values[name] = {**values[name], **value} if isinstance(value, dict) and values.get(name) else value
    if isinstance(values["workers"], WorkerRange):
        values["min_workers"], values["workers"] = values["workers"]
        if "workers" not in typed and (values["strategy"] not in ELASTIC or "trials" in typed):
            del values["min_workers"]
    if "trials" in typed:
        _prepare_search(values, {*typed, *(configured or {})})
    if values["strategy"] == "single":
        if typed.get("workers", 1) != 1:
            raise UsageError("--strategy single is one worker: leave --workers out, or use --strategy allreduce.")
        values["workers"] = 1
    if values.get("min_workers") is not None:
        _check_elastic(values)
    values["rule"] = _rule_for(values["strategy"], typed.get("rule"), values.get("rule"))
    for option in OPTIONS:
        problem = _misuse(option, values) if option.name in values else None
        if problem is None:
            continue
        if option.name in typed:
            raise UsageError(problem)
        del values[option.name]
    if values.get("rule") is not None and values.get("min_workers") is None:
        values.setdefault("window", values["workers"])
    _refuse_equal_names(values)
    return RunSpec(**values)


def _prepare_search(values: dict[str, Any], user_fields: Collection[str]) -> None:
    """Check what a search needs, and set its own defaults. user_fields: fields that the user has set."""
    if values.get("objective") is None:
        raise UsageError("--trials needs --objective, such as --objective val_accuracy:max.")
    if "," in values["objective"]:
        for name, default in (("search", "evolution"), ("prune", "no")):
            values[name] = values[name] if name in user_fields else default
    if "workers" not in user_fields:
        values["workers"] = 1
    if values["workers"] == 1 and "strategy" not in user_fields:
        values["strategy"] = "single"


def _check_elastic(values: Mapping[str, Any]) -> None:
    """UsageError where a run of these values cannot have MIN..MAX workers."""
    bounds = f"--workers {values['min_workers']}..{values['workers']}"
    if values["strategy"] not in ELASTIC:
        raise UsageError(f"{bounds} applies only to --strategy {' or '.join(ELASTIC)}: name one number of workers.")
    if "trials" in values:
        raise UsageError(f"{bounds} is for one training, not for the trials of a search: name one number of workers.")


def _misuse(option: Option, values: Mapping[str, Any]) -> str | None:
    """Why the option does not apply to a run with these values, in one line; None if it does."""
    strategy = values["strategy"]
    if option.strategies and strategy not in option.strategies:
        return f"{option.flag} applies only to --strategy {' or '.join(option.strategies)}, not to {strategy}."
    return words.misuse(option, values, BY_FLAG)


def _refuse_equal_names(values: Mapping[str, Any]) -> None:
    label, validation = values.get("label"), values.get("validation")
    for flag in ("label", "weight"):
        is_forecast = flag == "label" and values.get("sequence_length") is not None and values.get("horizon") != 0
        if not is_forecast and values.get(flag) is not None and values[flag] in (values.get("features") or ()):
            column = safely_quoted(values[flag])
            raise UsageError(f"column {column} is both in --features and the --{flag}: leave it out of --features.")
    if label is not None and label == values.get("weight"):
        raise UsageError(
            f"--weight and --label name the same column {safely_quoted(label)}: give the weights a column of their own."
        )
    if isinstance(validation, str) and not validation.isidentifier() and values.get("sequence_length") is None:
        raise UsageError(
            "--validation takes a date only with --sequence-length and --order-by: give a share such as 0.2."
        )
    if values.get("horizon") is not None and label is None:
        raise UsageError("--horizon needs --label: it says which row has the label of a window.")
    if validation is not None and validation == values.get("data"):
        raise UsageError("--validation and --data name the same DataFrame: give a share such as --validation 0.2.")


def _rule_for(strategy: str, typed: str | None, configured: str | None) -> str | None:
    """The rule of the run, or None if its strategy needs none. A configured rule is ignored where it does not apply."""
    rule = typed or configured
    owner = update_rules.RULES[update_rules.parse(rule).name].strategy if rule else None
    if typed and owner != strategy:
        raise UsageError(f"--rule {as_word(typed)} applies only to --strategy {owner}, not to {strategy}.")
    return rule if owner == strategy else DEFAULT_RULE if strategy == "ps" else None
