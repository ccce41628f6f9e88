"""`Command`: a row of the table of commands, which parses the words after its verb into values."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from IPython.core.error import UsageError

from ddl_magics.commands.answer import Answer, as_json
from ddl_magics.commands.kernel import Display, Kernel
from ddl_magics.errors import InOneLine
from ddl_magics.options import similar, words
from ddl_magics.options.option import Option
from ddl_magics.options.redaction import as_word

#: Of each verb that has an answer for programs.
JSON = Option("--json", "Print the answer as one line of JSON, and nothing else.", sets=("json", True))


@dataclass(frozen=True)
class Command:
    """A verb of `%ddl`.

    Attributes:
        verb: its word.
        help: one or more sentences.
        run: called with a `Kernel`, and with the value of each row by its name. Returns the text to print, or another
            result of the magic; a verb with `keys` returns an `Answer`.
        options: the rows: positional arguments in their order, and options.
        keys: key of the answer for programs -> its meaning.
        terminal_only: a notebook does not have the verb.
        split: splits the text after the verb into words.
    """

    verb: str
    help: str
    run: Callable[..., Any]
    options: tuple[Option, ...] = ()
    keys: Mapping[str, str] = field(default_factory=dict)
    terminal_only: bool = False
    split: Callable[[str], list[str]] = words.split

    @property
    def name(self) -> str:
        return f"{'ddl-magics' if self.terminal_only else '%ddl'} {self.verb}"

    @property
    def in_terminal(self) -> bool:
        """`ddl-magics` has the verb as well: each of its verbs answers programs, too."""
        return bool(self.keys)

    @property
    def rows(self) -> tuple[Option, ...]:
        """`options`, and --json where the verb has it. Nothing follows what stands after --."""
        rows = (*self.options, JSON) if self.keys else self.options
        return tuple(sorted(rows, key=lambda row: row.metavar.startswith("-- ")))

    @property
    def usages(self) -> list[str]:
        """The usage of the verb; an option that stands alone has a usage of its own."""
        together = [row.usage if row.required else f"[{row.usage}]" for row in self.rows if not row.alone]
        common = [f"[{JSON.usage}]"] if self.keys else []
        forms = [together, *([row.usage, *common] for row in self.options if row.alone)]
        return [" ".join([self.name, *form]) for form in forms]

    @property
    def usage(self) -> str:
        return ", or ".join(self.usages)

    def execute(self, kernel: Kernel, texts: Sequence[str]) -> Any:
        """Run the verb with the words after it. With --json, the text of its `Answer` is JSON.

        Raises:
            UsageError: a wrong word, or an error of one line.
        """
        values = self.read(texts)
        in_json = values.pop(JSON.name, False)
        try:
            if not in_json:
                return self.run(kernel, **values)
            with contextlib.redirect_stdout(sys.stderr):  # messages on the way
                answer: Answer = self.run(replace(kernel, display=Display()), **values)
            return replace(answer, text=as_json(answer.value))
        except InOneLine as error:
            raise UsageError(str(error)) from None

    def read(self, texts: Sequence[str]) -> dict[str, Any]:
        """Parse the words after the verb into the value of each row, by its name.

        Raises:
            UsageError: one line that names the nearest valid word, or the usage.
        """
        values = words.read(texts, self.rows, self._unknown, self.name)
        alone = [row for row in self.options if row.alone and row.name in values]
        if len(values.keys() - {JSON.name}) > len(alone) > 0:
            raise self._usage_error
        by_flag = {row.flag: row for row in self.rows}
        for row in () if alone else self.options:
            if row.name in values:
                problem = words.misuse(row, values, by_flag)
                if problem is not None:
                    raise UsageError(problem)
            elif row.required:
                raise self._usage_error if row.positional else UsageError(f"{row.flag} is missing. Write: {self.usage}")
        defaults = {row.name: False if row.sets else row.default for row in self.rows}
        return {**defaults, **values}

    @property
    def _usage_error(self) -> UsageError:
        return UsageError(f"write: {self.usage}")

    def _unknown(self, typed: str) -> UsageError:
        if not typed.startswith("-"):
            return self._usage_error
        hint = similar.did_you_mean(typed, similar.FLAGS, [row.flag for row in self.rows if not row.positional])
        return UsageError(f"{self.name} has no option {as_word(typed)}.{hint} Write: {self.usage}")
