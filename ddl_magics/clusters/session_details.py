"""What `%ddl check` says of a Spark session: its executors, encryption and files. `details`: of `driver.api.info`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ddl_magics.wording import counted


def executors(details: Mapping[str, Any]) -> str | None:
    """Where the executors are; None where Spark has no executors of their own, or does not tell."""
    count = details.get("executors")
    if count is None:
        return None
    finding, released = counted(int(count), "executor"), int(details.get("released", 0))
    if released:
        return f"{finding}, {released} given back: the next run asks for them again, and %ddl acquire does so now"
    if details.get("dynamic_allocation"):
        slots = details.get("slots")
        return f"{finding}; Spark itself starts more when there is work, up to {slots} slots, and removes them"
    return finding


def encryption(details: Mapping[str, Any]) -> str:
    """Whether a run's connections are encrypted."""
    if str(details.get("master", "")).startswith("local"):
        return "not needed: a run's connections stay on this machine"
    by_spark = details.get("encrypted_by") or ()
    if by_spark:
        return f"a run's connections are encrypted, as Spark encrypts ({', '.join(by_spark)}); not with --encrypt no"
    return "none, neither of Spark's own connections nor of a run's: --encrypt yes encrypts a run's"


def file_reading(details: Mapping[str, Any]) -> str:
    """What reads files of --data: the workers themselves, or Spark."""
    version = details.get("pyarrow")
    if version:
        return (
            f"workers read Parquet (pyarrow {version}) and TFRecord themselves where they reach it, else Spark does; "
            "ORC and CSV go through Spark"
        )
    return (
        "Parquet, ORC and CSV go through Spark, and TFRecord that is not on local disks: with pip install pyarrow on "
        "the executors, workers read Parquet and TFRecord themselves"
    )
