"""Whether the DataFrames and columns that a cell names are there, told before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ddl_magics.spec import RunSpec
from ddl_magics.wording import nearest


def is_frame(value: Any) -> bool:
    """A pandas or Spark DataFrame, told by its shape: neither library may be imported for the question."""
    kind = type(value)
    return kind.__name__ == "DataFrame" and kind.__module__.partition(".")[0] in ("pandas", "pyspark")


def frames(namespace: Mapping[str, Any]) -> list[str]:
    """Names of the DataFrames of a notebook."""
    return sorted(name for name, value in namespace.items() if not name.startswith("_") and is_frame(value))


def columns(frame: Any) -> list[str]:
    return [str(column) for column in frame.columns]


def problem(spec: RunSpec, namespace: Mapping[str, Any]) -> str | None:
    """What is wrong with --data, --features, --label and --validation, in one line; None if nothing is."""
    if spec.data is None:
        return None
    names = [*(spec.features or ()), *([spec.label] if spec.label is not None else [])]
    return _frame_problem("--data", spec.data, names, namespace) or (
        _frame_problem("--validation", spec.validation, names, namespace) if isinstance(spec.validation, str) else None
    )


def _frame_problem(flag: str, name: str, wanted: list[str], namespace: Mapping[str, Any]) -> str | None:
    if name not in namespace:
        return f"{flag}: there is no DataFrame {name}.{nearest(name, frames(namespace))}"
    frame = namespace[name]
    if not is_frame(frame):
        return f"{flag}: {name} is a {type(frame).__name__}, and must be a Spark or pandas DataFrame."
    there = columns(frame)
    for column in wanted:
        if column not in there:
            hint = nearest(column, there) or f" It has {', '.join(there[:8])}{', ...' if len(there) > 8 else ''}."
            return f"{name} has no column {column}.{hint}"
    return None
