"""From the line of a `%%distributed` cell to the run that it asks for, or to one line about what is wrong with it.

Every mistake is a `UsageError` that names the nearest right word.
"""

from __future__ import annotations

import io
import shlex
from collections.abc import Collection, Mapping
from typing import Any

from IPython.core.error import UsageError

from ddl_magics.options import similar
from ddl_magics.options.redaction import as_word, shown
from ddl_magics.options.table import BY_FLAG, DEFAULT_RULE, FORMER_FLAGS, OPTIONS, Option
from ddl_magics.runtime.parameter_server import update_rules
from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.wording import nearest


def words(line: str) -> list[str]:
    """The line's words as a shell splits them, up to a comment."""
    text = io.StringIO(line)
    lexer = shlex.shlex(text, posix=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    found: list[str] = []
    try:
        while not line[text.tell() :].lstrip().startswith("#") and (word := lexer.get_token()) is not None:
            found.append(word)
    except ValueError as error:
        remedy = "close the quotation" if "quotation" in str(error) else "write all options in one line, without \\"
        raise UsageError(f"cannot read the options ({str(error).lower()}): {remedy}.") from None
    return found


def wants_help(line: str) -> bool:
    return any(word in ("--help", "-h") for word in words(line))


def read_value(option: Option, text: str) -> Any:
    """The value of one word, checked against the table.

    Raises:
        UsageError: the option does not take this value.
    """
    choice = text.partition(":")[0] if option.settings else text
    if option.choices and choice not in option.choices:
        raise UsageError(
            f"{option.flag} has no value {shown(choice)}; it takes {', '.join(option.choices)}."
            + (similar.strategy if option.name == "strategy" else nearest)(choice, option.choices)
        )
    try:
        return option.read(text)
    except ValueError as error:
        raise UsageError(f"{option.flag} must be {error}, not {shown(text)}.") from None


def _option(flag: str) -> Option:
    option = BY_FLAG.get(flag)
    if option is None:
        if flag in FORMER_FLAGS:
            raise UsageError(f"{flag} is called {FORMER_FLAGS[flag]} now.")
        raise UsageError(f"no option {as_word(flag)}.{similar.flag(flag, BY_FLAG)}")
    return option


def typed_values(line: str) -> dict[str, Any]:
    """The values that the line itself sets, by field of `RunSpec`."""
    values: dict[str, Any] = {}
    flags: set[str] = set()
    rest = words(line)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            hint = similar.flag(word if word in similar.FLAGS else "--" + word.lstrip("-–—"), BY_FLAG)
            raise UsageError(f"{shown(word)} is not an option: options start with two dashes.{hint}")
        flag, equals, attached = word.partition("=")
        option = _option(flag)
        if option.sets:
            if equals:
                raise UsageError(f"{flag} takes no value.")
            field, value = option.sets
            if values.setdefault(field, value) != value:
                one, other = (each.flag for each in OPTIONS if each.name == field)
                raise UsageError(f"{one} and {other} exclude each other.")
            continue
        if flag in flags and not option.repeats:
            raise UsageError(f"{flag} is given twice: leave one of them out.")
        flags.add(flag)
        texts = [attached] if equals else []
        while rest and not rest[0].startswith("--") and (option.many or not texts):
            texts.append(rest.pop(0))
        if option.many:
            texts = [part for text in texts for part in text.split(",") if part]
        if not texts:
            raise UsageError(f"{flag} needs a value: {flag} {option.metavar}.")
        if option.many:
            values[option.name] = tuple(read_value(option, text) for text in texts)
        elif option.repeats:
            key, value = read_value(option, texts[0])
            if key in values.setdefault(option.name, {}):
                raise UsageError(f"{flag} {as_word(key)} is given twice: leave one of them out.")
            values[option.name][key] = value
        else:
            values[option.name] = read_value(option, texts[0])
    return values


def parse(line: str, configured: Mapping[str, Any] | None = None) -> RunSpec:
    """The run that a magic's line asks for; `run`, `name`, `cell` and `seed` may still be empty.

    A default of the table or the configuration is used only where its option applies: `ps = 2` does not affect an
    all-reduce run. An option that was typed and does not apply is refused.

    Args:
        line: what follows `%%distributed`.
        configured: values by field of `RunSpec`, for what the line does not set.

    Raises:
        UsageError: one line, with the nearest right name.
    """
    typed = typed_values(line)
    values = {option.name: option.default for option in OPTIONS if option.default is not None}
    values.update({name: value for name, value in (configured or {}).items() if value is not None})
    for name, value in typed.items():  # settings of %config stay, but for those that the line names as well
        values[name] = {**values[name], **value} if isinstance(value, dict) and values.get(name) else value
    if "trials" in typed:
        _prepare_search(values, {*typed, *(configured or {})})
    if values["strategy"] == "single":
        if typed.get("workers", 1) != 1:
            raise UsageError("--strategy single is one worker: leave --workers out, or use --strategy allreduce.")
        values["workers"] = 1
    values["rule"] = _rule_for(values["strategy"], typed.get("rule"), values.get("rule"))
    for option in OPTIONS:
        problem = _misuse(option, values) if option.name in values else None
        if problem is None:
            continue
        if option.name in typed:
            raise UsageError(problem)
        del values[option.name]
    if values.get("rule") is not None:
        values.setdefault("window", values["workers"])
    _refuse_equal_names(values)
    return RunSpec(**values)


def _prepare_search(values: dict[str, Any], given: Collection[str]) -> None:
    """Check what a search needs, and set the defaults that differ for it. given: fields that the user has set."""
    if values.get("objective") is None:
        raise UsageError("--trials needs --objective, such as --objective val_accuracy:max.")
    if "," in values["objective"]:
        for name, usual in (("search", "evolution"), ("prune", "no")):
            values[name] = values[name] if name in given else usual
    if "workers" not in given:
        values["workers"] = 1
    if values["workers"] == 1 and "strategy" not in given:
        values["strategy"] = "single"


def _misuse(option: Option, values: Mapping[str, Any]) -> str | None:
    """Why the option does not apply to a run with these values, in one line; None if it does."""
    strategy = values["strategy"]
    if option.strategies and strategy not in option.strategies:
        return f"{option.flag} applies only to --strategy {' or '.join(option.strategies)}, not to {strategy}."
    if option.needs and values.get(BY_FLAG[option.needs].name) is None:
        return f"{option.flag} needs {option.needs}: add it, or leave {option.flag} out."
    for conflict, advice in option.conflicts.items():
        flag, _, refused = conflict.partition(" ")
        value = values.get(BY_FLAG[flag].name)
        if value is not None and refused in ("", value):
            return f"{option.flag} cannot be combined with {flag} {as_word(str(value))}: {advice}"
    return None


def _refuse_equal_names(values: Mapping[str, Any]) -> None:
    label, validation = values.get("label"), values.get("validation")
    for flag in ("label", "weight"):
        past = flag == "label" and values.get("sequence_length") is not None and values.get("horizon") != 0
        if not past and values.get(flag) is not None and values[flag] in (values.get("features") or ()):
            column = shown(values[flag])
            raise UsageError(f"column {column} is both in --features and the --{flag}: leave it out of --features.")
    if label is not None and label == values.get("weight"):
        raise UsageError(
            f"--weight and --label name the same column {shown(label)}: give the weights a column of their own."
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
    """The rule in force, or None where the strategy works without. A configured rule counts only where it applies."""
    rule = typed or configured
    owner = update_rules.RULES[update_rules.parse(rule).name].strategy if rule else None
    if typed and owner != strategy:
        raise UsageError(f"--rule {as_word(typed)} applies only to --strategy {owner}, not to {strategy}.")
    return rule if owner == strategy else DEFAULT_RULE if strategy == "ps" else None
