"""TFRecord files of tf.train.Example, read without TensorFlow: what Spark's executors make rows of.

A file is a sequence of records: the length (uint64, little-endian), its masked CRC-32C, the data and theirs. The data's
checksum is not computed, as Python would take a second for 10 MB; that of the length is, so that a file that is damaged
there or is no TFRecord is not read as one.

An Example is the protobuf message {1: {1: {1: name, 2: {1: bytes | 2: floats | 3: integers}}}}, where the innermost
messages have the values in field 1.

Executors cannot import this package: the functions here travel to them by value (`by_value.py`). Hence no class,
no relative import but for the type checker, and nothing but numpy and the standard library.
"""

from __future__ import annotations

import gzip
import struct
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Mapping, Sequence, Tuple

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from .records import Column, FileRows

_POLYNOMIAL = 0x82F63B78  # Castagnoli's, reflected
#: Longer messages are cut into pieces, whose checksums are computed at once.
_LONG_BYTES, _PIECE_BYTES = 1 << 14, 1 << 10
#: Field of a Feature -> Spark's type of its values.
KINDS = {1: "BinaryType", 2: "FloatType", 3: "LongType"}

#: Of an Example: name -> (field of the Feature, values).
Features = Dict[str, Tuple[int, List[Any]]]


def crc_table() -> list[int]:
    table: list[int] = crc_array().tolist()
    return table


def crc_array() -> npt.NDArray[np.uint32]:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = table >> np.uint32(1) ^ (table & np.uint32(1)) * np.uint32(_POLYNOMIAL)
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
    content = plain(content)
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


def places(content: bytes, name: str) -> npt.NDArray[np.int64]:
    """Where the data of each record of a file begins and ends: (records, 2). `content` is not compressed.

    ValueError, one line with the file's `name`, where it is none or is cut off.
    """
    found, place, size = [], 0, len(content)
    length = struct.Struct("<Q").unpack_from
    while place + 12 <= size:
        begin = place + 12
        place = begin + length(content, place)[0] + 4
        found.append((begin, min(place - 4, size)))
    spans = np.array(found, np.int64).reshape(-1, 2)
    headers = np.frombuffer(content, np.uint8)[spans[:, :1] - 12 + np.arange(12)]
    damaged = masked_crcs(headers[:, :8]) != headers[:, 8:].copy().view("<u4")[:, 0]
    wrong = int(spans[damaged.argmax(), 0]) - 12 if damaged.any() else place
    if wrong < size:
        raise ValueError("%s is damaged at byte %d, or no TFRecord file" % (name, wrong))
    if place > size:
        raise ValueError("%s is cut off in its last record" % name)
    return spans


