"""The words of `%ddl predict`, `evaluate` and `monitor`: a model, and options with values."""

from __future__ import annotations

from collections.abc import Sequence

from IPython.core.error import UsageError

from ddl_magics.options.line import split_values
from ddl_magics.options.redaction import as_word
from ddl_magics.wording import nearest

#: What may have several values: `--features a b`.
_SEVERAL = "--features"


def read(verb: str, options: Sequence[str], usage: str, arguments: Sequence[str]) -> tuple[str, dict[str, list[str]]]:
    """(the model, {option: its values}) of what stands after the verb.

    Raises:
        UsageError: one line; there is no model, no such option, or no value.
    """
    words = split_values(arguments)
    if not words or words[0].startswith("--"):
        raise UsageError(f"write: {usage}")
    model, words = words[0], words[1:]
    given: dict[str, list[str]] = {}
    while words:
        option = words.pop(0)
        if option not in options:
            raise UsageError(f"%ddl {verb} has no option {as_word(option)}.{nearest(option, options)} Write: {usage}")
        values = given[option] = []
        while words and not words[0].startswith("--") and (option == _SEVERAL or not values):
            values.append(words.pop(0))
        if not values:
            raise UsageError(f"{option} needs a value. Write: {usage}")
    return model, given


def columns(values: Sequence[str]) -> list[str]:
    """Those of --features, between which are spaces or commas."""
    return [name for word in values for name in word.split(",") if name]


def variable(word: str) -> str:
    """The value of --name."""
    if not word.isidentifier():
        raise UsageError(f"--name {as_word(word)} is no name of a variable")
    return word


def batch_rows(word: str) -> int:
    """The value of --batch-size."""
    if not word.isdecimal() or not int(word):
        raise UsageError(f"--batch-size must be a number of rows, not {as_word(word)}")
    return int(word)
