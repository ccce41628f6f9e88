"""`%ddl tfrecord`: a DataFrame of the notebook, or of the Livy session, as TFRecord files."""

from __future__ import annotations

from dataclasses import dataclass

from IPython.core.error import UsageError

from ddl_magics.commands.kernel import Kernel
from ddl_magics.errors import CannotWrite, RunInterrupted
from ddl_magics.wording import counted, in_bytes


@dataclass(frozen=True)
class TFRecordRequest:
    """data: the name of the DataFrame. uri: of the new folder."""

    data: str
    uri: str
    compression: str | None


def write(request: TFRecordRequest, kernel: Kernel) -> str:
    """Write the files; returns a line that says what was written.

    Raises:
        UsageError: there is no such DataFrame, or it cannot be written.
        RunInterrupted: the kernel was interrupted, which stops the writing.
    """
    cluster = kernel.session.cluster
    try:
        written = cluster.write_tfrecord(request.data, request.uri, request.compression, kernel.namespace)
    except CannotWrite as error:
        raise UsageError(str(error)) from None
    except KeyboardInterrupt:
        raise RunInterrupted("the writing has been stopped") from None
    counts = f"{counted(written['rows'], 'row')} in {counted(written['files'], 'file')}, {in_bytes(written['bytes'])}"
    return f"{request.uri} has {request.data}: {counts}; _index.json tells the records and bytes of each"
