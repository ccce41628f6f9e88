"""The tables of the benchmarks of --data: numbers, images in three forms, and a time series.

Images are of the size of MNIST's, with invented pixels, as arrays, as vectors of Spark ML and as PNG.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

#: Of Spark.
DataFrame = Any

PIXELS = 784
LABEL = "cast(id % 2 as int) y"
IMAGE = "transform(sequence(1, 784), k -> cast((id * k) % 256 as float)) pixels"


@dataclass(frozen=True)
class Table:
    """columns: SQL over `id`, besides the label. form: what else is done to the DataFrame. options: of --data.

    by_arrow: Spark gives its rows to --data as Arrow, which it does not with text and binary values.
    """

    rows: int
    columns: tuple[str, ...]
    form: Callable[[DataFrame], DataFrame] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    by_arrow: bool = True

    def frame(self, session: Any, folder: str, share: int = 1) -> DataFrame:
        """The table as Parquet files in `folder`, with one of `share` rows."""
        made = session.range(0, self.rows // share, 1, 4).selectExpr(*self.columns, LABEL)
        (made if self.form is None else self.form(made)).write.parquet(folder)
        return session.read.parquet(folder)


def _vectors(frame: DataFrame) -> DataFrame:
    from pyspark.ml.functions import array_to_vector

    return frame.select(array_to_vector(frame["pixels"]).alias("pixels"), "y")


def _pictures(frame: DataFrame) -> DataFrame:
    from pyspark.sql.functions import udf

    width, pack, compress, crc = 28, struct.pack, zlib.compress, zlib.crc32

    def png(pixels: list[float]) -> bytes:
        def part(kind: bytes, content: bytes) -> bytes:
            return pack(">I", len(content)) + kind + content + pack(">I", crc(kind + content))

        rows = bytes(map(int, pixels))
        lines = b"".join(b"\0" + rows[first : first + width] for first in range(0, len(rows), width))
        header = pack(">IIBBBBB", width, len(rows) // width, 8, 0, 0, 0, 0)
        return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", header) + part(b"IDAT", compress(lines)) + part(b"IEND", b"")

    return frame.select(udf(png, "binary")("pixels").alias("png"), "y")


TABLES = {
    "31 columns": Table(1_000_000, tuple(f"cast(rand({k}) as float) x{k}" for k in range(30))),
    "784 pixels": Table(60_000, (IMAGE,)),
    "784 pixels, vectors": Table(60_000, (IMAGE,), _vectors),
    "784 pixels, PNG": Table(60_000, (IMAGE,), _pictures, by_arrow=False),
    "windows of 48": Table(
        1_000_000,
        ("id time", *(f"cast(rand({k}) as float) x{k}" for k in range(8))),
        options={"features": [f"x{k}" for k in range(8)], "sequence_length": 48, "order_by": "time"},
    ),
    "3000 columns": Table(2_000, tuple(f"cast(rand({k}) as float) x{k}" for k in range(2_999))),
}
