"""`%ddl tfrecord`: a DataFrame of the notebook, or of the Livy session, as TFRecord files."""

from __future__ import annotations

from ddl_magics.commands.kernel import Kernel
from ddl_magics.errors import RunInterrupted
from ddl_magics.wording import counted, in_bytes


def write(kernel: Kernel, data: str, uri: str, compression: str | None) -> str:
    """Write the DataFrame named `data` to the new folder `uri`; returns a line that says what was written.

    Raises:
        CannotWrite: there is no such DataFrame, or it cannot be written.
        RunInterrupted: the kernel was interrupted, which stops the writing.
    """
    cluster = kernel.session.cluster
    try:
        written = cluster.write_tfrecord(data, uri, compression, kernel.namespace)
    except KeyboardInterrupt:
        raise RunInterrupted("the writing has been stopped") from None
    counts = f"{counted(written['rows'], 'row')} in {counted(written['files'], 'file')}, {in_bytes(written['bytes'])}"
    return f"{uri} has {data}: {counts}; _index.json tells the records and bytes of each"
