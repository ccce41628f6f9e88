"""Completion of `%%distributed` and `%ddl` lines: options, their values, names of DataFrames, columns and runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult, context_matcher

from ddl_magics.clusters.data_names import columns, frames, is_frame
from ddl_magics.options import BUILT, BY_FLAG

MAGICS = ("%%distributed", "%%ddl_distributed")


def candidates(
    line: str, namespace: Mapping[str, Any], verbs: tuple[str, ...], runs: Callable[[], list[str]]
) -> list[str]:
    """What may stand at the end of `line`, a magic's line up to the cursor, that begins as its last word does."""
    words = line.split()
    word = "" if line[-1:].isspace() or not words else words[-1]
    before = words[: len(words) - 1] if word else words
    if not before:
        return []
    if before[0] in MAGICS:
        found = _option_values(before, namespace) or [o.flag for o in BUILT if o.flag not in before or o.repeats]
    elif before[0] == "%ddl":
        found = list(verbs) if len(before) == 1 else _verb_values(before, runs)
    else:
        return []
    start, comma, last = word.rpartition(",")
    return [start + comma + text for text in found if text.startswith(last)]


def _option_values(before: list[str], namespace: Mapping[str, Any]) -> list[str]:
    flags = [word for word in before if word.startswith("--")]
    option = BY_FLAG.get(flags[-1]) if flags else None
    if option is None or (before[-1] != flags[-1] and not option.many):
        return []
    if option.settings:
        return [*option.choices, *(f"{c}:{setting}=" for c in option.choices for setting in option.settings(c))]
    if option.choices:
        return list(option.choices)
    if option.flag in ("--data", "--validation"):
        return frames(namespace)
    if option.flag in ("--features", "--label") and "--data" in before[:-1]:
        frame = namespace.get(before[before.index("--data") + 1])
        return columns(frame) if is_frame(frame) else []
    return []


def _verb_values(before: list[str], runs: Callable[[], list[str]]) -> list[str]:
    if before[1:] == ["use"]:
        return ["auto", "embedded", "livy"]
    return runs() if len(before) == 2 and before[1] in ("show", "logs", "stop", "attach") else []


def make_matcher(
    namespace: Mapping[str, Any], verbs: tuple[str, ...], runs: Callable[[], list[str]]
) -> Callable[[CompletionContext], SimpleMatcherResult]:
    """The matcher for `IPCompleter.custom_matchers`."""

    @context_matcher()
    def ddl_matcher(context: CompletionContext) -> SimpleMatcherResult:
        line = context.line_with_cursor[: context.cursor_position]
        found = candidates(line.lstrip(), namespace, verbs, runs)
        # IPython replaces its own token, which may be shorter than the word (it splits at commas).
        word = "" if line[-1:].isspace() else line.split()[-1] if line.split() else ""
        cut = len(word) - len(context.token)
        completions = [SimpleCompletion(text=text[max(cut, 0) :], type="param") for text in found]
        return SimpleMatcherResult(completions=completions, suppress=bool(completions))  # type: ignore[typeddict-item]

    return ddl_matcher
