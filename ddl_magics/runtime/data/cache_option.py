"""`--cache`: where the rows of --data are kept for later runs, and how many of them. Pure."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

_SIZE = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,12})?) ?(kB|MB|GB|TB)$")
_UNITS = {"kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}


@dataclass(frozen=True)
class CacheOption:
    """The value of --cache. folder: None for Spark's own. max_bytes: on each disk; None for a share of
    the disk.
    """

    folder: str | None = None
    max_bytes: int | None = None

    @classmethod
    def read(cls, text: str | None) -> CacheOption | None:
        """None where nothing is to be kept. ValueError, words that follow "must be", for no value of the option."""
        if text in (None, "off"):
            return None
        assert text is not None
        if text == "on":
            return cls()
        size = _SIZE.match(text)
        if size:
            return cls(max_bytes=int(float(size[1]) * _UNITS[size[2]]))
        if not os.path.isabs(text):
            raise ValueError("on, off, a size such as 20GB, or the path of a folder on the workers, from /")
        return cls(os.path.normpath(text))
