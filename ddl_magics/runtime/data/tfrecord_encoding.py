"""Rows of Spark as TFRecord files, written without TensorFlow: what Spark's executors make of them.

The bytes of a partition's file are cut into lines of text, as Spark's text files are the one kind of file that it
writes as they come, on every storage: between two lines it writes a separator, and another at the end. The separator is
one byte of zero, and stands for a byte of the file that is zero anyway: the eighth of each record's length, and the
last of the last record's checksum. For this, the last record has a field that readers skip, with a number that makes
its checksum end in zero.

Travels to executors by value (`by_value.py`), and needs numpy alone.
"""

from __future__ import annotations

import itertools
import struct
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator, Sequence

if TYPE_CHECKING:
    from .records import Column

#: Records that are encoded at once, and of so many bytes.
BLOCK_RECORDS = 1024
BLOCK_BYTES = 8 << 20
#: Tag of the field of an Example that no reader knows: number 15, an integer.
UNKNOWN_FIELD = b"\x78"

#: `tfrecord.checksums`.
Checksums = Callable[[Sequence[bytes]], Sequence[int]]
#: `tfrecord.checksums_behind`.
ChecksumsBehind = Callable[[bytes, Sequence[bytes]], Sequence[int]]


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def message(number: int, content: bytes) -> bytes:
    """A field that is a message, or bytes."""
    return bytes([number << 3 | 2]) + varint(len(content)) + content


def kind_of(column: Column) -> int:
    """The field of a Feature that has the values: 1 bytes, 2 floats, 3 integers."""
    return 1 if column["dtype"] == "S" else 2 if column["dtype"][0] == "f" else 3


def feature(value: Any, column: Column) -> bytes:
    """ValueError, one line, for a value that a Feature cannot have."""
    if column["vector"]:
        value = value.toArray().tolist()
    values = value if column["depth"] or column["vector"] else [value]
    if any(item is None for item in values):
        raise ValueError("column %r has arrays with empty values (null): fill them first" % column["name"])
    kind = kind_of(column)
    if kind == 1:
        content = b"".join(
            message(1, item.encode("utf-8") if isinstance(item, str) else bytes(item)) for item in values
        )
    elif kind == 2:
        try:
            content = message(1, struct.pack("<%df" % len(values), *map(float, values)))
        except OverflowError:
            raise ValueError(beyond_float32(column)) from None
    else:
        content = message(1, b"".join(varint(int(item)) for item in values))
    return message(kind, content)


def entry_maker(column: Column) -> Callable[[Any], bytes]:
    """What makes the entry of a column in an Example of its value."""
    name = message(1, column["name"].encode("utf-8"))
    if kind_of(column) != 2 or column["depth"] or column["vector"]:
        return lambda value: message(1, name + message(2, feature(value, column)))
    before, pack = message(1, name + message(2, feature(0.0, column)))[:-4], struct.Struct("<f").pack

    def of_float(value: Any) -> bytes:
        try:
            return before + pack(value)
        except OverflowError:
            raise ValueError(beyond_float32(column)) from None

    return of_float


def beyond_float32(column: Column) -> str:
    return "column %r has numbers beyond those of float32, which TFRecord has" % column["name"]


def example(row: Sequence[Any], makers: Sequence[Callable[[Any], bytes]]) -> bytes:
    """A row as the message. A value that is missing is left out."""
    return message(1, b"".join([make(value) for value, make in zip(row, makers) if value is not None]))


def blocks(records: Iterable[bytes]) -> Iterator[list[bytes]]:
    """The records, some at once."""
    block, size = [], 0
    for record in records:
        block.append(record)
        size += len(record)
        if len(block) == BLOCK_RECORDS or size >= BLOCK_BYTES:
            yield block
            block, size = [], 0
    if block:
        yield block


def framed(record: bytes, of_length: int, of_data: int) -> bytes:
    """A record as it is in a file. The checksums are masked."""
    return struct.pack("<QI", len(record), of_length) + record + struct.pack("<I", of_data)


def last_record(record: bytes, checksums_behind: ChecksumsBehind) -> bytes:
    """The same Example, with a checksum whose last byte is zero: one of the numbers of two bytes makes it so."""
    fields = [UNKNOWN_FIELD + varint(number) for number in range(1 << 7, 1 << 14)]
    return record + next(
        field for field, checksum in zip(fields, checksums_behind(record, fields)) if checksum >> 24 == 0
    )


def lines(records: Iterable[bytes], checksums: Checksums, checksums_behind: ChecksumsBehind) -> Iterator[bytes]:
    """The lines that make a file of records; each is followed by a byte of zero. None for a file without any."""
    before = b""
    ahead: list[bytes] = []
    for block in itertools.chain(blocks(records), [None]):
        if block is None:
            if not ahead:
                return
            ahead[-1] = last_record(ahead[-1], checksums_behind)
        of_data = checksums(ahead)
        of_lengths = checksums([struct.pack("<Q", len(record)) for record in ahead])
        for record, of_length, of_record in zip(ahead, of_lengths, of_data):
            framed_record = framed(record, of_length, of_record)
            yield before + framed_record[:7]
            before = framed_record[8:]
        ahead = block or []
    yield before[:-1]


def encode(
    partition: int,
    rows: Iterable[Sequence[Any]],
    columns: Sequence[Column],
    checksums: Checksums,
    checksums_behind: ChecksumsBehind,
    count: Callable[[dict[int, list[int]]], None],
) -> Iterator[tuple[bytes]]:
    """The lines of a partition's file, as rows of one column. count: is told {partition: [records, bytes]}."""
    makers = [entry_maker(column) for column in columns]
    counts = [0, 0]

    def examples() -> Iterator[bytes]:
        for row in rows:
            counts[0] += 1
            yield example(row, makers)

    for line in lines(examples(), checksums, checksums_behind):
        counts[1] += len(line) + 1
        yield (line,)
    count({partition: counts})
