"""The fingerprint of a DataFrame, of Spark or pandas: what it is made of. No row is read by Spark."""

from __future__ import annotations

import contextlib
import hashlib
import re
from typing import Any, Dict

from ..redaction import MASK, is_secret
from . import values

#: kind, columns {name: type}, plan (hash), files, sources [{path, size, modified}], sha256, rows.
Fingerprint = Dict[str, Any]

#: So many columns, and so many files with their sizes and times, are kept.
MOST_COLUMNS = 500
MOST_FILES = 32

#: Numbers in a plan that another session counts otherwise.
_NUMBERED = re.compile(r"#(\d+)")
_OF_SESSION = re.compile(r"RDD\[\d+\]|\bid=#?\d+|@[0-9a-f]{4,}")


def fingerprint(frame: Any) -> Fingerprint:
    """Of a DataFrame; what cannot be told is left out."""
    if type(frame).__module__.startswith("pandas."):
        columns = {str(name): str(dtype) for name, dtype in zip(frame.columns, frame.dtypes)}
        described = values.fingerprint(frame)
        of_values: Fingerprint = {name: described[name] for name in ("sha256", "sampled") if name in described}
        return {"kind": "pandas", "columns": _limited(columns), "rows": len(frame), **of_values}
    description: Fingerprint = {"kind": "spark"}
    for describe in (_columns, _plan, _sources):
        with contextlib.suppress(Exception):  # Py4J's, of many kinds; other versions of Spark have other methods
            description.update(describe(frame))
    return description


def _limited(columns: Dict[str, str]) -> Dict[str, str]:
    return dict(list(columns.items())[:MOST_COLUMNS])


def _columns(frame: Any) -> Fingerprint:
    return {"columns": _limited({field.name: field.dataType.simpleString() for field in frame.schema.fields})}


def _plan(frame: Any) -> Fingerprint:
    """A hash of the analyzed plan: how the DataFrame is computed. It does not tell which rows there are."""
    text = normalized(frame._jdf.queryExecution().analyzed().toString())
    return {"plan": hashlib.sha256(text.encode()).hexdigest()[:32]}


def normalized(plan: str) -> str:
    """A plan's text with the numbers of its expressions counted anew, and without those of its session."""
    numbers: Dict[str, int] = {}
    text = _NUMBERED.sub(lambda match: "#%d" % numbers.setdefault(match[1], len(numbers)), plan)
    return _OF_SESSION.sub("", text)


def _sources(frame: Any) -> Fingerprint:
    """The files that it reads, if it does: how many, and of the first ones size and time."""
    files = frame._jdf.inputFiles()
    count = len(files)
    if not count:
        return {}
    session = getattr(frame, "sparkSession", None) or frame.sql_ctx.sparkSession
    uris = [files[i] for i in range(min(count, MOST_FILES))]
    return {"files": count, "sources": [_status(session.sparkContext, uri) for uri in uris]}


def _status(context: Any, uri: str) -> Dict[str, Any]:
    source: Dict[str, Any] = {"path": MASK if is_secret(uri) else uri}
    with contextlib.suppress(Exception):  # it is gone, or its name is no URI
        path = context._jvm.org.apache.hadoop.fs.Path(context._jvm.java.net.URI(uri))
        status = path.getFileSystem(context._jsc.hadoopConfiguration()).getFileStatus(path)
        source.update(size=int(status.getLen()), modified=status.getModificationTime() / 1000)
    return source
