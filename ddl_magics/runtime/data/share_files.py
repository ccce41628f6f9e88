"""The files of a rank's share of --data: an .npy file a tensor and set, which the rank's Spark task writes.

Of text, that file has (start, length) of each value, int64, in a file beside it that has the bytes.

The disk's room for all rows is reserved before the first one is written: a memory-mapped file that grows into a full
disk would end the process with SIGBUS.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import tempfile
from typing import TYPE_CHECKING, Any, BinaryIO, Dict, Iterable, Iterator, List, Mapping, Tuple

import numpy as np

from .. import scratch
from ..wording import counted, in_bytes
from . import cache_folder, packing, share_cache
from .records import is_ragged
from .sequences import first_rows

if TYPE_CHECKING:
    import numpy.typing as npt

    from .records import CacheUse, Manifest, SetName, TensorLayout

SETS: Tuple[SetName, ...] = ("train", "validation")
#: Bytes that are left free on a disk, for Spark and for what the cell writes.
SPARE_BYTES = 64 << 20
#: Some rows of a rank: a header that names their set, and their positions in its share, then the tensors.
Block = Tuple[Mapping[str, Any], packing.Arrays]


class NoRoom(Exception):
    """No disk has room for a rank's rows: one line with what is needed and what there is."""


def path(folder: str, name: SetName, tensor: int) -> str:
    return os.path.join(folder, "%s-%d.npy" % (name, tensor))


def starts_path(folder: str, name: SetName) -> str:
    """Of windows: with which of the rank's rows each begins, int64."""
    return os.path.join(folder, "%s-starts.npy" % name)


def text_path(folder: str, name: SetName, tensor: int) -> str:
    return path(folder, name, tensor)[: -len(".npy")] + ".text"


def share_rows(manifest: Manifest, name: SetName, rank: int) -> int:
    """The rows of a set that `rank` has."""
    if name == "validation" and manifest["validation_whole"]:
        return manifest["validation_rows"]
    rows = manifest["rows"] if name == "train" else manifest["validation_rows"]
    return (rows - rank + manifest["size"] - 1) // manifest["size"]


def stored_rows(manifest: Manifest, name: SetName, rank: int) -> int:
    """The rows of a set that `rank` stores: of windows, those that they span."""
    sequences = manifest.get("sequences")
    return share_rows(manifest, name, rank) if sequences is None else sequences["stored"][name][rank]


def is_text(tensor: TensorLayout) -> bool:
    """Whether a row has bytes of any length, as text, sparse vectors and rows of a ragged tensor have."""
    return tensor["use"] in ("string", "sparse") or is_ragged(tensor["use"])


def stored_shape(tensor: TensorLayout) -> List[int]:
    """Of a row on disk, where a sparse vector is one value, and so is a row of a ragged tensor."""
    return [] if tensor["use"] == "sparse" else tensor["shape"]


def row_bytes(tensor: TensorLayout, dtype: np.dtype[Any]) -> int:
    """Of a row on disk, with numbers of this dtype; of text, on average."""
    values = int(np.prod(stored_shape(tensor)))
    return 2 * 8 * values + tensor["text_bytes"] if is_text(tensor) else dtype.itemsize * values


def keras_floatx(environment: Mapping[str, str]) -> str:
    """The floatx with which Keras starts in a process of this environment; "float32" where nothing sets it."""
    home = environment.get("KERAS_HOME") or os.path.join(os.path.expanduser("~"), ".keras")
    try:
        with open(os.path.join(home, "keras.json")) as file:
            return str(json.load(file).get("floatx", "float32"))
    except (OSError, ValueError, AttributeError):
        return "float32"


def floatx_of(manifest: Manifest, environment: Mapping[str, str]) -> str:
    """The floatx of the cell in a process of this environment."""
    return manifest.get("floatx") or keras_floatx(environment)


def stored_dtype(tensor: TensorLayout, floatx: str) -> np.dtype[Any]:
    """The dtype of a tensor on disk: float32 where the dataset is to have that and the rows have more."""
    return np.dtype(np.float32 if (tensor["use"], floatx) == ("floatx", "float32") else tensor["dtype"])


