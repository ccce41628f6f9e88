"""Sending the files that the chief's cell has written to the driver, within bounds."""

from __future__ import annotations

from typing import Callable, NamedTuple, Sequence

from .names import listed

#: So many files of one run, and so many bytes of them, are sent to the driver, which keeps them for the notebook.
MAX_FILES = 1_000
MAX_BYTES = 4 << 30


class Written(NamedTuple):
    """A file that the cell has written. name: relative to the working folder, with slashes; size: bytes."""

    name: str
    path: str
    size: int


def send(files: Sequence[Written], send_file: Callable[[str, str], None], warn: Callable[[str], None]) -> None:
    """Send them, the smallest first. send_file(name, path): raises OSError for one that is gone."""
    skipped, room = [], MAX_BYTES
    for count, file in enumerate(sorted(files, key=lambda file: file.size)):
        if count >= MAX_FILES or file.size > room:
            skipped.append(file.name)
            continue
        room -= file.size
        try:
            send_file(file.name, file.path)
        except OSError as error:
            warn("%s could not be read and does not come back: %s" % (file.name, error))
    if skipped:
        message = "%s not come back: up to %d files and %d GB of a run do; write the others to the cluster's storage"
        warn(message % (listed(skipped) + (" does" if len(skipped) == 1 else " do"), MAX_FILES, MAX_BYTES >> 30))
