"""The table of options as text: for `--help`, and for docs/options.md."""

from __future__ import annotations

from collections.abc import Iterable

from ddl_magics.options.option import Option
from ddl_magics.options.table import GROUPS, OPTIONS


def described(option: Option) -> list[str]:
    """The lines of an option in a help."""
    default = f" Default: {option.shown_default}." if option.shown_default else ""
    lines = [f"  {option.usage}", f"      {option.help}{default}"]
    return lines + [f"        {choice}: {meaning}" for choice, meaning in option.choices.items() if meaning]


def help_text() -> str:
    """What `%%distributed --help` prints."""
    lines = ["%%distributed [options]: train the cell's Keras model on several workers.", ""]
    for group, options in GROUPS.items():
        lines += [f"{group}:", *(line for option in options for line in described(option)), ""]
    return "\n".join(lines).rstrip()


def markdown_table(options: Iterable[Option] = OPTIONS) -> str:
    """The options as a Markdown table."""
    lines = ["| option | meaning | default |", "|---|---|---|"]
    for option in options:
        usage, help = option.usage.replace("|", " \\| "), option.help  # a narrow column breaks the line at a blank
        if len(option.choices) > 1 and not option.positional:
            usage, help = option.flag, f"{help} One of {', '.join(f'`{choice}`' for choice in option.choices)}."
        lines.append(f"| `{usage}` | {help} | {option.shown_default} |")
    return "\n".join(lines)


def markdown_meanings() -> str:
    """A Markdown table for each option whose values need explaining."""
    tables: list[str] = []
    for option in OPTIONS:
        if option.choices:
            lines = [f"## Values of `{option.flag}`", "", "| value | meaning |", "|---|---|"]
            lines += [f"| `{choice}` | {meaning} |" for choice, meaning in option.choices.items()]
            tables.append("\n".join(lines))
    return "\n\n".join(tables)
