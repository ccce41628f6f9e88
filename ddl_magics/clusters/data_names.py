"""Whether the DataFrames and columns that a cell names exist, checked before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ddl_magics.runtime.data import columns as data_columns
from ddl_magics.runtime.data import roles, sources
from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.wording import nearest

#: Columns listed in a message.
MOST_COLUMNS = 20


def is_frame(value: Any) -> bool:
    """Whether it is a pandas or Spark DataFrame, by its type's name: neither library is imported for the answer."""
    kind = type(value)
    return kind.__name__ == "DataFrame" and kind.__module__.partition(".")[0] in ("pandas", "pyspark")


def frames(namespace: Mapping[str, Any]) -> list[str]:
    """The names of a notebook's DataFrames."""
    return sorted(name for name, value in namespace.items() if not name.startswith("_") and is_frame(value))


def columns(frame: Any) -> list[str]:
    return [str(column) for column in frame.columns]


def problem(spec: RunSpec, namespace: Mapping[str, Any]) -> str | None:
    """What is wrong with the DataFrames and columns of --data and the options that need it, in one line, or None."""
    if spec.data is None:
        return None
    if sources.is_files(spec.data):
        advice = sources.other_format(spec.data)
        if advice:
            return f"{advice}."
    validation = spec.validation if isinstance(spec.validation, str) and spec.validation.isidentifier() else None
    data_problem = None if sources.is_files(spec.data) else _frame_problem("--data", spec.data, spec, namespace)
    return data_problem or (None if validation is None else _frame_problem("--validation", validation, spec, namespace))


def _frame_problem(flag: str, name: str, spec: RunSpec, namespace: Mapping[str, Any]) -> str | None:
    if name not in namespace:
        return f"{flag}: there is no DataFrame {name}.{nearest(name, frames(namespace))}"
    frame = namespace[name]
    if not is_frame(frame):
        return (
            f"{flag}: {name} is no Spark or pandas DataFrame (its type is {type(frame).__name__}): leave {flag} out "
            "where the cell uses it as it is, or make a DataFrame of it."
        )
    names = columns(frame)
    option_columns = roles.Roles.from_spec(spec).columns_by_option(names)
    for column in [*roles.named_columns(spec.features or (), names), *(column for _, column in option_columns)]:
        if column not in names:
            whole = data_columns.in_pieces(spec.features or (), names)
            quote = whole and f" Did you mean {whole}? Quote it: --features '{whole}'."
            return f"{name} has no column {column}.{quote or nearest(column, names) or f' It has {_listed(names)}.'}"
    return None


def _listed(names: list[str]) -> str:
    """The columns; of many, the first and the last ones, where the label usually is."""
    if len(names) <= MOST_COLUMNS:
        return ", ".join(names)
    head, tail = names[: MOST_COLUMNS // 2], names[-MOST_COLUMNS // 2 :]
    return f"{len(names)} columns: {', '.join(head)}, ..., {', '.join(tail)}"
