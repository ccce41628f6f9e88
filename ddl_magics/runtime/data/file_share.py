"""--data of files on the ranks: each makes its own share of the rows of them, with no row through Spark.

The index of the files (file_feed.py) numbers their rows. A rank has the same rows, at the same positions, as Spark's
executors would deal it (packing.py); `share_files` stores them. Parquet is read by a process of its own, which begins
before TensorFlow is imported: pyarrow shares no process with it. TFRecord is decoded by the rank's TensorFlow.

    python -m PACKAGE.data.file_share MANIFEST FOLDER RANK
"""

from __future__ import annotations

import functools
import json
import os
import select
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, Callable, Iterator, List, Mapping, Set, Tuple

import numpy as np

from .. import package
from ..stopping import StopRun
from . import file_systems, packing, parquet, share_files, tfrecord
from .columns import DataError

if TYPE_CHECKING:
    import numpy.typing as npt

    from .records import Column, DealOrder, FileIndex, FileRows, Manifest, SetName

#: A process that has read nothing for so long is given up.
SILENT_SECONDS = 600.0
TICK_SECONDS = 0.1
#: Between two reports of how far the reading is.
REPORT_SECONDS = 1.0

#: (set, which of some rows a rank has, their positions in its share)
RankRows = Tuple["SetName", "npt.NDArray[np.int64]", "npt.NDArray[np.int64]"]
#: Called with the rows of its share that a rank has read, and the seconds that this took.
Report = Callable[[int, float], None]


def own_rows(start: int, count: int, order: DealOrder, rank: int) -> Iterator[RankRows]:
    """Which of the rows start, start + 1, ... the rank has, as `packing.deal` deals them."""
    for name, (rows,), set_start, total, replicated in packing.split([np.arange(count)], start, order):
        if not len(rows):
            continue
        positions = packing.positions_in_set(name, set_start, set_start + len(rows), total, order["seed"])
        indices, positions = packing.rows_of_rank(positions, rank, order["size"], replicated)
        if len(positions):
            yield name, rows[indices], positions


