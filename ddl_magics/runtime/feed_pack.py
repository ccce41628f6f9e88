"""What Spark's executors do with rows before the runtime is there: pack them into blobs, and deal these to the ranks.

A blob is some thousand rows as numpy arrays, one an output tensor: a line of JSON, then what `np.save` writes, without
pickle. The functions here travel to the executors by value (`feed._by_value`), as these cannot import this package:
hence no relative import, no class, and nothing but numpy and the standard library.
"""

import io
import itertools
import json

import numpy as np

BLOB_ROWS = 4096
BLOB_BYTES = 8 << 20
#: Rows for validation are drawn within blocks of so many consecutive rows.
BLOCK_ROWS = 1000


def encode(header, arrays):
    """A blob of a JSON-able `header` and `arrays`."""
    buffer = io.BytesIO()
    buffer.write(json.dumps(header).encode("utf-8") + b"\n")
    for array in arrays:
        np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def decode(blob):
    """(header, list of arrays) of a blob."""
    buffer = io.BytesIO(blob)
    header = json.loads(buffer.readline().decode("utf-8"))
    arrays = []
    while buffer.tell() < len(blob):
        arrays.append(np.load(buffer, allow_pickle=False))
    return header, arrays


def as_array(values, column):
    """The values of one column as an array (rows, ...). ValueError says in words what is wrong with them.

    values: a sequence of numbers, strings, nested lists, or ML vectors, or a numpy array; column: {"dtype", "depth",
    "vector"}, where depth counts the levels of lists and "S" is the dtype of strings (which become UTF-8).
    """
    dtype = column["dtype"]
    if isinstance(values, np.ndarray) and values.dtype != object:
        return values.astype(dtype, copy=False)
    if column["vector"]:
        check_present(values)
        values = [value.toArray() for value in values]
        one_length(values)
        return np.stack(values).astype(dtype, copy=False)
    shape = [len(values)]
    for _ in range(column["depth"]):
        check_present(values)
        shape.append(one_length(values))
        values = list(itertools.chain.from_iterable(values))
    check_present(values)
    if dtype == "S":
        values = [value.encode("utf-8") for value in values]
    return np.array(values, dtype).reshape(shape)


def check_present(values):
    """ValueError where a value is missing."""
    if any(value is None for value in values):
        raise ValueError("it has empty values (null): fill them or drop their rows first")


def one_length(values):
    """The length that all values have; ValueError where they differ."""
    lengths = sorted(set(map(len, values)))
    if len(lengths) > 1:
        raise ValueError("its lengths differ (%d and %d): pad or cut them to one length" % tuple(lengths[:2]))
    return lengths[0]


