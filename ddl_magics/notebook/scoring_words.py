"""The words of `%ddl predict` and `%ddl evaluate`: a run, and options with values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from IPython.core.error import UsageError

from ddl_magics.errors import CannotScore
from ddl_magics.options.redaction import as_word
from ddl_magics.runs import Run
from ddl_magics.runtime.data.transform import read as read_transform
from ddl_magics.wording import nearest

#: What may have several values: `--features a b`.
_SEVERAL = "--features"


def read(verb: str, options: Sequence[str], usage: str, arguments: Sequence[str]) -> tuple[str, dict[str, list[str]]]:
    """(the run, {option: its values}) of what stands after the verb.

    Raises:
        UsageError: one line; there is no run, no such option, or no value.
    """
    words = [part for word in arguments for part in (word.split("=", 1) if word.startswith("--") else [word])]
    if not words or words[0].startswith("--"):
        raise UsageError(f"write: {usage}")
    run, words = words[0], words[1:]
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
    return run, given


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
    if not word.isdigit():
        raise UsageError(f"--batch-size must be a number of rows, not {as_word(word)}")
    return int(word)


def transform(run: Run, namespace: Mapping[str, Any]) -> Any:
    """The notebook's function that the run's --transform names, or None without that option.

    Raises:
        CannotScore: there is none.
    """
    if run.spec.transform is None:
        return None
    name = read_transform(run.spec.transform)[0]
    if not callable(namespace.get(name)):
        raise CannotScore(
            f"{run.name} was trained with --transform {name}, and the notebook has no such function: run the cell that "
            "defines it"
        )
    return namespace[name]