class FileShare:
    """Makes the blocks of a rank's share. rows: made so far. notices: a line each about the rows, once all are made."""

    def __init__(self, manifest: Manifest, rank: int) -> None:
        self._manifest, self._rank = manifest, rank
        index = manifest["files"]
        assert index is not None
        self._index: FileIndex = index
        # Vectors come as arrays.
        self._columns: List[Column] = [
            dict(column, vector=False, depth=1) if column["vector"] else column  # type: ignore[misc]
            for column in index["columns"]
        ]
        self._holding: Set[Tuple[str, str]] = set()
        self._losses = packing.merged([])
        self._floatx = share_files.floatx_of(manifest, os.environ)
        self.rows = 0

    @property
    def notices(self) -> list[str]:
        data = self._manifest["data"]
        holding = [packing.holding(data, column, contents) for column, contents in sorted(self._holding)]
        return holding + packing.about_losses(data, self._losses, self._floatx)

    def blocks(self) -> Iterator[share_files.Block]:
        """Raises `DataError`, one line, also for an exception of a file system or of pyarrow."""
        try:
            yield from self._tfrecord() if self._index["format"] == "tfrecord" else self._parquet()
        except Exception as error:
            lines = str(error).splitlines()
            reason = lines[0] if lines else type(error).__name__
            raise DataError("%s, %s" % (self._manifest["data"], reason)) from error

    def _parquet(self) -> Iterator[share_files.Block]:
        index = self._index
        for file_start, file in self._numbered():
            for batch_start, batch in parquet.rows(file, index["columns"], index["conditions"], file_systems.located):
                start = file_start + batch_start
                for name, indices, positions in own_rows(start, batch.num_rows, index["order"], self._rank):
                    values = [_values(parquet.batch_column(batch, c["name"]), indices, c) for c in index["columns"]]
                    yield self._block(name, positions, values)

    def _tfrecord(self) -> Iterator[share_files.Block]:
        order = self._index["order"]
        for file_start, file in self._numbered():
            content, spans = tfrecord.indexed(file, file_systems.content)
            block = tfrecord.at_once(content, spans) * order["size"]
            for begin in range(0, len(spans), block):
                count = min(block, len(spans) - begin)
                for name, indices, positions in own_rows(file_start + begin, count, order, self._rank):
                    examples = tfrecord.checked(content, spans[begin + indices], file["uri"])
                    values = self._decoded(examples, file["uri"], begin + indices)
                    yield self._block(name, positions, values)

    def _numbered(self) -> Iterator[tuple[int, FileRows]]:
        """(number of its first row, file) of each file with rows."""
        file_start = 0
        for file in self._index["files"]:
            if sum(file["rows"]):
                yield file_start, file
            file_start += sum(file["rows"])

    def _decoded(self, examples: list[bytes], uri: str, numbers: npt.NDArray[np.int64]) -> list[Any]:
        """The values of each column."""
        import tensorflow as tf

        columns = self._index["columns"]
        kinds = {"i8": (tf.int64, 3), "f4": (tf.float32, 2), "S": (tf.string, 1)}
        shapes = self._column_shapes()
        features = {
            column["name"]: tf.io.RaggedFeature(kinds[column["dtype"]][0])
            if "pad" in column
            else tf.io.FixedLenFeature(shape, kinds[column["dtype"]][0])
            for column, shape in zip(columns, shapes)
        }
        try:
            with tf.device("CPU:0"):
                parsed = tf.io.parse_example(examples, features)
            return [_lists(parsed[c["name"]]) if "pad" in c else parsed[c["name"]].numpy() for c in columns]
        except tf.errors.InvalidArgumentError:  # our own decoder says in words what is wrong
            kinds_of_columns = {column["name"]: (kinds[column["dtype"]][1], column["depth"] > 0) for column in columns}
            rows = [
                tfrecord.row(data, "%s, record %d" % (uri, number), kinds_of_columns)
                for data, number in zip(examples, numbers.tolist())
            ]
            return list(zip(*rows))

    def _column_shapes(self) -> list[list[int]]:
        """Of a row of each column."""
        shapes: dict[int, list[int]] = {}
        for tensor, indices in zip(self._manifest["tensors"], self._index["tensors"]):
            shapes.update({index: [] if len(indices) > 1 else tensor["shape"] for index in indices})
        return [shapes[index] for index in range(len(self._columns))]

    def _block(self, name: SetName, positions: npt.NDArray[np.int64], values: list[Any]) -> share_files.Block:
        tensors = self._index["tensors"]
        arrays = packing.column_arrays(values, self._columns, tensors)
        report = packing.report_of(arrays, self._columns, tensors, checksum=0)
        self._holding |= {(column, "NaN") for column in report["nan"]}
        self._holding |= {(column, "infinite values") for column in report["inf"]}
        self._losses = packing.merged([self._losses, report])
        if report["too_large"]:
            packing.about_losses(self._manifest["data"], self._losses, self._floatx)
        for shape, tensor, indices in zip(report["shapes"], self._manifest["tensors"], tensors):
            if shape != tensor["shape"]:
                shorter, longer = ("x".join(map(str, lengths)) for lengths in sorted([shape, tensor["shape"]]))
                hint = packing.pad_hint(self._columns[indices[0]])
                words = tensor["name"], shorter, longer, hint
                raise ValueError("column %r: its lengths differ (%s and %s): pad or cut them to one length%s" % words)
        self.rows += len(positions)
        dealt = [array.astype(tensor["dtype"], copy=False) for array, tensor in zip(arrays, self._manifest["tensors"])]
        return {"set": name}, [positions, *dealt]


def _lists(ragged: Any) -> list[Any]:
    """The rows of a tf.RaggedTensor as arrays; None for an empty one, which an Example does not tell from none."""
    stops = ragged.row_splits.numpy()[1:-1]
    return [row if len(row) else None for row in np.split(ragged.flat_values.numpy(), stops)]


def _values(array: parquet.Array, indices: npt.NDArray[np.int64], column: Column) -> Any:
    """The values of a column in these rows, for `packing.column_arrays`."""
    if column["dtype"] != "S" and not column["vector"] and not packing.is_of_lists(column):
        numbers = packing.arrow_array(array, column)
        if numbers is not None:
            return numbers[indices]  # which is faster than pyarrow's `take`
    array = array.take(indices)
    if column["vector"]:
        kinds, _, _, numbers = array.flatten()
        are_dense = kinds.to_numpy(zero_copy_only=False).all()
        rows = packing.arrow_array(numbers, {**column, "depth": 1}) if are_dense and not array.null_count else None
        if rows is not None:
            return rows
        return [None if value is None else parquet.dense(value) for value in array.to_pylist()]
    if column["dtype"] != "S":
        return packing.batch_values([array], [column])[0]
    if column["depth"] or array.null_count:
        return array.to_pylist()
    return array.cast(parquet.binary_type(array)).to_numpy(zero_copy_only=False)