def rows_at_once(first_blob):
    """How many rows make a blob, from the blob of one row."""
    return max(1, min(BLOB_ROWS, BLOB_BYTES // max(1, len(first_blob))))


def pack_columns(values, columns, tensors):
    """(report, blob) of some rows. values: a sequence a column; tensors: lists of the columns' positions.

    A tensor of several columns is a matrix. The report has "rows", each tensor's "shapes" and "dtypes", columns with
    "nan", and the "error": reported and not raised, as an exception would come out of Spark as a page of Java.
    """
    arrays = []
    for column, content in zip(columns, values):
        try:
            arrays.append(as_array(content, column))
        except (ValueError, TypeError, OverflowError, AttributeError) as error:
            return {"error": "column %r: %s" % (column["name"], str(error).splitlines()[0])}, b""
    nan = [
        column["name"] for column, array in zip(columns, arrays) if array.dtype.kind == "f" and np.isnan(array).any()
    ]
    made = [
        arrays[positions[0]] if len(positions) == 1 else np.stack([arrays[p] for p in positions], axis=1)
        for positions in tensors
    ]
    report = {
        "error": None,
        "rows": len(made[0]),
        "shapes": [list(array.shape[1:]) for array in made],
        "dtypes": [array.dtype.str for array in made],
        "nan": nan,
    }
    return report, encode({}, made)


def pack(partition, rows, columns, tensors):
    """Yield (partition, chunk number, report, blob) for the rows of a Spark partition; ends at the first error."""
    rows = iter(rows)
    first = list(itertools.islice(rows, 1))
    if not first:
        return
    _, blob = pack_columns(list(zip(*first)), columns, tensors)
    at_once = rows_at_once(blob)
    rows = itertools.chain(first, rows)
    for chunk in itertools.count():
        block = list(itertools.islice(rows, at_once))
        if not block:
            return
        report, blob = pack_columns(list(zip(*block)), columns, tensors)
        yield partition, chunk, report, blob
        if report["error"]:
            return


def held(rows, fraction):
    """How many of so many rows are held out for validation."""
    return int(fraction * rows + 0.5)


def held_out(first, last, plan):
    """Which of the rows first..last-1 are for validation: (mask, number of such rows before the first).

    Within each block of `BLOCK_ROWS` rows a seeded draw, so many that they add up to the nearest to the fraction.
    """
    fraction = plan["fraction"]
    block = first // BLOCK_ROWS
    start = block * BLOCK_ROWS
    pieces = []
    while block * BLOCK_ROWS < last:
        low, high = block * BLOCK_ROWS, min((block + 1) * BLOCK_ROWS, plan["rows"])
        piece = np.zeros(high - low, bool)
        draw = np.random.default_rng([plan["seed"], block]).permutation(high - low)
        piece[draw[: held(high, fraction) - held(low, fraction)]] = True
        pieces.append(piece)
        block += 1
    mask = np.concatenate(pieces)
    return mask[first - start : last - start], held(start, fraction) + int(mask[: first - start].sum())


def deal(records, plan):
    """Yield (rank, blob) for packed `records`: row i of a set goes to rank i % size, to its local place i // size.

    plan: {"size", "seed", "fraction", "rows", "starts": {partition: [global index of each chunk's first row]},
    "counts": {partition: [rows of each chunk]}, "dtypes", "set": "train" or "validation", "whole": every rank gets all
    of the validation}. A blob's header says its "set", the local place of its first row ("start"), and the rank's
    "share" of the set.
    """
    for partition, chunk, _, blob in records:
        _, arrays = decode(blob)
        arrays = [array.astype(dtype, copy=False) for array, dtype in zip(arrays, plan["dtypes"])]
        if plan["counts"].get(partition, [])[chunk : chunk + 1] != [len(arrays[0])]:
            raise RuntimeError(
                "the rows of --data have changed between two passes over them: cache() the DataFrame, or write it out"
            )
        first = plan["starts"][partition][chunk]
        if plan["fraction"]:
            mask, before = held_out(first, first + len(arrays[0]), plan)
            kept_out = held(plan["rows"], plan["fraction"])
            parts = [
                ("train", [array[~mask] for array in arrays], first - before, plan["rows"] - kept_out, False),
                ("validation", [array[mask] for array in arrays], before, kept_out, plan["whole"]),
            ]
        else:
            parts = [(plan["set"], arrays, first, plan["rows"], plan["whole"] and plan["set"] == "validation")]
        for name, pieces, place, total, whole in parts:
            for rank in range(plan["size"]):
                yield from cut(name, pieces, place, total, rank, plan["size"], whole)


def cut(name, arrays, place, total, rank, size, whole):
    """Yield (rank, blob) with the rank's rows among `arrays`, whose first row is row `place` of the set's `total`."""
    if whole:
        mine, start, share = arrays, place, total
    else:
        skip = (rank - place) % size
        mine = [array[skip::size] for array in arrays]
        start, share = (place + skip) // size, (total - rank + size - 1) // size
    if len(mine[0]):
        yield rank, encode({"set": name, "start": start, "share": share}, mine)


def identity(value):
    """The partitioner of (rank, blob): the rank is the partition."""
    return value
