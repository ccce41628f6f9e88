"""The folders in which a host keeps the shares of --data for later runs: where they are, whose, and what they hold.

An entry is a folder with a rank's share, as share_files.py writes it, and the file `ENTRY`: a line with the SHA-256 of
what follows, and a JSON object: "made" (seconds since the epoch), "data" (the DataFrame's name), "feed" (for later
runs) and "files" ({name: (bytes, CRC-32)}). Its name is KEY.DIGEST.RANK.FLOATX.

Executors look before the runtime is there: it travels to them by value (`by_value.py`).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
from typing import Any, Dict, List, Mapping, Tuple

ENTRY = "entry.json"
#: The cache's own folder, in one of Spark's or in that of --cache.
FOLDER = "ddl_magics-cache"
MAX_ENTRY_BYTES = 16 << 20
_NAME = re.compile(r"([0-9a-f]{64})\.([0-9a-f]{16})\.([0-9]{1,6})\.(float[0-9]{2}|bfloat16)$")
_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
#: Folders of an application, or of a worker of Spark, that Spark removes when it ends.
_OF_SPARK = re.compile("(?:spark|executor)-%s$|application_[0-9]+_[0-9]+$" % _UUID)


def roots(environment: Mapping[str, str], folder: str | None) -> List[str]:
    """The cache's folders on this host, one a disk; they may not be there yet.

    environment: of a Python worker of Spark. folder: of --cache; without it, they are in what Spark removes when the
    session ends, and that all executors of the host have in common.
    """
    if folder:
        return [os.path.join(folder, "%s-%d" % (FOLDER, os.geteuid()))]
    disks = [disk for disk in environment.get("SPARK_LOCAL_DIRS", "").split(",") if disk and os.access(disk, os.W_OK)]
    return list(dict.fromkeys(os.path.join(in_common(disk), FOLDER) for disk in disks))


def in_common(disk: str) -> str:
    """The highest of Spark's own folders around an executor's `disk`."""
    parent = os.path.dirname(disk)
    while _OF_SPARK.match(os.path.basename(parent)) and os.access(parent, os.W_OK):
        if os.stat(parent).st_dev != os.stat(disk).st_dev:
            break
        disk, parent = parent, os.path.dirname(parent)
    return disk


def is_ours(root: str) -> bool:
    """Whether a folder is there, and this user's alone: of another, nothing is read."""
    try:
        status = os.lstat(root)
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077


def read_entry(path: str) -> Dict[str, Any] | None:
    """The JSON object of an entry, or None where it is damaged, of another user, or not there."""
    try:
        opened = os.open(os.path.join(path, ENTRY), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(opened, "rb") as file:
            if os.fstat(opened).st_uid != os.geteuid():
                return None
            digest, _, content = file.read(MAX_ENTRY_BYTES).partition(b"\n")
        if digest != hashlib.sha256(content).hexdigest().encode():
            return None
        value: Dict[str, Any] = json.loads(content.decode("utf-8"))
    except (OSError, ValueError):
        return None
    return value


def write_entry(path: str, value: Mapping[str, Any]) -> None:
    """Write the JSON object of an entry to the disk."""
    content = json.dumps(value).encode("utf-8")
    with open(os.path.join(path, ENTRY), "xb") as file:
        file.write(hashlib.sha256(content).hexdigest().encode() + b"\n" + content)
        file.flush()
        os.fsync(file.fileno())


def names(root: str) -> List[Tuple[str, str, int]]:
    """(name, key and digest as "KEY.DIGEST", rank) of the entries in a folder; none where it is not ours."""
    if not is_ours(root):
        return []
    matches = [_NAME.match(name) for name in os.listdir(root)]
    return [(match[0], "%s.%s" % match.group(1, 2), int(match[3])) for match in matches if match]


def entries(environment: Mapping[str, str], folder: str | None) -> List[Tuple[str, str, int]]:
    """The same of all folders of this host, with the path in place of the name."""
    return [
        (os.path.join(root, name), generation, rank)
        for root in roots(environment, folder)
        for name, generation, rank in names(root)
    ]


def look(environment: Mapping[str, str], folder: str | None, key: str) -> Dict[str, Any]:
    """What this host has of `key`: {digest: {"ranks": [...], "made": seconds since the epoch, "feed": {...}}}."""
    generations: Dict[str, Any] = {}
    for path, generation, rank in entries(environment, folder):
        its_key, digest = generation.split(".")
        if its_key != key:
            continue
        if digest not in generations:
            entry = read_entry(path)
            if entry is None:
                continue
            generations[digest] = {"ranks": [], "made": entry["made"], "feed": entry["feed"]}
        generations[digest]["ranks"].append(rank)
    return generations


def listed(environment: Mapping[str, str], folder: str | None) -> List[Dict[str, Any]]:
    """What `%ddl cache` shows of this host's entries: the place, data, shares of the same rows, bytes, times."""
    listing: Dict[Tuple[str, str], Dict[str, Any]] = {}
    for path, generation, _ in entries(environment, folder):
        root, entry = os.path.dirname(path), read_entry(path)
        if entry is None:
            continue
        empty = {"root": root, "data": entry["data"], "shares": 0, "bytes": 0, "made": entry["made"], "used": 0.0}
        shares = listing.setdefault((root, generation), empty)
        shares["shares"] += 1
        shares["bytes"] += sum(size for size, _ in entry["files"].values())
        shares["used"] = max(shares["used"], os.stat(path).st_mtime)
    return list(listing.values())


def clear(environment: Mapping[str, str], folder: str | None) -> None:
    """Remove this host's entries. A run that has mapped one keeps its files."""
    for path, _, _ in entries(environment, folder):
        shutil.rmtree(path, ignore_errors=True)