class Reading:
    """A process that reads the rows of Parquet files. It ends with the rank's process group."""

    def __init__(self, manifest: Manifest, scratch: str, rank: int, cores: int) -> None:
        """scratch: the rank's folder, with "data" in it. cores: of the executor."""
        path = os.path.join(scratch, "files.json")
        with open(path, "w") as file:
            json.dump(manifest, file)
        command = [sys.executable, "-m", package.NAME + ".data.file_share"]
        self._began = time.monotonic()
        self._process = subprocess.Popen(
            [*command, path, os.path.join(scratch, "data"), str(rank)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            cwd=scratch,
            env=dict(os.environ, OMP_NUM_THREADS=str(max(1, cores)), CUDA_VISIBLE_DEVICES=""),
        )

    def wait(self, stopped: Callable[[], bool], report: Report) -> list[str]:
        """Until the share is made: the notices about it. `DataError`, one line, where it cannot be made; StopRun once
        `stopped()`.
        """
        reports = _Reports(report, self._began)
        with self._process:
            try:
                text = self._output(stopped, reports)
            except BaseException:
                self._process.kill()
                raise
        status = self._process.returncode
        try:
            summary: Mapping[str, Any] = json.loads(text.splitlines()[-1].decode("utf-8"))
            reports.report_end(summary.get("rows", 0))
        except (IndexError, ValueError, AttributeError):
            summary = {"error": "the process that read the files ended with exit status %s" % status}
        if "error" in summary:
            raise DataError(summary["error"])
        notices: list[str] = summary["notices"]
        return notices

    def _output(self, stopped: Callable[[], bool], reports: _Reports) -> bytes:
        """The last 64 kB that the process has written, once it has closed its output. It writes how many rows it has
        read, now and then, and at the end a JSON object.
        """
        pipe = self._process.stdout
        assert pipe is not None
        text, last_seen = b"", time.monotonic()
        while True:
            if stopped():
                raise StopRun
            if not select.select([pipe], [], [], TICK_SECONDS)[0]:
                if time.monotonic() - last_seen > SILENT_SECONDS:
                    silence = "no row of the files could be read for %g s" % SILENT_SECONDS
                    raise DataError("--data: %s: check that the workers reach their storage" % silence)
                continue
            block, last_seen = os.read(pipe.fileno(), 65536), time.monotonic()
            if not block:
                return text
            text = (text + block)[-65536:]
            complete = text.split(b"\n")[:-1]
            if complete and complete[-1].isdigit():
                reports.add(int(complete[-1]))


class _Reports:
    """Reports now and then; where it has, also the end. began: when the reading did, by the monotonic clock."""

    def __init__(self, report: Report, began: float) -> None:
        self._report, self._began = report, began
        self._last_report, self._reported = time.monotonic(), False

    def add(self, rows: int) -> None:
        if time.monotonic() - self._last_report >= REPORT_SECONDS:
            self._last_report, self._reported = time.monotonic(), True
            self._report(rows, self._last_report - self._began)

    def report_end(self, rows: int) -> None:
        if self._reported:
            self._report(rows, time.monotonic() - self._began)


def begin(manifest: Manifest | None, scratch: str, rank: int, cores: int) -> Reading | None:
    """Begin to read the rank's rows, where another process does so. The arguments are those of `Reading`."""
    files = manifest.get("files") if manifest else None
    if manifest is None or files is None or files["format"] != "parquet":
        return None
    return Reading(manifest, scratch, rank, cores)


def finish(
    reading: Reading | None, manifest: Manifest, folder: str, rank: int, stopped: Callable[[], bool], report: Report
) -> list[str]:
    """Have the rank's share of the files in `folder`, where there are files: notices about it. What takes longer than a
    second is reported each second, and at its end.
    """
    if not manifest.get("files"):
        return []
    if reading is not None:
        return reading.wait(stopped, report)
    share, reports = FileShare(manifest, rank), _Reports(report, time.monotonic())
    _store(share, folder, manifest, rank, reports.add)
    reports.report_end(share.rows)
    return share.notices


def _store(share: FileShare, folder: str, manifest: Manifest, rank: int, report_rows: Callable[[int], object]) -> None:
    """report_rows: called with the rows made so far, before a block of them is stored."""

    def blocks() -> Iterator[share_files.Block]:
        for block in share.blocks():
            report_rows(share.rows)
            yield block

    try:
        share_files.store_blocks(blocks(), folder, manifest, rank)
    except share_files.NoRoom as error:
        raise DataError(str(error)) from error


def main() -> None:
    path, folder, number = sys.argv[1:]
    with open(path) as file:
        manifest: Manifest = json.load(file)
    rank = int(number)
    share = FileShare(manifest, rank)
    try:
        _store(share, folder, manifest, rank, functools.partial(print, flush=True))
        summary: dict[str, Any] = {"notices": share.notices, "rows": share.rows}
    except DataError as error:
        summary = {"error": str(error)}
    print(json.dumps(summary), flush=True)
    os._exit(0)  # no thread of a file system keeps this process


if __name__ == "__main__":
    main()