def local_folders(environment: Mapping[str, str]) -> List[str]:
    """Spark's own disks, of which its workers have a list, then Python's folder for temporary files."""
    of_spark = [folder for folder in environment.get("SPARK_LOCAL_DIRS", "").split(",") if folder]
    return [folder for folder in of_spark if os.access(folder, os.W_OK)] + [tempfile.gettempdir()]


def make_folder(
    manifest: Manifest,
    rank: int,
    environment: Mapping[str, str],
    cache: CacheUse | None = None,
    number: int | None = None,
) -> str:
    """A folder of this process for the rank's rows, on the first disk with room. Raises `NoRoom`.

    The disks of Spark are taken in turn by the ranks of a host. cache: its folder comes first, and it makes room.
    number: of the rank, where each has the rows of rank 0, which are all.
    """
    floatx = floatx_of(manifest, environment)
    needed_bytes = sum(
        stored_rows(manifest, name, rank) * row_bytes(tensor, stored_dtype(tensor, floatx))
        for name in SETS
        for tensor in manifest["tensors"]
    )
    if manifest.get("sequences") is not None:
        needed_bytes += 8 * sum(share_rows(manifest, name, rank) for name in SETS)
    *of_spark, temporary = local_folders(environment)
    start = (rank if number is None else number) % len(of_spark) if of_spark else 0
    folders = _of_option(cache) + of_spark[start:] + of_spark[:start] + [temporary]
    for folder in folders:
        if needed_bytes + SPARE_BYTES <= shutil.disk_usage(folder).free:
            return scratch.make("data-%d" % rank, folder)
    if cache is not None:
        share_cache.make_room(cache_folder.roots(environment, cache["folder"]), needed_bytes + SPARE_BYTES)
    free: Dict[str, int] = {}
    for folder in folders:
        free[folder] = shutil.disk_usage(folder).free
        if needed_bytes + SPARE_BYTES <= free[folder]:
            return scratch.make("data-%d" % rank, folder)
    advice = "use more workers than %d" % manifest["size"]
    if number is not None:
        advice = "use --workers N instead of MIN..MAX, of which each has all rows"
    raise NoRoom(_no_room(manifest, needed_bytes, free, advice))


def _of_option(cache: CacheUse | None) -> List[str]:
    """The folder of --cache, if there is one that can be used: files are linked into the cache, so share its disk."""
    folder = cache["folder"] if cache is not None else None
    if folder is None:
        return []
    with contextlib.suppress(OSError):  # the rows are stored elsewhere, and `ShareCache.keep` says why not there
        os.makedirs(folder, exist_ok=True)
    return [folder] if os.access(folder, os.W_OK | os.X_OK) else []


def _no_room(manifest: Manifest, needed_bytes: int, free: Mapping[str, int], advice: str) -> str:
    return (
        "--data %s: this worker's share needs %s of disk, and there are %s: make room, have spark.local.dir name a "
        "larger disk, or %s"
        % (
            manifest["data"],
            in_bytes(needed_bytes),
            ", ".join("%s free in %s" % (in_bytes(free_bytes), folder) for folder, free_bytes in free.items()),
            advice,
        )
    )


