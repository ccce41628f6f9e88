"""The table of options as text: for `--help`, and for docs/options.md."""

from __future__ import annotations

from ddl_magics.options import BUILT, OPTIONS, Option


def _usage(option: Option) -> str:
    metavar = "|".join(option.choices) if option.choices else option.metavar
    return f"{option.flag} {metavar}".rstrip()


def help_text() -> str:
    """What `%%distributed --help` prints."""
    lines = ["%%distributed [options]: trains the cell's Keras model on several workers.", ""]
    for option in BUILT:
        default = "" if option.default is None else f" (default: {option.default})"
        lines += [f"  {_usage(option)}", f"      {option.help}{default}"]
        lines += [f"        {choice}: {meaning}" for choice, meaning in option.meanings.items()]
    later = ", ".join(option.flag for option in OPTIONS if option.coming)
    return "\n".join([*lines, "", f"Not built yet: {later}."])


def markdown_table() -> str:
    """The table of the documentation, made from `OPTIONS`."""
    lines = ["| option | meaning | default |", "|---|---|---|"]
    for option in BUILT:
        default = "" if option.default is None else str(option.default)
        usage = _usage(option).replace("|", "\\|")
        lines.append(f"| `{usage}` | {option.help} | {default} |")
    return "\n".join(lines)


def markdown_meanings() -> str:
    """For the documentation: what the values of options mean whose names do not say it."""
    tables: list[str] = []
    for option in BUILT:
        if option.meanings:
            lines = [f"## Values of `{option.flag}`", "", "| value | meaning |", "|---|---|"]
            lines += [f"| `{choice}` | {meaning} |" for choice, meaning in option.meanings.items()]
            tables.append("\n".join(lines))
    return "\n\n".join(tables)
