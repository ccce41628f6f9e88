"""TFRecord files of tf.train.Example, read without TensorFlow: what Spark's executors make rows of.

A file is a sequence of records: the length (uint64, little-endian), its masked CRC-32C, the data and theirs. The
length's checksum is compared for all records, the data's for those that are used.

An Example is the protobuf message {1: {1: {1: name, 2: {1: bytes | 2: floats | 3: integers}}}}, where the innermost
messages have the values in field 1.

Travels to executors by value (`by_value.py`), and needs numpy alone.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Mapping, Sequence, Tuple

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from .records import Column, FileRows

_POLYNOMIAL = 0x82F63B78  # Castagnoli's, reflected
#: So many bytes are read at once, and so many records.
_BYTES_AT_ONCE, _RECORDS_AT_ONCE = 8 << 20, 8192
#: Of the first file, in which lists of several lengths are looked for.
_RECORDS_LOOKED_AT = 100
#: Longer messages are cut into pieces, whose checksums are computed at once.
_LONG_BYTES, _PIECE_BYTES = 1 << 14, 1 << 10
#: Field of a Feature -> Spark's type of its values.
KINDS = {1: "BinaryType", 2: "FloatType", 3: "LongType"}

#: Of an Example: name -> (field of the Feature, values).
Features = Dict[str, Tuple[int, List[Any]]]


def crc_table() -> npt.NDArray[np.uint32]:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = table >> np.uint32(1) ^ (table & np.uint32(1)) * np.uint32(_POLYNOMIAL)
    return table


def records(content: bytes, name: str) -> Iterator[bytes]:
    """The data of each record of a file. ValueError, one line with its `name`, where it is none, cut off or damaged."""
    content = plain(content, name)
    spans = record_spans(content, name)
    block = at_once(content, spans)
    for start in range(0, len(spans), block):
        yield from checked(content, spans[start : start + block], name)


def at_once(content: bytes, spans: npt.NDArray[np.int64]) -> int:
    """How many records of a file are read at once: few of large ones."""
    return max(1, min(_RECORDS_AT_ONCE, _BYTES_AT_ONCE * len(spans) // max(1, len(content))))


def checked(content: bytes, spans: npt.NDArray[np.int64], name: str) -> list[bytes]:
    """The data of the records at these `record_spans`. ValueError for a wrong checksum."""
    contents = [content[begin:stop] for begin, stop in spans.tolist()]
    of_file = [struct.unpack_from("<I", content, stop)[0] for stop in spans[:, 1].tolist()]
    for begin, checksum, stored in zip(spans[:, 0].tolist(), checksums(contents), of_file):
        if checksum != stored:
            raise ValueError("%s is damaged in the record at byte %d: write the file again" % (name, begin - 12))
    return contents


def record_spans(content: bytes, name: str) -> npt.NDArray[np.int64]:
    """Where the data of each record of a file begins and ends: (records, 2). `content` is not compressed.

    ValueError, one line with the file's `name`, where it is none or is cut off.
    """
    spans_list, position, size = [], 0, len(content)
    length = struct.Struct("<Q").unpack_from
    while position + 12 <= size:
        begin = position + 12
        position = begin + length(content, position)[0] + 4
        spans_list.append((begin, min(position - 4, size)))
    spans = np.array(spans_list, np.int64).reshape(-1, 2)
    headers = np.frombuffer(content, np.uint8)[spans[:, :1] - 12 + np.arange(12)]
    of_lengths = advanced(np.full(len(headers), 0xFFFFFFFF, np.uint32), headers[:, :8])
    damaged = masked(of_lengths) != headers[:, 8:].copy().view("<u4")[:, 0]
    damaged_byte = int(spans[damaged.argmax(), 0]) - 12 if damaged.any() else position
    if damaged_byte < size:
        raise ValueError("%s is damaged at byte %d, or no TFRecord file" % (name, damaged_byte))
    if position > size:
        raise ValueError("%s is cut off in its last record" % name)
    return spans


def masked(states: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """The checksums as TFRecord files have them: inverted at the end, rotated, and a constant added."""
    crc = states ^ np.uint32(0xFFFFFFFF)
    result: npt.NDArray[np.uint32] = (crc >> np.uint32(15) | crc << np.uint32(17)) + np.uint32(0xA282EAD8)
    return result  # modulo 2^32


def advanced(states: npt.NDArray[np.uint32], data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """The states of checksums, each after a row of `data`."""
    table = crc_table()
    for column in np.ascontiguousarray(data.T):
        states = states >> np.uint32(8) ^ table[(states ^ column) & np.uint32(0xFF)]
    return states


def checksums(messages: Sequence[bytes]) -> list[int]:
    """The masked CRC-32C of each message, computed for many of similar lengths at once.

    A checksum that begins with the state 0 is linear in its data: zeros before them change nothing, the usual first
    state is four bytes that are inverted, and that of two pieces is the first one's, moved on by the second's length,
    xor the second one's.
    """
    result = [0] * len(messages)
    similar: Dict[int, List[int]] = {}
    for number, data in enumerate(messages):
        similar.setdefault(len(data) if len(data) < 4 else 4 + len(data).bit_length(), []).append(number)
    for size, numbers in similar.items():
        block = max(1, _BYTES_AT_ONCE >> max(0, size - 4))
        for start in range(0, len(numbers), block):
            batch = numbers[start : start + block]
            for number, checksum in zip(batch, masked(states_after([messages[index] for index in batch])).tolist()):
                result[number] = checksum
    return result


def checksums_behind(message: bytes, ends: Sequence[bytes]) -> list[int]:
    """The masked CRC-32C of a message with one of these ends, for each; they have one length."""
    data = np.frombuffer(b"".join(ends), np.uint8).reshape(len(ends), -1)
    checksums: list[int] = masked(advanced(np.repeat(states_after([message]), len(ends)), data)).tolist()
    return checksums


def states_after(messages: Sequence[bytes]) -> npt.NDArray[np.uint32]:
    """The state of each message's checksum at its end. Messages of less than four bytes have one length."""
    width = max(map(len, messages))
    joined = b"".join(message.rjust(width, b"\0") for message in messages)
    data = np.frombuffer(bytearray(joined), np.uint8).reshape(len(messages), width)
    if width < 4:
        return advanced(np.full(len(messages), 0xFFFFFFFF, np.uint32), data)
    starts = width - np.fromiter(map(len, messages), np.int64, len(messages))
    data[np.arange(len(messages))[:, None], starts[:, None] + np.arange(4)] ^= 0xFF
    return advanced_by_pieces(data) if width > _LONG_BYTES else advanced(np.zeros(len(messages), np.uint32), data)