class _Files:
    """The share of one set, while blobs arrive in any order."""

    def __init__(self, folder: str, manifest: Manifest, name: SetName, rank: int, floatx: str) -> None:
        self._name, rows = name, stored_rows(manifest, name, rank)
        self._stored = np.zeros(rows, np.bool_)
        self._files: List[Any] = []  # numpy.memmap
        self._unreserved: List[Any] = []  # those of them whose writing may still fail
        self._texts: Dict[int, BinaryIO] = {}
        for index, tensor in enumerate(manifest["tensors"] if rows else []):
            dtype, shape = stored_dtype(tensor, floatx), [rows] + stored_shape(tensor)
            if is_text(tensor):
                dtype, shape = np.dtype(np.int64), shape + [2]
                self._texts[index] = open(text_path(folder, name, index), "wb")  # noqa: SIM115 - `close` closes it
            file, reserved = _create(path(folder, name, index), dtype, shape)
            self._files.append(file)
            self._unreserved += [] if reserved else [file]

    def write(self, rows: npt.NDArray[Any], arrays: packing.Arrays) -> None:
        """OSError where there is no room for text."""
        for index, (file, array) in enumerate(zip(self._files, arrays)):
            file[rows] = self._append(self._texts[index], array) if index in self._texts else array
        if self._stored[rows].any():
            raise RuntimeError("--data: rows of the %s data came twice to this rank" % self._name)
        self._stored[rows] = True

    @staticmethod
    def _append(file: BinaryIO, values: np.ndarray) -> npt.NDArray[np.int64]:
        lengths = packing.text_lengths(values)
        stops = file.tell() + np.cumsum(lengths).reshape(lengths.shape)
        file.write(b"".join(values.ravel()))
        return np.stack([stops - lengths, lengths], axis=-1)

    def close(self) -> None:
        for text in self._texts.values():
            text.close()
        missing = len(self._stored) - int(self._stored.sum())
        if missing:
            raise RuntimeError("--data: %s of the %s data did not come" % (counted(missing, "row"), self._name))
        for file in self._unreserved:
            file.flush()


def _write_starts(name: str, runs: npt.NDArray[np.int64], classes: int, manifest: Manifest) -> None:
    sequences = manifest["sequences"]
    assert sequences is not None
    starts = first_rows(runs, classes, sequences["stride"])
    if len(starts):
        file, _ = _create(name, starts.dtype, [len(starts)])
        file[:] = starts
        file.flush()


def _create(name: str, dtype: np.dtype[Any], shape: List[int]) -> Tuple[Any, bool]:
    """(a memory-mapped file, whether its room on the disk is reserved). OSError where there is none."""
    file: np.ndarray = np.lib.format.open_memmap(name, "w+", dtype, tuple(shape))
    with open(name, "r+b") as opened:
        try:
            os.posix_fallocate(opened.fileno(), 0, os.fstat(opened.fileno()).st_size)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):  # by file systems that cannot reserve room
                raise
            return file, False
    return file, True


def store(
    blobs: Iterable[bytes], folder: str, manifest: Manifest, rank: int, environment: Mapping[str, str] = os.environ
) -> None:
    """`store_blocks`, of blobs that `packing.encode` made."""
    store_blocks(map(packing.decode, blobs), folder, manifest, rank, environment)


def store_blocks(
    blocks: Iterable[Block], folder: str, manifest: Manifest, rank: int, environment: Mapping[str, str] = os.environ
) -> None:
    """Write the blocks of a rank, in any order, to files in `folder`. environment: of the rank's process.

    Raises `NoRoom`, for numbers before the first row is written; RuntimeError where rows of the share are missing or
    came twice.
    """
    os.makedirs(folder, exist_ok=True)
    floatx = floatx_of(manifest, environment)
    with _storage_errors(manifest, folder):
        sets = {name: _Files(folder, manifest, name, rank, floatx) for name in SETS}
    for header, (rows, *arrays) in blocks:
        with _storage_errors(manifest, folder):
            if "classes" in header:
                _write_starts(starts_path(folder, header["set"]), rows, header["classes"], manifest)
            else:
                sets[header["set"]].write(rows, arrays)
    for files in sets.values():
        with _storage_errors(manifest, folder):
            files.close()


@contextlib.contextmanager
def _storage_errors(manifest: Manifest, folder: str) -> Iterator[None]:
    """Turns an OSError into `NoRoom`."""
    try:
        yield
    except OSError as error:
        problem = os.strerror(error.errno) if error.errno else str(error)
        raise NoRoom(
            "--data %s: the rows cannot be stored in %s: %s; make room there, or have spark.local.dir name another disk"
            % (manifest["data"], folder, problem)
        ) from error
