"""What a monitor on a cluster reads, as the notebook names it."""

from __future__ import annotations

from ddl_magics.runtime.monitoring.sources import REFERENCE_FILE, BadSource, Source
from ddl_magics.runtime.monitoring.sources import read as source

__all__ = ["REFERENCE_FILE", "BadSource", "Source", "source"]
