"""`--files PATHS`: files of the notebook's folder in a zip, sent to the driver in chunks before the launch."""

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

#: The largest size of --files, before compression.
MAX_BYTES = 32 << 20
#: Bytes of the zip in one request: about half a megabyte as text.
CHUNK_BYTES = 3 << 17


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
    chunks = [data[i : i + CHUNK_BYTES] for i in range(0, len(data), CHUNK_BYTES)]
    for index, chunk in enumerate(chunks):
        text = base64.b64encode(chunk).decode("ascii")
        reply = call("upload", {"run": run, "index": index, "count": len(chunks), "data": text})
        if not reply.get("ok"):
            raise CannotSendFiles(str((reply.get("error") or {}).get("message", "the driver did not take the files")))


def check(spec: RunSpec) -> None:
    """Check that the files exist, are in the notebook's folder and small enough.

    Raises:
        CannotSendFiles: they are not.
    """
    sizes = {name: path.stat().st_size for name, path in _listed_files(spec)}
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
        for name, path in _listed_files(spec):
            archive.write(path, name)
    return data.getvalue()


def _listed_files(spec: RunSpec) -> Iterator[tuple[str, Path]]:
    """(path relative to the notebook's folder, with slashes; path) of each file of --files."""
    home = Path(spec.folder or os.curdir).absolute()
    for entry in spec.files or ():
        path = Path(os.path.normpath(home / entry))
        if not path.is_relative_to(home):
            raise CannotSendFiles(
                f"--files {entry}: it is not in the notebook's folder ({home}), and only what is there has the same "
                "relative path on a worker."
            )
        if path.is_dir():
            files = sorted(file for file in path.rglob("*") if file.is_file())
        elif path.is_file():
            files = [path]
        else:
            siblings = [sibling.name for sibling in home.iterdir()] if home.is_dir() else []
            raise CannotSendFiles(f"--files {entry}: there is no such file in {home}.{nearest(entry, siblings)}")
        for file in files:
            yield file.relative_to(home).as_posix(), file
