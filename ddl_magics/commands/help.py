"""The table of commands as text: for `%ddl --help`, `%ddl VERB --help`, the terminal, and docs/commands.md."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any

from ddl_magics.commands.command import Command
from ddl_magics.commands.table import COMMANDS
from ddl_magics.options.help import described, markdown_table
from ddl_magics.wording import aligned

#: The pages of the documentation, in a clone.
PAGES = Path(__file__).resolve().parents[2] / "docs"
#: Columns of a line.
WIDTH = 120


#: Options of `textwrap.wrap`: a flag such as `--keep-last` stays on one line.
_WHOLE_WORDS: Mapping[str, Any] = {"break_long_words": False, "break_on_hyphens": False}


def overview() -> str:
    """What `%ddl --help` prints: each verb with its usage and its help."""
    lines = [
        "%ddl VERB: choose the cluster; list, show, stop and remove runs. %ddl VERB --help explains its options.",
        "",
    ]
    for command in (command for command in COMMANDS if not command.terminal_only):
        for usage in command.usages:
            lines += _wrapped(usage.removeprefix("%ddl "), "  ", " " * 10)
        lines += _wrapped(command.help, " " * 6, " " * 6)
    return "\n".join([*lines, "", f"Documentation: {documentation()}"])


def documentation() -> str:
    """Where the pages are: beside the package in a clone, else at the address that the package gives, if any."""
    if (PAGES / "tutorial.md").exists():
        return str(PAGES)
    with suppress(PackageNotFoundError):
        for entry in metadata("ddl_magics").get_all("Project-URL") or ():
            label, _, address = entry.partition(", ")
            if label.lower() == "documentation":
                return str(address)
    return "the folder docs of ddl_magics' repository; its README lists the pages"


def _wrapped(text: str, indent: str, next_indent: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=next_indent, **_WHOLE_WORDS)


def of_command(command: Command) -> str:
    """What `%ddl VERB --help` prints."""
    rows = [line for option in command.rows for line in described(option)]
    return "\n".join([*command.usages, "", command.help, *(["", *rows] if rows else [])])


def in_terminal() -> str:
    """What `ddl-magics --help` prints."""
    verbs = [
        (f"  {command.verb}", command.help.partition(". ")[0].rstrip("."))
        for command in COMMANDS
        if command.in_terminal
    ]
    return "\n".join(
        [
            "usage: ddl-magics VERB ...: runs of %%distributed cells. ddl-magics VERB --help explains its options, and "
            "ddl-magics --version prints the version.",
            "",
            *aligned(verbs),
        ]
    )


def markdown() -> str:
    """A section of docs/commands.md for each command."""
    sections: list[str] = []
    for command in COMMANDS:
        usage = "\n".join(line for usage in command.usages for line in _wrapped(usage, "", " " * 4))
        terminal = f" Also in a terminal: `ddl-magics {command.verb}`." if command.in_terminal else ""
        terminal = " In a terminal only." if command.terminal_only else terminal
        table = [markdown_table(command.rows)] if command.rows else []
        head = [f"## `{command.verb}`", f"```text\n{usage}\n```", command.help + terminal]
        sections.append("\n\n".join([*head, *table, *_keys(command)]))
    return "\n\n".join(sections)


def _keys(command: Command) -> list[str]:
    """The answer of --json as a table."""
    rows = [f"| `{key}` | {meaning} |" for key, meaning in command.keys.items()]
    return ["\n".join(["| key of `--json` | |", "|---|---|", *rows])] if rows else []
