"""`--files PATHS`: files of the notebook's folder in a zip, which the driver gets in parts before the launch."""

from __future__ import annotations

import base64
import io
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.wording import counted, nearest

#: The most that --files may have, before compression.
MAX_BYTES = 32 << 20
#: Bytes of the zip in one request: about half a megabyte as text.
PART_BYTES = 3 << 17


class CannotSendFiles(Exception):
    """One line that names the path and says what to do."""


#: Calls a function of the driver's API with a request.
DriverCall = Callable[[str, Mapping[str, Any]], dict[str, Any]]


def upload(spec: RunSpec, call: DriverCall) -> None:
    """Send the files of --files to the driver.

    Raises:
        CannotSendFiles: see `check`; or the driver refuses them.
        ConnectionError, TimeoutError, ProcessLookupError: there is no answer.
    """
    if spec.files:
        send(spec.run, _zipped(spec), call)


def send(run: str, data: bytes, call: DriverCall) -> None:
    """Send bytes to the driver, which keeps them for the run with this id; as `upload`."""
    parts = [data[i : i + PART_BYTES] for i in range(0, len(data), PART_BYTES)]
    for index, part in enumerate(parts):
        text = base64.b64encode(part).decode("ascii")
        reply = call("upload", {"run": run, "index": index, "count": len(parts), "data": text})
        if not reply.get("ok"):
            raise CannotSendFiles(str((reply.get("error") or {}).get("message", "the driver did not take the files")))


def check(spec: RunSpec) -> None:
    """Whether the files are there, in the notebook's folder and small enough.

    Raises:
        CannotSendFiles: they are not.
    """
    sizes = {name: path.stat().st_size for name, path in _found(spec)}
    size = sum(sizes.values())
    if size > MAX_BYTES:
        largest = max(sizes, key=lambda name: sizes[name])
        raise CannotSendFiles(
            f"--files: {counted(len(sizes), 'file')} of {size / 2**20:.0f} MB ({largest} is the largest), and up to "
            f"{MAX_BYTES >> 20} MB are sent: write large ones to the cluster's storage, and read them there."
        )


def _zipped(spec: RunSpec) -> bytes:
    check(spec)
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
        for name, path in _found(spec):
            archive.write(path, name)
    return data.getvalue()


def _found(spec: RunSpec) -> Iterator[tuple[str, Path]]:
    """(path relative to the notebook's folder, with slashes; path) of each file."""
    home = Path(spec.folder or os.curdir).absolute()
    for given in spec.files or ():
        path = Path(os.path.normpath(home / given))
        if not path.is_relative_to(home):
            raise CannotSendFiles(
                f"--files {given}: it is not in the notebook's folder ({home}), and only what is there has the same "
                "relative path on a worker."
            )
        if path.is_dir():
            files = sorted(each for each in path.rglob("*") if each.is_file())
        elif path.is_file():
            files = [path]
        else:
            beside = [each.name for each in home.iterdir()] if home.is_dir() else []
            raise CannotSendFiles(f"--files {given}: there is no such file in {home}.{nearest(given, beside)}")
        for each in files:
            yield each.relative_to(home).as_posix(), each
