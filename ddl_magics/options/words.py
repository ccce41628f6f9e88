"""Parses the words of a line into the values of its options, by their table.

Every mistake is a `UsageError` that names the nearest valid word.
"""

from __future__ import annotations

import io
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from IPython.core.error import UsageError

from ddl_magics.options.option import Option
from ddl_magics.options.redaction import as_word, safely_quoted

#: Between the names of a list. A name may have one behind a backslash.
_COMMA = re.compile(r"(?<!\\),")

#: A unit of time behind a number and a blank.
_UNIT = re.compile(r"s(ec(ond)?s?)?|m(in(ute)?s?)?|h(ours?|rs?)?|d(ays?)?|w(eeks?)?")


def split(line: str) -> list[str]:
    """The line's words as a shell splits them, up to a comment."""
    text = io.StringIO(line)
    lexer = shlex.shlex(text, posix=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    words: list[str] = []
    try:
        while not line[text.tell() :].lstrip().startswith("#") and (token := lexer.get_token()) is not None:
            words.append(token)
    except ValueError as error:
        remedy = "close the quotation" if "quotation" in str(error) else "write all options in one line, without \\"
        raise UsageError(f"cannot read the options ({str(error).lower()}): {remedy}.") from None
    return words


def wants_help(words: Iterable[str]) -> bool:
    return any(token in ("--help", "-h") for token in words)


def read_value(option: Option, *texts: str, verb: str = "") -> Any:
    """The value of an option or an argument, checked against its row.

    Raises:
        UsageError: the option does not take this value.
    """
    choice = texts[0].partition(":")[0] if option.settings else texts[0]
    if option.choices and choice not in option.choices:
        choices = f"it takes {', '.join(option.choices)}.{option.hint(choice, option.choices)}"
        if option.positional:
            raise UsageError(f"{verb} has no {option.flag} {as_word(choice)}; {choices}")
        raise UsageError(f"{option.flag} has no value {safely_quoted(choice)}; {choices}")
    try:
        return option.read(*texts)
    except ValueError as error:
        name = option.usage if option.positional else option.flag
        raise UsageError(f"{name} must be {error}, not {safely_quoted(texts[0])}.") from None


def read(
    words: Sequence[str], options: Sequence[Option], unknown: Callable[[str], UsageError], verb: str = ""
) -> dict[str, Any]:
    """Parse the words into values, by field.

    Args:
        words: of the line.
        options: the rows.
        unknown: makes the error for a word that is neither an option nor an argument.
        verb: the verb before the words, for messages.

    Raises:
        UsageError: a word is unknown, or is given twice, or its value is wrong.
    """
    by_flag = {option.flag: option for option in options}
    arguments = [option for option in options if option.positional]
    takes_arguments = bool(arguments)
    values: dict[str, Any] = {}
    remaining = list(words)
    literal = False
    last: Option | None = None
    while remaining:
        token = remaining.pop(0)
        if token == "--" and takes_arguments and not literal:
            literal = True
        elif literal or not token.startswith("--"):
            if not arguments:
                before = words[len(words) - len(remaining) - 2 :][0].rpartition("=")[2]
                raise unknown(token) if last is None else _in_pieces(last, before, values, token, unknown)
            value = read_value(arguments[0], token, verb=verb)
            if arguments[0].takes_list:
                value = (*values.get(arguments[0].name, ()), value)
            values[arguments[0].name] = value
            if not arguments[0].takes_list:
                del arguments[0]
        else:
            flag, equals, attached = token.partition("=")
            option = by_flag.get(flag)
            if option is None:
                raise unknown(flag)
            _read_option(option, [attached] if equals else [], remaining, values, options)
            last = option
    return values


def _in_pieces(
    option: Option, before: str, values: Mapping[str, Any], token: str, unknown: Callable[[str], UsageError]
) -> UsageError:
    """The error for a word that follows the value of an option, and may belong to it: "my run" without quotes.

    before: the word before it.
    """
    value = values.get(option.name)
    together = f"{before}{token[:1].lower()}"
    if _UNIT.fullmatch(token.lower()) and _takes(option, together):
        return UsageError(f"{option.flag} {before} {as_word(token)}: write {option.flag} {together}.")
    if not isinstance(value, str) or option.choices:
        return unknown(token)
    whole = f"{value} {token}"
    try:
        read_value(option, whole)
    except UsageError as error:
        return error
    return UsageError(
        f"{as_word(token)} follows the value of {option.flag}: quote a value of several words, {safely_quoted(whole)}."
    )


def _takes(option: Option, text: str) -> bool:
    try:
        read_value(option, text)
    except UsageError:
        return False
    return True


def _read_option(
    option: Option, texts: list[str], remaining: list[str], values: dict[str, Any], options: Sequence[Option]
) -> None:
    """Add the option's value to `values`. texts: the text after "=", if any; more are taken from `remaining`."""
    flag, name = option.flag, option.name
    if option.sets:
        if texts:
            raise UsageError(f"{flag} takes no value.")
        if values.setdefault(name, option.sets[1]) != option.sets[1]:
            pair = (row.flag for row in options if row.name == name)
            raise UsageError(f"{' and '.join(pair)} exclude each other.")
        return
    if name in values and not option.repeats:
        raise UsageError(f"{flag} is given twice: leave one of them out.")
    while remaining and not remaining[0].startswith("--") and (option.takes_list or len(texts) < option.values):
        texts.append(remaining.pop(0))
    if option.takes_list:
        texts = [value.replace("\\,", ",") for text in texts for value in _COMMA.split(text) if value]
    if len(texts) < option.values:
        needs = "a value" if option.values == 1 else f"{option.values} values"
        raise UsageError(f"{flag} needs {needs}: {option.usage}.")
    if option.takes_list:
        values[name] = tuple(read_value(option, text) for text in texts)
    elif option.repeats:
        key, value = read_value(option, texts[0])
        if key in values.setdefault(name, {}):
            raise UsageError(f"{flag} {as_word(key)} is given twice: leave one of them out.")
        values[name][key] = value
    else:
        values[name] = read_value(option, *texts)


def misuse(option: Option, values: Mapping[str, Any], options: Mapping[str, Option]) -> str | None:
    """Why the option conflicts with the other values, in one line, or None. options: by flag."""
    if option.needs and values.get(options[option.needs].name) is None:
        return f"{option.flag} needs {option.needs}: add it, or leave {option.flag} out."
    for conflict, advice in option.conflicts.items():
        flag, _, refused = conflict.partition(" ")
        value = values.get(options[flag].name)
        if value is not None and refused in ("", value):
            typed = flag if options[flag].sets else f"{flag} {as_word(str(value))}"
            return f"{option.flag} cannot be combined with {typed}: {advice}"
    return None
