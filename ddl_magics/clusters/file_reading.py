"""What reads files of --data: the workers themselves, or Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def finding(details: Mapping[str, Any]) -> str:
    """The line for a session with these details, as `driver.api.info` gives them: of the driver's Python."""
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
