"""What a notebook would lose if its Spark session ended: DataFrames, RDDs and other objects of it, and its tables."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

#: Elements of a container that are looked at, and containers within one another.
_ELEMENTS, _DEPTH = 1000, 3


def statements(session: Any, namespace: Mapping[str, Any]) -> list[str]:
    """The statements that let go of all that would end with the session; none if nothing would.

    A variable that is the session itself does not count.
    """
    if "pyspark.sql" not in sys.modules:
        return []
    names = sorted(name for name, value in namespace.items() if not name.startswith("_") and _uses(value, session))
    return ([f"del {', '.join(names)}"] if names else []) + [
        f"spark.{'catalog.dropTempView' if is_view else 'sql'}({argument!r})" for is_view, argument in _tables(session)
    ]


def _uses(value: Any, session: Any, depth: int = 0) -> bool:
    """Whether the value is an object of this session's Java process, or contains one."""
    kind = type(value)
    package = kind.__module__.partition(".")[0]
    if package == "pyspark":
        return value is not session and _is_of(value, session)
    if depth == _DEPTH:
        return False
    inside = _inside(value, kind)
    return any(_uses(element, session, depth + 1) for element in islice(inside, _ELEMENTS))


def _inside(value: Any, kind: type) -> Iterable[Any]:
    """The elements of a container, or the attributes of an object of a class of the notebook."""
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, list | tuple | set | frozenset):
        return value
    return list(getattr(value, "__dict__", {}).values()) if kind.__module__ == "__main__" else ()


def _is_of(value: Any, session: Any) -> bool:
    context = session.sparkContext
    client = context._gateway._gateway_client
    held = [value, *getattr(value, "__dict__", {}).values()]
    return any(
        element is context or getattr(element, "__dict__", {}).get("_gateway_client") is client for element in held
    )


def _tables(session: Any) -> Iterator[tuple[bool, str]]:
    """(whether it is a view of the session, its name or the statement that drops it)."""
    for table in session.catalog.listTables():
        yield table.isTemporary, table.name if table.isTemporary else f"DROP TABLE {table.name}"
