"""A package of Python files as a zip: the form in which the runtime is sent to a session and on to the executors."""

from __future__ import annotations

import functools
import io
import os
import zipfile
from typing import Mapping

#: This package's name in this process (the executors have it under another name than the notebook), and its folder.
NAME = __package__
FOLDER = os.path.dirname(os.path.abspath(__file__))

#: The oldest time that a zip can hold. With it, equal sources give equal bytes.
_EPOCH = (1980, 1, 1, 0, 0, 0)


def sources(folder: str | os.PathLike[str]) -> dict[str, bytes]:
    """{path within `folder`: content} of its Python files, in order of path."""
    contents = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)
            if name.endswith(".py") and "__pycache__" not in path:
                with open(path, "rb") as file:
                    contents[os.path.relpath(path, folder).replace(os.sep, "/")] = file.read()
    return dict(sorted(contents.items()))


@functools.lru_cache(maxsize=None)
def own_zip() -> bytes:
    """A zip of this package, in a folder of its name here."""
    return zipped(os.path.basename(FOLDER), sources(FOLDER))


def unpack(archive: bytes, folder: str) -> None:
    """Unpack what `own_zip` returned in a folder, if it is not there yet."""
    if not os.path.isdir(os.path.join(folder, *NAME.split("."))):
        zipfile.ZipFile(io.BytesIO(archive)).extractall(folder)


def zipped(name: str, files: Mapping[str, bytes]) -> bytes:
    """A zip of `files`, as `sources` returns them, in a folder called `name`."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files.items():
            info = zipfile.ZipInfo("%s/%s" % (name, path), _EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o644 << 16
            archive.writestr(info, content)
    return buffer.getvalue()
