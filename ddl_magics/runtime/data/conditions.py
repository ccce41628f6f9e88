"""--where where it is simple: comparisons of a column with a value, joined by `and`.

Workers that read files themselves find the rows of these without Spark, and they are the rows that Spark finds. All
else is left to Spark: `read` knows only what is certain to mean the same.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Mapping, Sequence

if TYPE_CHECKING:
    from .records import Column, Condition

_TOKEN = re.compile(
    r"\s*(?:(?:(?P<name>`[^`]+`|[A-Za-z_]\w*)|(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
    r"|(?P<text>'[^'\\$]*'))(?![\w.`'\"])|(?P<sign><=|>=|<>|!=|==|=|<|>))"
)
_SIGNS = {"=": "==", "<>": "!="}
_WORDS = {"and", "or", "not", "in", "is", "null", "like", "rlike", "between", "true", "false", "case", "cast", "div"}
_INTEGERS = ("i1", "i2", "i4", "i8")


def read(text: str, columns: Mapping[str, Column]) -> list[Condition] | None:
    """The comparisons of a condition of Spark SQL, or None where it is not as simple.

    columns: by name, as `columns.describe` has them. A name of another case, which Spark may take, is not known here.
    """
    tokens = _tokens(text)
    if tokens is None or len(tokens) % 4 != 3:
        return None
    conditions: list[Condition] = []
    for at in range(0, len(tokens), 4):
        name, sign, value, *joint = tokens[at : at + 4]
        if joint and (joint[0][0], joint[0][1].lower()) != ("name", "and"):
            return None
        if name[0] != "name" or sign[0] != "sign" or name[1].lower() in _WORDS:
            return None
        column = columns.get(name[1].strip("`"))
        condition = None if column is None else _condition(column, _SIGNS.get(sign[1], sign[1]), *value)
        if condition is None:
            return None
        conditions.append(condition)
    return conditions


def _tokens(text: str) -> list[tuple[str, str]] | None:
    """(kind, text) of each, or None where something is of another kind."""
    tokens, at, stop = [], 0, len(text.rstrip())
    while at < stop:
        match = _TOKEN.match(text, at)
        if match is None:
            return None
        assert match.lastgroup is not None
        tokens.append((match.lastgroup, match.group(match.lastgroup)))
        at = match.end()
    return tokens


def _condition(column: Column, sign: str, kind: str, value: str) -> Condition | None:
    """Spark compares whole numbers as such, floats as doubles, and texts by their bytes."""
    if column["depth"] or column["vector"]:
        return None
    dtype = column["dtype"]
    if dtype == "S" and kind == "text" and sign in ("==", "!="):
        return {"column": column["name"], "sign": sign, "value": value[1:-1]}
    if kind != "number":
        return None
    is_integer = re.fullmatch(r"[+-]?\d+", value) is not None
    if dtype in _INTEGERS and is_integer and -(1 << 63) <= int(value) < 1 << 63:
        return {"column": column["name"], "sign": sign, "value": int(value)}
    # Whole numbers become floats of the column's size, others doubles: a difference from 2^24 on.
    if dtype in ("f4", "f8") and (not is_integer or abs(int(value)) <= 1 << 24):
        return {"column": column["name"], "sign": sign, "value": float(value)}
    return None


def names(conditions: Sequence[Condition]) -> list[str]:
    """The columns, each once."""
    return sorted({condition["column"] for condition in conditions})