def advanced_by_pieces(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """As `advanced` from the state 0, for long rows: their pieces are computed at once."""
    count, width = data.shape
    pieces = -(-width // _PIECE_BYTES)
    padded = np.zeros((count, pieces * _PIECE_BYTES), np.uint8)
    padded[:, -width:] = data
    lanes = advanced(np.zeros(count * pieces, np.uint32), padded.reshape(-1, _PIECE_BYTES)).reshape(count, pieces)
    single = (np.arange(256, dtype=np.uint32) << np.arange(0, 32, 8, dtype=np.uint32)[:, None]).ravel()
    shifted = advanced(single, np.zeros((1024, _PIECE_BYTES), np.uint8)).reshape(4, 256)
    state = np.zeros(count, np.uint32)
    for piece in lanes.T:
        bytes_shifted = [shifted[byte][state >> np.uint32(8 * byte) & np.uint32(0xFF)] for byte in range(4)]
        state = bytes_shifted[0] ^ bytes_shifted[1] ^ bytes_shifted[2] ^ bytes_shifted[3] ^ piece
    return state


def plain(content: bytes, name: str) -> bytes:
    """The bytes of a file, without its compression. ValueError, one line with its `name`, where they are damaged."""
    if content[:3] != b"\x1f\x8b\x08":
        return content
    try:
        return gzip.decompress(content)
    except (EOFError, OSError, zlib.error) as error:
        raise ValueError("%s is cut off or damaged: %s" % (name, error)) from error


def index(
    files: Sequence[tuple[int, str]],
    columns: Sequence[Column],
    content: Callable[[str], tuple[bytes, list[int]]],
) -> dict[str, Any]:
    """As `parquet.index`, without conditions. text_bytes: an upper bound, the bytes of all records shared out evenly
    among the columns of text. content: `file_systems.content`.
    """
    indexed_files: list[FileRows] = []
    shapes: tuple[int, list[list[int]]] | None = None
    size = 0
    for number, uri in files:
        try:
            data, stamp = content(uri)
            data = plain(data, uri)
            spans = record_spans(data, uri)
            if shapes is None and len(spans):
                examples = [example(data[start:stop]) for start, stop in spans[:_RECORDS_LOOKED_AT].tolist()]
                shapes = number, first_shapes(examples[0], columns)
                ragged = [
                    column["name"]
                    for column, shape in zip(columns, shapes[1])
                    if "ragged" in column
                    and any(len(values.get(column["name"], (0, []))[1]) != shape[0] for values in examples)
                ]
                if ragged:
                    return {"problem": "column %r has lists of several lengths" % ragged[0]}
        except Exception as error:  # of a file system, or of a file that is none
            lines = str(error).splitlines()
            return {"problem": "the executors cannot read %s (%s)" % (uri, lines[0] if lines else type(error).__name__)}
        size += int((spans[:, 1] - spans[:, 0]).sum())
        indexed_files.append({"number": number, "uri": uri, "stamp": stamp, "rows": [len(spans)]})
    texts = [column["dtype"] == "S" for column in columns]
    text_share = -(-size // max(1, sum(texts)))
    return {"files": indexed_files, "shapes": shapes, "text_bytes": [text_share if is_text else 0 for is_text in texts]}


def indexed(file: FileRows, content: Callable[[str], tuple[bytes, list[int]]]) -> tuple[bytes, npt.NDArray[np.int64]]:
    """(bytes without compression, `record_spans`) of a file of the index. ValueError if it has changed."""
    data, stamp = content(file["uri"])
    data = plain(data, file["uri"])
    spans = record_spans(data, file["uri"])
    if stamp != file["stamp"] or [len(spans)] != file["rows"]:
        raise ValueError("%s has changed since the run began, or is another one on this host" % file["uri"])
    return data, spans


def first_shapes(features: Features, columns: Sequence[Column]) -> list[list[int]]:
    """Of each column. ValueError where the Example has no value of one."""
    missing = [column["name"] for column in columns if not features.get(column["name"], (0, []))[1]]
    if missing:
        raise ValueError("the first record has no value in %r" % missing[0])
    return [[column.get("pad", len(features[column["name"]][1]))] if column["depth"] else [] for column in columns]


def varint(data: bytes, position: int) -> tuple[int, int]:
    """(number, place behind it)."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """(number, value) of the fields of a message: bytes, or an integer."""
    position = 0
    while position < len(data):
        key, position = varint(data, position)
        wire = key & 7
        if wire == 0:
            value, position = varint(data, position)
            yield key >> 3, value
            continue
        if wire == 2:
            size, position = varint(data, position)
        else:
            size = {1: 8, 5: 4}[wire]
        if position + size > len(data):
            raise ValueError("a record ends within a value")
        yield key >> 3, data[position : position + size]
        position += size


def example(data: bytes) -> Features:
    """The features of an Example. ValueError where it is none."""
    by_name: Features = {}
    try:
        for number, features in fields(data):
            if number == 2:  # the lists of a SequenceExample, whose context is what an Example has
                raise ValueError("a record is a SequenceExample, of which --data reads no lists: parse it in the cell")
            for _, entry in fields(features) if number == 1 else ():
                entry_fields = dict(fields(entry))
                kind, values = next(iter(fields(entry_fields.get(2, b""))), (0, b""))
                by_name[entry_fields[1].decode("utf-8")] = (kind, list_values(kind, values))
    except (IndexError, KeyError, TypeError, UnicodeDecodeError, struct.error) as error:
        raise ValueError("a record is no tf.train.Example") from error
    return by_name


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
            position = 0
            while position < len(value):
                number, position = varint(value, position)
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
    features = example(data)
    values = []
    for column, (kind, is_list) in columns.items():
        has, value = features.get(column, (0, []))
        if has not in (0, kind) and value:
            raise ValueError("%s: %s is of another type than in the first file" % (name, column))
        if not is_list and len(value) > 1:
            problem = "has %d values, and one in the first records of the first file" % len(value)
            raise ValueError("%s: %s %s" % (name, column, problem))
        values.append((value if is_list else value[0]) if value else None)
    return tuple(values)


def first_columns(content: bytes, name: str, limit: int) -> dict[str, tuple[int, bool]]:
    """The columns that the first `limit` Examples of a file have, for `rows`. ValueError where types differ."""
    columns: dict[str, tuple[int, bool]] = {}
    for number, data in enumerate(records(content, name)):
        if number == limit:
            break
        for column, (kind, values) in example(data).items():
            known_kind, is_list = columns.get(column, (kind, False))
            if values and known_kind != kind:
                raise ValueError("%s: %s has values of two types" % (name, column))
            if values:
                columns[column] = (kind, is_list or len(values) > 1)
    return dict(sorted(columns.items()))
