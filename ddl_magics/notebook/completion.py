"""Completion of `%%distributed` and `%ddl` lines: options, their values, names of DataFrames, columns and runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult, context_matcher

from ddl_magics.clusters.data_names import columns, frames, is_frame
from ddl_magics.commands.table import BY_VERB, VERBS
from ddl_magics.options.option import Option
from ddl_magics.options.table import OPTIONS
from ddl_magics.runtime.assert_never import assert_never

Matcher = Callable[[CompletionContext], SimpleMatcherResult]

MAGICS = ("%%distributed", "%%ddl_distributed")


def candidates(line: str, namespace: Mapping[str, Any], runs: Callable[[], list[str]]) -> list[str]:
    """Completions of the last word of `line`, a magic's line up to the cursor.

    Args:
        line: with the magic's name.
        namespace: the notebook's variables.
        runs: returns the names of this kernel's runs.
    """
    words = line.split()
    cursor_word = "" if line[-1:].isspace() or not words else words[-1]
    before = words[: len(words) - 1] if cursor_word else words
    if not before:
        return []
    if before[0] in MAGICS:
        names = _Line(OPTIONS, before[1:], namespace, runs).names(cursor_word)
    elif before == ["%ddl"]:
        names = list(VERBS)
    elif before[0] == "%ddl" and before[1] in BY_VERB:
        names = _Line(BY_VERB[before[1]].rows, before[2:], namespace, runs).names(cursor_word)
    else:
        return []
    start, comma, prefix = cursor_word.rpartition(",")
    return [start + comma + name for name in names if name.startswith(prefix)]


@dataclass(frozen=True)
class _Line:
    """The words before the cursor, and the rows of the options that may follow."""

    options: Sequence[Option]
    before: list[str]
    namespace: Mapping[str, Any]
    runs: Callable[[], list[str]]

    def names(self, cursor_word: str) -> list[str]:
        """Completions of the word at the cursor."""
        by_flag = {option.flag: option for option in self.options}
        flag, equals, _ = cursor_word.partition("=")
        if equals and flag in by_flag:
            return [f"{flag}={value}" for value in self._values(by_flag[flag])]
        last_flag = next((text for text in reversed(self.before) if text.startswith("--")), None)
        option = by_flag.get(last_flag or "")
        if option is not None and not option.sets and self.before[-1] == last_flag:
            return self._values(option)
        values = self._values(option) if option is not None and option.takes_list else []
        argument = None if option is not None else self._argument()
        if argument is not None and argument.required:
            return self._values(argument)
        flags = [o.flag for o in self.options if not o.positional and (o.flag not in self.before or o.repeats)]
        return values or flags

    def _argument(self) -> Option | None:
        """The positional argument at the cursor, if no option precedes it."""
        arguments = [option for option in self.options if option.positional]
        return arguments[len(self.before)] if len(self.before) < len(arguments) else None

    def _values(self, option: Option) -> list[str]:
        if option.settings:
            return [*option.choices, *(f"{c}:{setting}=" for c in option.choices for setting in option.settings(c))]
        if option.choices:
            return list(option.choices)
        if option.completes == "frames":
            return frames(self.namespace)
        if option.completes == "runs":
            return self.runs()
        if option.completes == "columns":
            before = self.before
            frame = self.namespace.get(before[before.index("--data") + 1]) if "--data" in before[:-1] else None
            return columns(frame) if is_frame(frame) else []
        if option.completes == "":
            return []
        assert_never(option.completes)


def make_matcher(namespace: Mapping[str, Any], runs: Callable[[], list[str]]) -> Matcher:
    """The matcher for `IPCompleter.custom_matchers`."""

    def ddl_matcher(context: CompletionContext) -> SimpleMatcherResult:
        line = context.line_with_cursor[: context.cursor_position]
        names = candidates(line.lstrip(), namespace, runs)
        # IPython replaces its own token, which may be shorter than the word, as IPython splits at commas.
        cursor_word = "" if line[-1:].isspace() else line.split()[-1] if line.split() else ""
        cut = len(cursor_word) - len(context.token)
        completions = [SimpleCompletion(text=text[max(cut, 0) :], type="param") for text in names]
        # IPython's TypedDict has optional keys, which mypy takes for required ones when it checks for Python 3.10.
        return {"completions": completions, "suppress": bool(completions)}  # type: ignore[typeddict-item]

    as_matcher: Callable[[Matcher], Matcher] = context_matcher()
    return as_matcher(ddl_matcher)
