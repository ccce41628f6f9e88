"""What a run starts with, as its driver sees it: packages, Spark's settings, its values and its DataFrame."""

from __future__ import annotations

import platform
import re
import socket
from typing import TYPE_CHECKING, Any, Mapping

from ..cell import process_settings
from ..provenance import frames, packages, values
from ..redaction import MASK, masked
from ..spark.settings import conf_of

if TYPE_CHECKING:
    from pyspark import SparkContext

    from ..data.records import DataFrame

#: A longer value of a setting is cut: jars and class paths may be pages.
MOST_CHARACTERS = 500


def of_launch(
    sc: SparkContext, captured: Mapping[str, Any], frame: DataFrame | None, streams: bool
) -> dict[str, Any] | None:
    """The fields of the job's `environment` event; None where that fails, which must not keep a run from starting.

    captured: the variables that travel to the ranks. frame: that of --data. streams: whether the ranks continue
    the session's random numbers.
    """
    try:
        fields: dict[str, Any] = {
            "packages": packages.installed(),
            "python": platform.python_version(),
            "platform": platform.platform(),
            "host": socket.gethostname(),
            "spark": {"version": sc.version, "master": sc.master, "settings": settings(sc)},
            "sent": values.fingerprints(captured),
            "session": ", ".join(process_settings.of_process(streams).names),
        }
        if frame is not None:
            fields["data"] = frames.fingerprint(frame)
        return fields
    except Exception:  # Py4J's kinds, or what a value's own methods raise
        return None


def settings(sc: SparkContext) -> dict[str, str]:
    """The session's settings, without secrets: also those that its own `spark.redaction.regex` names."""
    all_settings = dict(conf_of(sc).getAll())
    pattern = all_settings.get("spark.redaction.regex")
    hidden = re.compile(pattern) if pattern else None
    shortened = {name: value[:MOST_CHARACTERS] for name, value in masked(all_settings).items()}
    if hidden is not None:
        shortened = {
            name: MASK if hidden.search(name) or hidden.search(all_settings[name]) else shortened[name]
            for name in shortened
        }
    return dict(sorted(shortened.items()))
