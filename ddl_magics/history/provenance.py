"""`provenance.json.gz` in a run's folder: what the run ran with. A damaged or foreign file reads as one line."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ddl_magics.runtime import events as ev
from ddl_magics.runtime.provenance.packages import merged
from ddl_magics.runtime.schema_check import MAX_COUNT
from ddl_magics.store.files import write_atomically

NAME = "provenance.json.gz"
FORMAT = 1
#: The size of an unpacked file, at most.
MAX_BYTES = 16 << 20
#: A line of a requirements.txt, which is what MLflow gets: a stranger's could have options of pip, or paths.
_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9][A-Za-z0-9.+!_-]*")


@dataclass(frozen=True)
class Provenance:
    """What a run ran with. An unknown section is empty.

    Attributes:
        kernel, driver: host, platform, python, and `packages`, name -> version.
        ranks: groups of ranks that are alike: ranks ("0-3"), host, device, cores, and `packages` where they differ from
            the driver's, None for one that is missing.
        spark: version, master, and `settings` without secrets.
        git: commit, branch, remote, changed (a bool), diff and untracked files; `cut` where the diff is too long.
        notebook: path, saved (seconds since the epoch) and cells: type, source and id of each; `cut` likewise.
        sent: name -> fingerprint of a variable that the cell used, as `runtime/provenance/values.py` has it.
        data: the fingerprint of the DataFrame of --data, as `runtime/provenance/frames.py` has it.
        problem: why the file cannot be read, in one line; empty if there is no file.
    """

    kernel: Mapping[str, Any] = field(default_factory=dict)
    driver: Mapping[str, Any] = field(default_factory=dict)
    ranks: tuple[Mapping[str, Any], ...] = ()
    spark: Mapping[str, Any] = field(default_factory=dict)
    git: Mapping[str, Any] = field(default_factory=dict)
    notebook: Mapping[str, Any] = field(default_factory=dict)
    sent: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in (*SECTIONS, "ranks"))

    @property
    def packages(self) -> Mapping[str, str]:
        """Name -> version for the ranks, as far as they are alike, else the driver's, else the kernel's."""
        changed = self.ranks[0].get("packages", {}) if len(self.ranks) == 1 else {}
        return merged(dict(self.driver.get("packages") or self.kernel.get("packages") or {}), changed)  # type: ignore[return-value]


def read(run: Path) -> Provenance:
    """Read the provenance in a run's folder."""
    try:
        stored = json.loads(_unpacked((run / NAME).read_bytes()))
    except FileNotFoundError:
        return Provenance()
    except (OSError, ValueError, EOFError, zlib.error, RecursionError) as error:
        return Provenance(problem=f"{NAME} is damaged ({type(error).__name__})")
    if not isinstance(stored, dict) or stored.get("format") != FORMAT:
        return Provenance(problem=f"{NAME} is of another version of ddl_magics")
    stored = ev.encodable(stored)
    return checked(stored)


def checked(stored: Mapping[str, Any]) -> Provenance:
    """The provenance in an object that may be damaged: without parts of other types."""
    sections: dict[str, Any] = {
        name: check(stored[name]) for name, check in SECTIONS.items() if isinstance(stored.get(name), dict)
    }
    return Provenance(ranks=_ranks(stored.get("ranks")), **sections)


def write(run: Path, sections: Mapping[str, Any]) -> None:
    """Write the provenance into a run's folder. Raises OSError."""
    text = json.dumps({"format": FORMAT, **sections}, separators=(",", ":"))
    write_atomically(run / NAME, [gzip.compress(text.encode(errors="replace"), 6, mtime=0)], lasting=False)


def _unpacked(data: bytes) -> bytes:
    unpacker = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    content = unpacker.decompress(data, MAX_BYTES)
    if not unpacker.eof:
        raise ValueError("too long, or its end is missing")
    return content


def _texts(value: Any, *, missing: bool = False, without: Container[str] = ()) -> dict[str, Any]:
    """Text -> text; with `missing`, also None. `without`: names of what is no text."""
    if not isinstance(value, dict):
        return {}
    return {
        name: text
        for name, text in value.items()
        if name not in without and (isinstance(text, str) or (missing and text is None))
    }


def _process(value: Mapping[str, Any]) -> dict[str, Any]:
    """A Python: host, platform, python and packages."""
    packages = _texts(value.get("packages"), missing=True)
    of_form = {name: version for name, version in packages.items() if _PACKAGE.fullmatch(f"{name}=={version or 0}")}
    return {**_texts(value), "packages": of_form}


def _ranks(value: Any) -> tuple[dict[str, Any], ...]:
    groups = [group for group in value if isinstance(group, dict)] if isinstance(value, list) else []
    return tuple({**_process(group), "cores": _count(group.get("cores"))} for group in groups)


def _spark(value: Mapping[str, Any]) -> dict[str, Any]:
    return {**_texts(value), "settings": _texts(value.get("settings"))}


def _git(value: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(value.get("commit"), str):
        return {}
    untracked = value.get("untracked")
    names = [name for name in untracked if isinstance(name, str)] if isinstance(untracked, list) else []
    return {**_texts(value), "changed": bool(value.get("changed")), "cut": bool(value.get("cut")), "untracked": names}


def _notebook(value: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(value.get("path"), str):
        return {}
    cells, saved = value.get("cells"), value.get("saved")
    cell_texts = [_texts(cell) for cell in cells if isinstance(cell, dict)] if isinstance(cells, list) else []
    moment = {"saved": saved} if isinstance(saved, (int, float)) and 0 <= saved < ev.MAX_TIME else {}
    return {**_texts(value, without=("saved",)), **moment, "cells": cell_texts, "cut": bool(value.get("cut"))}


def _variables(value: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {name: _fingerprint(fingerprint) for name, fingerprint in value.items() if isinstance(fingerprint, dict)}


def _fingerprint(value: Mapping[str, Any]) -> dict[str, Any]:
    """The checked fields of the fingerprint of a value or a DataFrame."""
    counts = ("bytes", "length", "rows", "validation_rows", "files")
    fingerprints = _texts(value, without=(*counts, "shape", "sampled", "columns", "sources"))
    fingerprints.update({name: value[name] for name in counts if _count(value.get(name)) is not None})
    if isinstance(value.get("shape"), list) and all(_count(size) is not None for size in value["shape"]):
        fingerprints["shape"] = value["shape"]
    if value.get("sampled") is True:
        fingerprints["sampled"] = True
    if isinstance(value.get("columns"), dict):
        fingerprints["columns"] = _texts(value["columns"])
    if isinstance(value.get("sources"), list):
        files = [file for file in value["sources"] if isinstance(file, dict) and isinstance(file.get("path"), str)]
        numbers = ("size", "modified")
        fingerprints["sources"] = [
            {"path": file["path"], **{name: file[name] for name in numbers if type(file.get(name)) in (int, float)}}
            for file in files
        ]
    return fingerprints


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value <= MAX_COUNT else None


#: Section, an object -> the function that checks it.
SECTIONS: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "kernel": _process,
    "driver": _process,
    "spark": _spark,
    "git": _git,
    "notebook": _notebook,
    "sent": _variables,
    "data": _fingerprint,
}
