"""Completion of `%%distributed` and `%ddl` lines: options, their values, names of DataFrames, columns and runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult, context_matcher

from ddl_magics.clusters.data_names import columns, frames, is_frame
from ddl_magics.commands import clean, evaluate, monitor, predict, serve, tfrecord
from ddl_magics.options.table import BY_FLAG, OPTIONS
from ddl_magics.runtime.assert_never import assert_never
from ddl_magics.scaling import request as scaling_request

Matcher = Callable[[CompletionContext], SimpleMatcherResult]

_SCORING = {
    "predict": predict.OPTIONS,
    "evaluate": evaluate.OPTIONS,
    "monitor": monitor.OPTIONS,
}
#: Verbs whose first argument is a run.
_OF_RUNS = (
    "show",
    "logs",
    "stop",
    "attach",
    "scale",
    "tag",
    "note",
    "compare",
    "reproduce",
    "export",
    "serve",
    *_SCORING,
)
MAGICS = ("%%distributed", "%%ddl_distributed")


def candidates(
    line: str, namespace: Mapping[str, Any], verbs: tuple[str, ...], runs: Callable[[], list[str]]
) -> list[str]:
    """Completions of the last word of `line`, a magic's line up to the cursor.

    Args:
        line: with the magic's name.
        namespace: the notebook's variables.
        verbs: those of `%ddl`.
        runs: returns the names of this kernel's runs.
    """
    words = line.split()
    word = "" if line[-1:].isspace() or not words else words[-1]
    before = words[: len(words) - 1] if word else words
    if not before:
        return []
    if before[0] in MAGICS:
        flag, equals, _ = word.partition("=")
        if equals and flag in BY_FLAG:
            found = [f"{flag}={value}" for value in _option_values([*before, flag], namespace, runs)]
        elif _wants_value(before):
            found = _option_values(before, namespace, runs)
        else:
            more = _option_values(before, namespace, runs)
            found = more or [o.flag for o in OPTIONS if o.flag not in before or o.repeats]
    elif before[0] == "%ddl":
        found = list(verbs) if len(before) == 1 else _verb_values(before, namespace, runs)
    else:
        return []
    start, comma, last = word.rpartition(",")
    return [start + comma + text for text in found if text.startswith(last)]


def _wants_value(before: list[str]) -> bool:
    """Whether the last complete word is an option whose value comes next."""
    option = BY_FLAG.get(before[-1])
    return option is not None and not option.sets


def _option_values(before: list[str], namespace: Mapping[str, Any], runs: Callable[[], list[str]]) -> list[str]:
    flags = [word for word in before if word.startswith("--")]
    option = BY_FLAG.get(flags[-1]) if flags else None
    if option is None or (before[-1] != flags[-1] and not option.many):
        return []
    if option.settings:
        return [*option.choices, *(f"{c}:{setting}=" for c in option.choices for setting in option.settings(c))]
    if option.choices:
        return list(option.choices)
    if option.completes == "frames":
        return frames(namespace)
    if option.completes == "runs":
        return runs()
    if option.completes == "columns":
        frame = namespace.get(before[before.index("--data") + 1]) if "--data" in before[:-1] else None
        return columns(frame) if is_frame(frame) else []
    if option.completes == "":
        return []
    assert_never(option.completes)


def _verb_values(before: list[str], namespace: Mapping[str, Any], runs: Callable[[], list[str]]) -> list[str]:
    if before[1:] == ["use"]:
        return ["auto", "embedded", "livy"]
    if before[1] == "tfrecord":
        return frames(namespace) if len(before) == 2 else [tfrecord.COMPRESSION] if len(before) > 3 else []
    if before[1] == "clean":
        return [option for option in (*clean.OPTIONS, clean.DRY_RUN) if option not in before]
    if before[1] == "scale" and len(before) > 2:
        return [option for option in scaling_request.FLAGS if option not in before]
    if before[1] == "serve" and len(before) > 2:
        return [option for option in serve.OPTIONS if option not in before]
    if before[1] in _SCORING and len(before) > 2:
        return [option for option in _SCORING[before[1]] if option not in before]
    return runs() if len(before) == 2 and before[1] in _OF_RUNS else []


def make_matcher(namespace: Mapping[str, Any], verbs: tuple[str, ...], runs: Callable[[], list[str]]) -> Matcher:
    """The matcher for `IPCompleter.custom_matchers`."""

    def ddl_matcher(context: CompletionContext) -> SimpleMatcherResult:
        line = context.line_with_cursor[: context.cursor_position]
        found = candidates(line.lstrip(), namespace, verbs, runs)
        # IPython replaces its own token, which may be shorter than the word, as IPython splits at commas.
        word = "" if line[-1:].isspace() else line.split()[-1] if line.split() else ""
        cut = len(word) - len(context.token)
        completions = [SimpleCompletion(text=text[max(cut, 0) :], type="param") for text in found]
        # IPython's TypedDict has optional keys, which mypy takes for required ones when it checks for Python 3.10.
        return {"completions": completions, "suppress": bool(completions)}  # type: ignore[typeddict-item]

    as_matcher: Callable[[Matcher], Matcher] = context_matcher()
    return as_matcher(ddl_matcher)