def masked_crcs(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """`masked_crc` of each row."""
    states = np.full(len(data), 0xFFFFFFFF, np.uint32)
    return masked(advanced(states, data) ^ np.uint32(0xFFFFFFFF))


def masked(crc: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    made: npt.NDArray[np.uint32] = (crc >> np.uint32(15) | crc << np.uint32(17)) + np.uint32(0xA282EAD8)
    return made  # modulo 2^32


def advanced(states: npt.NDArray[np.uint32], data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """The states of checksums, each after a row of `data`."""
    table = crc_array()
    for column in np.ascontiguousarray(data.T):
        states = states >> np.uint32(8) ^ table[(states ^ column) & np.uint32(0xFF)]
    return states


def checksums(messages: Sequence[bytes]) -> list[int]:
    """`masked_crc` of each, of which many are computed at once: of those of one length, or of the pieces of a long one.

    A checksum that begins with the state 0 is linear in its data: zeros before them change nothing, the usual first
    state is four bytes that are inverted, and that of two pieces is the first one's, moved on by the second's length,
    xor the second one's.
    """
    found = [0] * len(messages)
    of_length: Dict[int, List[int]] = {}
    for number, data in enumerate(messages):
        of_length.setdefault(len(data), []).append(number)
    for length, numbers in of_length.items():
        joined = np.frombuffer(b"".join(messages[number] for number in numbers), np.uint8).reshape(len(numbers), length)
        made = long_crcs(joined) if length > _LONG_BYTES else masked_crcs(joined)
        for number, one in zip(numbers, made.tolist()):
            found[number] = one
    return found


def long_crcs(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """As `masked_crcs`, for rows of more than four bytes."""
    count, length = data.shape
    pieces = -(-length // _PIECE_BYTES)
    padded = np.zeros((count, pieces * _PIECE_BYTES), np.uint8)
    padded[:, -length:] = data
    padded[:, -length:][:, :4] ^= 0xFF
    lanes = advanced(np.zeros(count * pieces, np.uint32), padded.reshape(-1, _PIECE_BYTES)).reshape(count, pieces)
    single = (np.arange(256, dtype=np.uint32) << np.arange(0, 32, 8, dtype=np.uint32)[:, None]).ravel()
    moved = advanced(single, np.zeros((1024, _PIECE_BYTES), np.uint8)).reshape(4, 256)
    state = np.zeros(count, np.uint32)
    for piece in lanes.T:
        parts = [moved[byte][state >> np.uint32(8 * byte) & np.uint32(0xFF)] for byte in range(4)]
        state = parts[0] ^ parts[1] ^ parts[2] ^ parts[3] ^ piece
    return masked(state ^ np.uint32(0xFFFFFFFF))


def plain(content: bytes) -> bytes:
    """The bytes of a file, without its compression."""
    return gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content


def index(
    files: Sequence[tuple[int, str]],
    columns: Sequence[Column],
    content: Callable[[str], tuple[bytes, list[int]]],
) -> dict[str, Any]:
    """As `parquet.index`, without conditions. text_bytes: an upper bound, the bytes of all records shared out evenly
    among the columns of text. content: `file_systems.content`.
    """
    found: list[FileRows] = []
    shapes: tuple[int, list[list[int]]] | None = None
    size = 0
    for number, uri in files:
        try:
            data, stamp = content(uri)
            data = plain(data)
            spans = places(data, uri)
            if shapes is None and len(spans):
                shapes = number, first_shapes(example(data[spans[0, 0] : spans[0, 1]]), columns)
        except Exception as error:  # of a file system, or of a file that is none
            said = str(error).splitlines()
            return {"problem": "the executors cannot read %s (%s)" % (uri, said[0] if said else type(error).__name__)}
        size += int((spans[:, 1] - spans[:, 0]).sum())
        found.append({"number": number, "uri": uri, "stamp": stamp, "rows": [len(spans)]})
    texts = [column["dtype"] == "S" for column in columns]
    each = -(-size // max(1, sum(texts)))
    return {"files": found, "shapes": shapes, "text_bytes": [each if is_text else 0 for is_text in texts]}


def first_shapes(found: Features, columns: Sequence[Column]) -> list[list[int]]:
    """Of each column. ValueError where the Example has no value of one."""
    missing = [column["name"] for column in columns if not found.get(column["name"], (0, []))[1]]
    if missing:
        raise ValueError("the first record has no value in %r" % missing[0])
    return [[len(found[column["name"]][1])] if column["depth"] else [] for column in columns]


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
        yield row(data, "%s, record %d" % (name, number), columns)


def row(data: bytes, name: str, columns: Mapping[str, tuple[int, bool]]) -> tuple[Any, ...]:
    """As `rows`, of one Example. name: of the record."""
    found = example(data)
    values = []
    for column, (kind, is_list) in columns.items():
        has, value = found.get(column, (0, []))
        if has not in (0, kind) and value:
            raise ValueError("%s: %s is of another type than in the first file" % (name, column))
        if not is_list and len(value) > 1:
            problem = "has %d values, and one in the first records of the first file" % len(value)
            raise ValueError("%s: %s %s" % (name, column, problem))
        values.append((value if is_list else value[0]) if value else None)
    return tuple(values)


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
