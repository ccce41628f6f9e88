"""`%ddl tfrecord`: a DataFrame of the notebook, or of the Livy session, as TFRecord files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from IPython.core.error import UsageError

from ddl_magics.clusters.base import Cluster
from ddl_magics.errors import CannotWrite, RunInterrupted
from ddl_magics.options.line import split_values
from ddl_magics.options.redaction import as_word
from ddl_magics.wording import counted, in_bytes, nearest

COMPRESSION = "--compression"
#: Of TensorFlow's readers, those that Spark can write.
COMPRESSIONS = ("gzip",)
USAGE = "%ddl tfrecord DATAFRAME URI [--compression gzip]"


@dataclass(frozen=True)
class Request:
    """The DataFrame by its name, and the folder that is made."""

    data: str
    uri: str
    compression: str | None = None


def parse(arguments: Sequence[str]) -> Request:
    """UsageError, one line, where the words are no request."""
    words = split_values(arguments)
    compression = None
    if COMPRESSION in words:
        at = words.index(COMPRESSION)
        compression = words[at + 1] if at + 1 < len(words) else ""
        del words[at : at + 2]
        if compression not in COMPRESSIONS:
            raise UsageError(f"{COMPRESSION} must be gzip, not {as_word(compression)}. Write: {USAGE}")
    unknown = next((word for word in words if word.startswith("--")), None)
    if unknown:
        hint = nearest(unknown, (COMPRESSION,))
        raise UsageError(f"%ddl tfrecord has no option {as_word(unknown)}.{hint} Write: {USAGE}")
    if len(words) != 2:
        raise UsageError(f"write: {USAGE}")
    data, uri = words
    return Request(data, uri, compression)


def write(request: Request, cluster: Cluster, namespace: Mapping[str, Any]) -> str:
    """Write the files; returns a line that says what was written.

    Raises:
        UsageError: there is no such DataFrame, or it cannot be written.
        RunInterrupted: the kernel was interrupted, which stops the writing.
    """
    try:
        written = cluster.write_tfrecord(request.data, request.uri, request.compression, namespace)
    except CannotWrite as error:
        raise UsageError(str(error)) from None
    except KeyboardInterrupt:
        raise RunInterrupted("the writing has been stopped") from None
    made = f"{counted(written['rows'], 'row')} in {counted(written['files'], 'file')}, {in_bytes(written['bytes'])}"
    return f"{request.uri} has {request.data}: {made}; _index.json tells the records and bytes of each"
