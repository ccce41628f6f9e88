"""Spark's DataFrames as TFRecord files, for what reads no Spark."""

from __future__ import annotations

from typing import Any

from ddl_magics.errors import CannotWrite


def write_tfrecord(df: Any, uri: str, *, compression: str | None = None) -> int:
    """Write the rows of a Spark DataFrame as TFRecord files of tf.train.Example; returns how many they are.

    The folder appears when all of it is written: a file `part-00000.tfrecord` for each partition with rows, and
    `_index.json`, which tells the records and bytes of each file. Whole numbers and booleans become int64; floats,
    doubles, decimals and vectors float32; texts and bytes bytes; arrays a list of these. A row leaves out what is null.

    Args:
        df: a DataFrame of a Spark session in this process, and not one that streams.
        uri: a folder that does not exist yet, on any storage that Spark can write to; with its name ending in
            `.tfrecord`, `--data` knows what it is.
        compression: None or "gzip", which names the files `part-00000.tfrecord.gz`.

    Raises:
        CannotWrite: a ValueError of one line; a column is of another type, a value is beyond float32, or the folder
            cannot be written.
    """
    from ddl_magics.runtime.data import tfrecord_folder
    from ddl_magics.runtime.data.columns import DataError

    try:
        return tfrecord_folder.write(df, uri, compression).rows
    except DataError as error:
        raise CannotWrite(str(error)) from None
