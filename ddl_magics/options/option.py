"""`Option`: a row of a table of options, which parsing, help, completion and documentation read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ddl_magics.wording import nearest


@dataclass(frozen=True)
class Option:
    """A row of a table: an option of a line, or a positional argument of a verb.

    Attributes:
        flag: as typed, with its dashes; without dashes, the name of a positional argument.
        help: one or more sentences.
        read: makes the value from its text; its ValueError says what the value must be.
        metavar: the value in the help; empty for a switch.
        default: the field's value where neither the line nor the configuration sets it.
        default_text: the default in words, where it depends on other options or is chosen later.
        choices: the allowed values, where they can be listed -> what each means; "" where the help says so.
        hint: suggests a choice for another word: a sentence with a space before it.
        settings: names of the settings that a choice takes, as in `CHOICE:name=value,name=value`.
        completes: names that completion offers: the notebook's DataFrames, the columns of --data, or runs.
        takes_list: takes several values ("a,b,c" or "a b c").
        values: how many values it takes; `read` gets all of them.
        repeats: may be given more than once, as `key=value`.
        required: the line must have it.
        alone: the line has this option and nothing else.
        needs: flag of the option without which this one has no effect.
        strategies: the strategies that the option applies to; empty for all.
        conflicts: what it cannot be combined with ("--rule", or with a value "--strategy ensemble") -> why, and what
            to do.
        sets: for a switch, the field and the value that it sets.
        configurable: may be set by `%config Distributed.<name>`.
        former_flag: its flag in 0.1.0, if it was renamed.
    """

    flag: str
    help: str
    read: Callable[..., Any] = str
    metavar: str = ""
    default: Any = None
    default_text: str = ""
    choices: Mapping[str, str] = field(default_factory=dict)
    hint: Callable[[str, Iterable[str]], str] = nearest
    settings: Callable[[str], tuple[str, ...]] | None = None
    completes: Literal["", "frames", "columns", "runs"] = ""
    takes_list: bool = False
    values: int = 1
    repeats: bool = False
    required: bool = False
    alone: bool = False
    needs: str = ""
    strategies: tuple[str, ...] = ()
    conflicts: Mapping[str, str] = field(default_factory=dict)
    sets: tuple[str, bool] | None = None
    configurable: bool = True
    former_flag: str = ""

    @property
    def positional(self) -> bool:
        return not self.flag.startswith("-")

    @property
    def name(self) -> str:
        """The field that the option sets, of `RunSpec` or of the verb's request."""
        return self.sets[0] if self.sets else self.flag.lstrip("-").replace("-", "_")

    @property
    def shown_default(self) -> str:
        """The default as the help shows it; empty if there is none."""
        return self.default_text or ("" if self.default in (None, ()) else str(self.default))

    @property
    def usage(self) -> str:
        """The option as it is typed, with a placeholder for its value: `--workers N`."""
        value = "|".join(self.choices) or self.metavar
        if self.positional:
            return f"{value or self.flag.upper()}{' ...' if self.takes_list else ''}"
        return f"{self.flag} {value}".rstrip()
