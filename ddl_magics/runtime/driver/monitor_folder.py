"""The folder of a monitor's --checkpoint on the cluster's storage: Spark's own checkpoints, and the counts."""

from __future__ import annotations

import contextlib
import json
import os
import re
from typing import Any, Callable, Mapping, TypeVar

#: The state of the counts is in files of this name; the newest two are kept.
STATE = "counts-%d.json"
Made = TypeVar("Made")
_STATE = re.compile(r"counts-([0-9]{1,18})\.json")


class CountsFolder:
    """The checkpoint's folder, on the cluster's storage: Spark's own, and the counts."""

    def __init__(self, sc: Any, uri: str, warn: Callable[[str], None]) -> None:
        """uri: a path below the user's home on the default file system, where it is relative. warn: takes a notice."""
        jvm, self._warn = sc._jvm, warn
        self._jvm, conf = jvm, sc._jsc.hadoopConfiguration()
        path = jvm.org.apache.hadoop.fs.Path(uri)
        self._fs = path.getFileSystem(conf)
        self._path = self._fs.makeQualified(path)

    def inside(self, name: str) -> str:
        return "%s/%s" % (self._path.toString(), name)

    @property
    def local_path(self) -> str | None:
        """The folder's path on this machine; None on another storage."""
        uri = self._path.toUri()
        return str(uri.getPath()) if uri.getScheme() == "file" else None

    def touch(self, name: str) -> None:
        """Make a file anew, at this moment of the storage's clock."""
        self._fs.create(self._path_of(name), True).close()

    def delete(self, name: str) -> None:
        self._fs.delete(self._path_of(name), False)

    def times(self, prefix: str) -> dict[str, float]:
        """Name -> when it was touched, in seconds of the storage's clock, of the files with such names."""
        statuses = self._fs.listStatus(self._path)
        times = {status.getPath().getName(): status.getModificationTime() / 1000 for status in statuses}
        return {name: touched for name, touched in times.items() if name.startswith(prefix)}

    def _path_of(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._path, name)

    def _numbers(self) -> list[int]:
        if not self._fs.exists(self._path):
            return []
        names = [status.getPath().getName() for status in self._fs.listStatus(self._path)]
        return sorted(int(match.group(1)) for match in map(_STATE.fullmatch, names) if match)

    def read(self, made_of: Callable[[Mapping[str, Any]], Made]) -> Made:
        """What is made of the newest state that is whole, or of an empty one where there is none.

        made_of: raises ValueError for a state that is damaged.

        Raises:
            ValueError: none of them is whole.
        """
        numbers = self._numbers()
        for number in reversed(numbers):
            try:
                return made_of(json.loads(self._content(STATE % number)))
            except (ValueError, RecursionError) as error:
                damaged = "%s is damaged (%s)" % (self.inside(STATE % number), error)
                if number == numbers[0]:
                    raise ValueError("%s: start with another --checkpoint, to count the log anew" % damaged) from None
                self._warn("%s: the counts before it hold, and those of its batch are missing" % damaged)
                self._fs.delete(self._path_of(STATE % number), False)
        return made_of({})

    def _content(self, name: str) -> str:
        """The text of a file. ValueError where its checksum is not that of its bytes."""
        try:
            stream = self._fs.open(self._path_of(name))
            try:
                return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
            finally:
                stream.close()
        except Exception as error:  # Py4J's; a storage that is away is no damage
            if "ChecksumException" in str(error):
                raise ValueError("its checksum is another") from None
            raise

    def write(self, state: Mapping[str, Any]) -> None:
        """Write the state whole: under another name first."""
        numbers = self._numbers()
        number = numbers[-1] + 1 if numbers else 0
        temporary = self._path_of(".counts-%d.%d.part" % (number, os.getpid()))
        stream = self._fs.create(temporary, True)
        try:
            stream.write(bytearray(json.dumps(state).encode("utf-8")))
            with contextlib.suppress(Exception):  # Py4J's: not all storages have it
                stream.hsync()  # on the disks of HDFS before it has its name; on a local disk, Hadoop only flushes
        finally:
            stream.close()
        self._synchronize(temporary.getName())
        if not self._fs.rename(temporary, self._path_of(STATE % number)):
            raise OSError("%s cannot be written" % self.inside(STATE % number))
        for replaced in numbers[:-1]:
            self._fs.delete(self._path_of(STATE % replaced), False)
        self._synchronize("")

    def _synchronize(self, name: str) -> None:
        """Wait until a file of this machine, with its checksums, or with "" the folder's entries, is on the disk."""
        if self.local_path is None:
            return
        for entry in (name, ".%s.crc" % name) if name else ("",):
            path = os.path.join(self.local_path, entry)
            if os.path.exists(path):
                opened = os.open(path, os.O_RDONLY)
                try:
                    os.fsync(opened)
                finally:
                    os.close(opened)
