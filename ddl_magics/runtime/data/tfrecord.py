"""TFRecord files of tf.train.Example, read without TensorFlow: what Spark's executors make rows of.

A file is a sequence of records: the length (uint64, little-endian), its masked CRC-32C, the data and theirs. The data's
checksum is not computed, as Python would take a second for 10 MB; that of the length is, so that a file that is damaged
there or is no TFRecord is not read as one.

An Example is the protobuf message {1: {1: {1: name, 2: {1: bytes | 2: floats | 3: integers}}}}, where the innermost
messages have the values in field 1.

Executors cannot import this package: the functions here travel to them by value (`by_value.py`). Hence no class,
no relative import, and nothing but the standard library.
"""

from __future__ import annotations

import gzip
import struct
from typing import Any, Dict, Iterator, List, Mapping, Sequence, Tuple

_POLYNOMIAL = 0x82F63B78  # Castagnoli's, reflected
#: Field of a Feature -> Spark's type of its values.
KINDS = {1: "BinaryType", 2: "FloatType", 3: "LongType"}

#: Of an Example: name -> (field of the Feature, values).
Features = Dict[str, Tuple[int, List[Any]]]


def crc_table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return table


def masked_crc(data: bytes, table: Sequence[int]) -> int:
    """The checksum of `data` as TFRecord files have it: CRC-32C, rotated, and a constant added."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(content: bytes, name: str) -> Iterator[bytes]:
    """The data of each record of a file. ValueError, one line with its `name`, where it is none or is cut off."""
    if content[:2] == b"\x1f\x8b":
        content = gzip.decompress(content)
    table, place = crc_table(), 0
    while place < len(content):
        header = content[place : place + 12]
        if len(header) < 12 or masked_crc(header[:8], table) != struct.unpack("<I", header[8:])[0]:
            raise ValueError("%s is damaged at byte %d, or no TFRecord file" % (name, place))
        begin = place + 12
        end = begin + struct.unpack("<Q", header[:8])[0]
        place = end + 4
        if place > len(content):
            raise ValueError("%s is cut off in its last record" % name)
        yield content[begin:end]


def varint(data: bytes, place: int) -> tuple[int, int]:
    """(number, place behind it)."""
    value = shift = 0
    while True:
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """(number, value) of the fields of a message: bytes, or an integer."""
    place = 0
    while place < len(data):
        key, place = varint(data, place)
        wire = key & 7
        if wire == 0:
            value, place = varint(data, place)
            yield key >> 3, value
            continue
        if wire == 2:
            size, place = varint(data, place)
        else:
            size = {1: 8, 5: 4}[wire]
        if place + size > len(data):
            raise ValueError("a record ends within a value")
        yield key >> 3, data[place : place + size]
        place += size


def example(data: bytes) -> Features:
    """The features of an Example. ValueError where it is none."""
    found: Features = {}
    try:
        for number, features in fields(data):
            for _, entry in fields(features) if number == 1 else ():
                parts = dict(fields(entry))
                kind, values = next(iter(fields(parts.get(2, b""))), (0, b""))
                found[parts[1].decode("utf-8")] = (kind, list_values(kind, values))
    except (IndexError, KeyError, TypeError, UnicodeDecodeError, struct.error) as error:
        raise ValueError("a record is no tf.train.Example") from error
    return found


def list_values(kind: int, data: bytes) -> list[Any]:
    """Of a BytesList, FloatList or Int64List, whose numbers may be packed."""
    values: list[Any] = []
    for _, value in fields(data):
        if kind == 1:
            values.append(value)
        elif kind == 2:
            values += struct.unpack("<%df" % (len(value) // 4), value)
        elif isinstance(value, int):
            values.append(signed(value))
        else:
            place = 0
            while place < len(value):
                number, place = varint(value, place)
                values.append(signed(number))
    return values


def signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def rows(content: bytes, name: str, columns: Mapping[str, tuple[int, bool]]) -> Iterator[tuple[Any, ...]]:
    """The values of each Example, in the order of `columns`: name -> (field of the Feature, whether it is a list).

    A feature that is missing or empty is None. ValueError, one line, where it is of another type or length.
    """
    for number, data in enumerate(records(content, name)):
        found = example(data)
        values = []
        for column, (kind, is_list) in columns.items():
            has, value = found.get(column, (0, []))
            if has not in (0, kind) and value:
                raise ValueError("%s, record %d: %s is of another type than in the first file" % (name, number, column))
            if not is_list and len(value) > 1:
                problem = "has %d values, and one in the first records of the first file" % len(value)
                raise ValueError("%s, record %d: %s %s" % (name, number, column, problem))
            values.append((value if is_list else value[0]) if value else None)
        yield tuple(values)


def first_columns(content: bytes, name: str, most: int) -> dict[str, tuple[int, bool]]:
    """The columns that the first `most` Examples of a file have, for `rows`. ValueError where types differ."""
    columns: dict[str, tuple[int, bool]] = {}
    for number, data in enumerate(records(content, name)):
        if number == most:
            break
        for column, (kind, values) in example(data).items():
            known, is_list = columns.get(column, (kind, False))
            if values and known != kind:
                raise ValueError("%s: %s has values of two types" % (name, column))
            if values:
                columns[column] = (kind, is_list or len(values) > 1)
    return dict(sorted(columns.items()))
