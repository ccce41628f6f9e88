"""Where a session's executors are, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ddl_magics.wording import counted


def lines(details: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(subject, finding) for `%ddl check`; none where Spark has no executors of their own, or does not tell.

    details: the reply of `driver.api.info`.
    """
    count = details.get("executors")
    if count is None:
        return
    finding, released = counted(int(count), "executor"), int(details.get("released", 0))
    if released:
        finding += f", {released} given back: the next run asks for them again, and %ddl acquire does so now"
    elif details.get("dynamic_allocation"):
        finding += (
            f"; Spark itself starts more when there is work, up to {details.get('slots')} slots, and removes them"
        )
    yield "executors", finding
