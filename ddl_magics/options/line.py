"""The line of a cell from the spec of its run; `parsing.parse` reads it back."""

from __future__ import annotations

import shlex
from typing import Any

from ddl_magics.options.table import OPTIONS
from ddl_magics.runtime.redaction import MASK
from ddl_magics.runtime.run_spec import RunSpec

#: Options that are chosen anew for each execution.
_LEFT_OUT = ("name", "wait", "dry_run")


def cell_of(spec: RunSpec, name: str = "") -> str:
    """The cell of a run: its line with all options that are set, and its source.

    Values of --conf that are masked are left out; `masked_settings` names them.

    Args:
        spec: of the run.
        name: for --name; left out where it is empty.
    """
    words = ["%%distributed", *(["--name", name] if name else [])]
    for option in OPTIONS:
        value: Any = spec.bounds if option.name == "workers" else getattr(spec, option.name)
        if option.name in _LEFT_OUT or value is None or (option.repeats and not value):
            continue
        if option.sets:
            words += [option.flag] if value == option.sets[1] else []
        elif option.repeats:
            pairs = [f"{key}={setting}" for key, setting in value.items() if setting != MASK]
            words += [argument for pair in pairs for argument in (option.flag, shlex.quote(pair))]
        else:
            words += [option.flag, shlex.quote(_text(value))]
    return f"{' '.join(words)}\n{spec.cell}"


def masked_settings(spec: RunSpec) -> list[str]:
    """The keys of --conf whose values are secrets, which no stored run has."""
    return [key for key, value in spec.conf.items() if value == MASK]


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(name.replace(",", "\\,") for name in value)
    return f"{value:.15g}" if isinstance(value, float) else str(value)
