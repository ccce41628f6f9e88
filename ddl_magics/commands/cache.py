"""`%ddl cache`: the rows of --data that the workers keep for later runs."""

from __future__ import annotations

import time

from ddl_magics.commands.kernel import Kernel
from ddl_magics.wording import aligned, counted, in_bytes


def cache(kernel: Kernel, clear: bool) -> str:
    """List the cached rows, and remove them if `clear`."""
    cluster = kernel.session.cluster
    option: str | None = kernel.settings().get("cache")
    if option == "off":
        return "--cache is off by %config Distributed.cache: nothing is kept"
    entries = cluster.cache(option or "on", clear)
    if isinstance(entries, str):
        return f"{cluster.name} does not say what it keeps: {entries}"
    if not entries:
        location = f"in {option}" if option and option.startswith("/") else "in this Spark session"
        return f"the workers keep no rows of --data {location}"
    total = sum(entry["bytes"] for entry in entries)
    if clear:
        return f"{in_bytes(total)} of {counted(len(entries), 'data set')} removed"
    rows = [
        (
            str(entry["data"]),
            counted(entry["shares"], "share"),
            in_bytes(entry["bytes"]),
            f"made {_moment(entry['made'])}",
            f"used {_moment(entry['used'])}",
            f"{entry['host']}:{entry['root']}",
        )
        for entry in sorted(entries, key=lambda entry: -entry["used"])
    ]
    return "\n".join([*aligned(rows), f"{in_bytes(total)} in all"])


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
