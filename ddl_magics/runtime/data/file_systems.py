"""Where a process finds a file by its URI, without Spark.

Travels to executors by value (`by_value.py`), and needs pyarrow for what is no local file.
"""

from __future__ import annotations

import os
import urllib.parse
from typing import Any


def located(uri: str) -> tuple[Any, str, list[int]]:
    """(pyarrow's file system or None for this machine's, the path in it, the file's size and time of last change).

    Raises what the file system raises: OSError where there is no file; ImportError where pyarrow is missing.
    """
    scheme, _, path_text = uri.partition(":")
    if scheme == "file":
        path = urllib.parse.unquote(path_text[2:] if path_text.startswith("//") else path_text)
        status = os.stat(path)
        return None, path, [status.st_size, status.st_mtime_ns]
    import pyarrow.fs

    arrow_uri = "s3" + uri[3:] if scheme in ("s3a", "s3n") else uri
    system, path = pyarrow.fs.FileSystem.from_uri(arrow_uri)
    info = system.get_file_info(path)
    if info.size is None:
        raise FileNotFoundError("there is no file")
    return system, path, [info.size, info.mtime_ns or 0]


def content(uri: str) -> tuple[bytes, list[int]]:
    """(all bytes of a file, its size and time of last change). As `located`; OSError where it changes meanwhile."""
    system, path, stamp = located(uri)
    with open(path, "rb") if system is None else system.open_input_stream(path, compression=None) as file:
        data = bytes(file.read())
    if located(uri)[2] != stamp:
        raise OSError("it changes while it is read")
    return data, stamp


def problem(uri: str, seconds: float) -> str | None:
    """Why a file is not found here, in a few words, or None. Some file systems try for minutes to reach a host."""
    import threading

    problems = ["the executors cannot reach %s within %g s" % (uri, seconds)]

    def find() -> None:
        try:
            located(uri)
            problems.clear()
        except ImportError:
            problems[:] = ["the executors' Python has no pyarrow"]
        except Exception as error:  # of many file systems
            lines = str(error).splitlines()
            problems[:] = ["the executors cannot read %s (%s)" % (uri, lines[0] if lines else type(error).__name__)]

    thread = threading.Thread(target=find, daemon=True)
    thread.start()
    thread.join(seconds)
    return problems[0] if problems else None
