"""The folder of a monitor's --checkpoint on the cluster's storage: Spark's own checkpoints, and the counts."""

from __future__ import annotations

import json
import os
from typing import Any, Mapping

#: The state of the counts is in files of this name; the newest two are kept.
STATE = "counts-%d.json"


class CountsFolder:
    """The checkpoint's folder, on the cluster's storage: Spark's own, and the counts."""

    def __init__(self, sc: Any, uri: str) -> None:
        """uri: a path below the user's home on the default file system, where it is relative."""
        jvm = sc._jvm
        self._jvm, conf = jvm, sc._jsc.hadoopConfiguration()
        path = jvm.org.apache.hadoop.fs.Path(uri)
        self._fs = path.getFileSystem(conf)
        self._path = self._fs.makeQualified(path)

    def inside(self, name: str) -> str:
        return "%s/%s" % (self._path.toString(), name)

    def _path_of(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._path, name)

    def _numbers(self) -> list[int]:
        if not self._fs.exists(self._path):
            return []
        names = [status.getPath().getName() for status in self._fs.listStatus(self._path)]
        return sorted(int(name[len("counts-") : -len(".json")]) for name in names if name.startswith("counts-"))

    def read(self) -> dict[str, Any]:
        """The newest state, or an empty one."""
        numbers = self._numbers()
        if not numbers:
            return {}
        stream = self._fs.open(self._path_of(STATE % numbers[-1]))
        try:
            text = self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
        finally:
            stream.close()
        return dict(json.loads(text))

    def write(self, state: Mapping[str, Any]) -> None:
        """Write the state whole: under another name first."""
        numbers = self._numbers()
        number = numbers[-1] + 1 if numbers else 0
        temporary = self._path_of(".counts-%d.%d.part" % (number, os.getpid()))
        stream = self._fs.create(temporary, True)
        try:
            stream.write(bytearray(json.dumps(state).encode("utf-8")))
        finally:
            stream.close()
        if not self._fs.rename(temporary, self._path_of(STATE % number)):
            raise OSError("%s cannot be written" % self.inside(STATE % number))
        for replaced in numbers[:-1]:
            self._fs.delete(self._path_of(STATE % replaced), False)
