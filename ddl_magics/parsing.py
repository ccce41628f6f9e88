"""From the line of a `%%distributed` cell to the run that it asks for, or to one line about what is wrong with it.

Every mistake is a `UsageError` that names the nearest right word.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from IPython.core.error import UsageError

from ddl_magics.options import BUILT, BY_FLAG, DEFAULT_BATCH_SIZE, DEFAULT_RULE, DEFAULT_WORKERS, Option
from ddl_magics.runtime import rules
from ddl_magics.runtime.strategies import TF_PS
from ddl_magics.spec import RunSpec
from ddl_magics.wording import nearest


def words(line: str) -> list[str]:
    """The line's words as a shell splits them, up to a comment."""
    try:
        split = shlex.split(line)
    except ValueError as error:
        raise UsageError(f"cannot read the options: {str(error).lower()}") from None
    comment = next((i for i, word in enumerate(split) if word.startswith("#")), len(split))
    return split[:comment]


def wants_help(line: str) -> bool:
    return any(word in ("--help", "-h") for word in words(line))


def read_value(option: Option, text: str) -> Any:
    """The value of one word, checked against the table.

    Raises:
        UsageError: the value is not one that the option takes.
    """
    choice = text.partition(":")[0] if option.settings else text
    if option.choices and choice not in option.choices:
        raise UsageError(
            f"{option.flag} has no value {choice!r}; it takes {', '.join(option.choices)}."
            + nearest(choice, option.choices)
        )
    try:
        return option.read(text)
    except ValueError as error:
        raise UsageError(f"{option.flag} wants {error}, not {text!r}.") from None


def _option(flag: str) -> Option:
    option = BY_FLAG.get(flag)
    if option is None:
        hint = nearest(flag, BY_FLAG) or " See %%distributed --help."
        raise UsageError(f"no option {flag}.{hint}")
    if option.coming:
        raise UsageError(f"{flag} is not built yet: it {option.coming}.")
    return option


def given(line: str) -> dict[str, Any]:
    """The values that the line itself gives, by field name."""
    values: dict[str, Any] = {}
    flags: set[str] = set()
    rest = words(line)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            hint = nearest("--" + word.lstrip("-"), BY_FLAG)
            raise UsageError(f"{word!r} is not an option: options start with two dashes.{hint}")
        flag, equals, attached = word.partition("=")
        option = _option(flag)
        if option.value:
            if equals:
                raise UsageError(f"{flag} takes no value.")
            if option.name in values and values[option.name] != option.value[1]:
                raise UsageError("--wait and --no-wait exclude each other.")
            values[option.name] = option.value[1]
            continue
        if flag in flags and not option.repeats:
            raise UsageError(f"{flag} is given twice.")
        flags.add(flag)
        texts = [attached] if equals else []
        while rest and not rest[0].startswith("--") and (option.many or not texts):
            texts.append(rest.pop(0))
        if option.many:
            texts = [part for text in texts for part in text.split(",") if part]
        if not texts:
            raise UsageError(f"{flag} wants a value: {flag} {option.metavar}.")
        if option.many:
            values[option.name] = tuple(read_value(option, text) for text in texts)
        elif option.repeats:
            key, value = read_value(option, texts[0])
            values.setdefault(option.name, {})[key] = value
        else:
            values[option.name] = read_value(option, texts[0])
    return values


def parse(line: str, defaults: Mapping[str, Any] | None = None) -> RunSpec:
    """The run that a magic's line asks for; `run`, `name`, `cell` and `seed` may still be empty.

    Args:
        line: what follows `%%distributed`.
        defaults: configured values by field name, used where the line says nothing.

    Raises:
        UsageError: of one line, with the nearest right name.
    """
    said = given(line)
    values = {**{k: v for k, v in (defaults or {}).items() if v is not None}, **said}
    strategy = values.get("strategy", "allreduce")
    _refuse_misplaced(strategy, said, values)
    values["rule"] = _rule_for(strategy, said.get("rule"), values.get("rule"))
    _refuse_contradictions(strategy, said, values)
    workers = 1 if strategy == "single" else values.get("workers", DEFAULT_WORKERS)
    values["workers"] = workers
    values["window"] = values.get("window", workers) if values["rule"] else None
    values["ps"] = values.get("ps", 1) if strategy in ("ps", TF_PS) else None
    values["batch_size"] = values.get("batch_size", DEFAULT_BATCH_SIZE) if values.get("data") else None
    return RunSpec(**values)


def _refuse_misplaced(strategy: str, said: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """An option that the table gives to another strategy, or to another option which is not there."""
    for option in BUILT:
        if option.name not in said:
            continue
        owners = option.only.split()
        if owners and strategy not in owners:
            raise UsageError(
                f"{option.flag} belongs to --strategy {' or '.join(owners)}; this is --strategy {strategy}."
            )
        if option.needs and BY_FLAG[option.needs].name not in values:
            raise UsageError(f"{option.flag} belongs to {option.needs}, which is not given.")


def _refuse_contradictions(strategy: str, said: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """What no single row of the table can say: two values that exclude each other."""
    if strategy == "ensemble" and "resume" in said:
        raise UsageError("--resume is of one model, and --strategy ensemble trains several: leave --resume out.")
    if strategy == "single" and said.get("workers", 1) != 1:
        raise UsageError("--strategy single is one worker: leave --workers out, or use --strategy allreduce.")
    if strategy == TF_PS and "data" in said:
        raise UsageError(
            "--data gives a dataset to each worker, and the cell of --strategy tf-ps runs on the coordinator alone: "
            "read the data in the function for create_per_worker_dataset."
        )
    if "window" in said and values["rule"] is None:
        raise UsageError(f"--window belongs to an update rule, and --strategy {strategy} is given none: see --rule.")
    if "compression" in said and values["rule"] is not None:
        raise UsageError(f"--compression is for gradients, and --rule {values['rule']} exchanges weights.")
    if "sync_batchnorm" in said and values["rule"] is not None:
        raise UsageError(f"--sync-batchnorm is for one batch of all workers, and --rule {values['rule']} has none.")
    label, features = values.get("label"), values.get("features")
    if label is not None and features is not None and label in features:
        raise UsageError(f"column {label!r} is both in --features and the --label.")
    if isinstance(values.get("validation"), str) and values["validation"] == values.get("data"):
        raise UsageError("--validation and --data name the same DataFrame: give a share such as --validation 0.2.")


def _rule_for(strategy: str, said: str | None, configured: str | None) -> str | None:
    """The rule in force, or None where the strategy works without; a configured one counts where it fits."""
    wanted = said or configured
    owner = rules.KINDS[rules.read(wanted)[0]].strategy if wanted else None
    if said and owner != strategy:
        raise UsageError(f"--rule {said} belongs to --strategy {owner}; this is --strategy {strategy}.")
    return wanted if owner == strategy else DEFAULT_RULE if strategy == "ps" else None
