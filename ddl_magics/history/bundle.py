"""`%ddl export` and `%ddl import`: runs, and searches with their trials, as one zip file to keep or to pass on.

The zip has `ddl_magics.json`, with the format and each file's size and SHA-256, and the files of the store as they are,
below `runs/ID` and `searches/ID`. Nothing of it is executed or unpickled. An import takes only files that the list
names and the store knows, checks sizes and hashes as it reads, and shows a run in the store once it is complete.

An archive may be a stranger's. Export and import both leave out what points outside of it: addresses of drivers, paths
of files, and the pickles that Optuna keeps in a study.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddl_magics._version import __version__
from ddl_magics.errors import InOneLine
from ddl_magics.history import provenance
from ddl_magics.runtime.events import Placed
from ddl_magics.store import RUN_ID, RunRecord, SearchRecord, runs_folder, searches_folder
from ddl_magics.store.files import make_private, synchronize, synchronize_folder, write_atomically
from ddl_magics.store.owned_folder import lines_of, read_object
from ddl_magics.wording import in_bytes, plain

MANIFEST = "ddl_magics.json"
#: A reader takes this format and older ones. A change that older readers misread gets a higher number.
FORMAT = 1

MAX_FILES = 200_000
MAX_MANIFEST_BYTES = 64 << 20
MAX_BYTES = 1 << 40
#: Bound for files that are read into memory, such as `run.json`.
MAX_RECORD_BYTES = 64 << 20
_READ_WHOLE = frozenset(("run.json", "labels.json", "history.json", "search.json", "view.json", provenance.NAME))
_CHUNK_BYTES = 1 << 20
#: Other methods, such as LZMA, let a file ask for gigabytes of memory.
_COMPRESSED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)

#: The files of a stored run or search that an archive has: neither its owner nor requests to it.
_FILES = {
    "runs": rf"run\.json|labels\.json|events\.jsonl|history\.json|{re.escape(provenance.NAME)}|files/{{artifact}}",
    "searches": r"search\.json|study\.journal|view\.json",
}
_RECORDS = {"runs": "run.json", "searches": "search.json"}
_ARTIFACT = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
_NAME = re.compile(
    "|".join(f"{kind}/{RUN_ID.pattern}/({files.format(artifact=_ARTIFACT)})" for kind, files in _FILES.items())
)

#: The errors of reading a file that is no zip.
_UNREADABLE = (zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, EOFError, RuntimeError, ValueError)


class BundleError(InOneLine, ValueError):
    """An archive cannot be written or read: one line that says why and what to do."""


@dataclass(frozen=True)
class Imported:
    """The ids of the imported runs and searches."""

    runs: tuple[str, ...]
    searches: tuple[str, ...]


def write(path: Path, runs: Sequence[RunRecord], search: SearchRecord | None = None) -> int:
    """Write an archive; returns its size in bytes.

    Args:
        path: of the file, which must not exist.
        runs: that have ended; the trials of `search`, if it is given.
        search: that has ended.

    Raises:
        BundleError: one has not ended, or the file exists or cannot be written.
    """
    records: list[RunRecord | SearchRecord] = [*runs, *([search] if search else [])]
    living = next((record for record in records if not record.over), None)
    if living is not None:
        raise BundleError(f"{living.name} is {living.state}: export it when it has ended.")
    folders = [("runs", record.folder) for record in runs] + ([("searches", search.folder)] if search else [])
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(3)}")
    try:
        if not path.parent.is_dir():
            raise BundleError(f"there is no folder {path.parent}: create it first.")
        if path.exists():
            raise BundleError(f"{path} exists: choose another name, or remove it first.")
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
            files = {name: _add(archive, name, source) for name, source in _sources(folders)}
            manifest = {"format": FORMAT, "ddl_magics": __version__, "files": files}
            archive.writestr(MANIFEST, json.dumps(manifest, indent=1))
        os.replace(temporary, path)
        return path.stat().st_size
    except OSError as error:
        raise BundleError(f"{path} cannot be written: {error.strerror or error}.") from None
    finally:
        temporary.unlink(missing_ok=True)


def _sources(folders: Sequence[tuple[str, Path]]) -> Iterator[tuple[str, Path]]:
    """(name in the archive, file)."""
    for kind, folder in folders:
        for file in sorted([*folder.iterdir(), *folder.glob("files/*")]):
            name = f"{kind}/{folder.name}/{file.relative_to(folder).as_posix()}"
            if not _NAME.fullmatch(name) or file.is_symlink() or not file.is_file():
                continue
            yield name, file


def _add(archive: zipfile.ZipFile, name: str, source: Path) -> dict[str, Any]:
    digest, size = hashlib.sha256(), 0
    with archive.open(name, "w", force_zip64=True) as target:
        for chunk in _passed_on(source):
            target.write(chunk)
            digest.update(chunk)
            size += len(chunk)
    return {"size": size, "sha256": digest.hexdigest()}


def _passed_on(file: Path) -> Iterator[bytes]:
    """The content of a file of the store, without what others must not get."""
    change = _CHANGED.get(file.name)
    with open(file, "rb") as source:
        if change is None:
            while chunk := source.read(_CHUNK_BYTES):
                yield chunk
        elif file.suffix == ".json":
            yield json.dumps(change(read_object(file)), indent=1).encode()
        else:
            for line in lines_of(source):
                yield _line(line, change)


def _line(line: bytes, change: Callable[[Any], Any]) -> bytes:
    """A changed line of JSON; a damaged line becomes an empty one."""
    try:
        stored = json.loads(line)
        changed = change(stored)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return b"\n"
    if changed is None:
        return b""
    return line if changed is stored else json.dumps(changed, separators=(",", ":")).encode() + b"\n"


def _portable_record(stored: dict[str, Any]) -> dict[str, Any]:
    """Without the address of the driver, without paths of files, and without servers that the run was written to."""
    stored.update({name: {} for name in ("place", "driver_address") if name in stored})
    if isinstance(stored.get("spec"), dict):
        stored["spec"] = {**stored["spec"], **dict.fromkeys(("tensorboard", "mlflow"))}
    if stored.get("cell_files"):
        stored["cell_files"] = [{**file, "path": None} for file in stored["cell_files"]]
    return stored


def _portable_event(event: dict[str, Any]) -> dict[str, Any] | None:
    """None for one that says where a file was put."""
    return None if event["kind"] == Placed.kind else event


def _portable_log(log: dict[str, Any]) -> dict[str, Any] | None:
    """A line of Optuna's journal without the state of CMA-ES, which is a pickle; CMA-ES restarts without it."""
    if any(map(_is_pickle, log.get("system_attr", ()))):
        return None
    attributes = log.get("system_attrs", {})
    if any(map(_is_pickle, attributes)):
        return {**log, "system_attrs": {name: value for name, value in attributes.items() if not _is_pickle(name)}}
    return log


def _is_pickle(attribute: str) -> bool:
    """Whether an attribute of a trial is a part of the pickle that `CmaEsSampler` loads: "cma:optimizer:0"."""
    return ":optimizer" in attribute


#: File -> the function that changes it, or each of its lines.
_CHANGED: Mapping[str, Callable[[Any], Any]] = {
    "run.json": _portable_record,
    "search.json": _portable_record,
    "events.jsonl": _portable_event,
    "study.journal": _portable_log,
}


def read(path: Path) -> Imported:
    """Import an archive into the store, completely or not at all.

    Raises:
        BundleError: it is no archive of `%ddl export`, newer, damaged, or has a run that the store has already.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            manifest = _manifest(archive)
            folders = sorted({(kind, name) for kind, name, *_ in (Path(file).parts for file in manifest)})
            _check_room(folders, manifest)
            hidden = {folder: _hidden(folder) for folder in folders}
            placed: list[Path] = []
            try:
                for name, promised in manifest.items():
                    kind, folder_name, *path_in_folder = Path(name).parts
                    _extract(archive, name, promised, hidden[kind, folder_name].joinpath(*path_in_folder))
                for kind, name in folders:
                    _check_record(kind, name, hidden[kind, name])
                    for file in filter(Path.exists, map(hidden[kind, name].joinpath, _CHANGED)):
                        write_atomically(file, _passed_on(file))
                    _mark_imported(hidden[kind, name] / _RECORDS[kind])
                for folder in reversed(folders):  # searches first, so that a trial never shows without its search
                    final = hidden[folder].with_name(folder[1])
                    os.rename(hidden[folder], final)
                    placed.append(final)
                    synchronize_folder(final.parent)
            except BaseException:
                for final in placed:
                    shutil.rmtree(final, ignore_errors=True)
                raise
            finally:
                for hidden_folder in hidden.values():
                    shutil.rmtree(hidden_folder, ignore_errors=True)
    except BundleError:
        raise
    except OSError as error:
        raise BundleError(f"{path} cannot be imported: {error.strerror or error}.") from None
    except _UNREADABLE as error:
        raise BundleError(f"{path} is no archive of %ddl export, or it is damaged ({plain(str(error))}).") from None
    ids = {kind: tuple(folder[1] for folder in folders if folder[0] == kind) for kind in _FILES}
    return Imported(ids["runs"], ids["searches"])


def _manifest(archive: zipfile.ZipFile) -> Mapping[str, Mapping[str, Any]]:
    """The list of files: name -> size and sha256, checked against the archive's own directory."""
    entries = archive.infolist()
    names = [entry.filename for entry in entries]
    compressed_as_ours = all(entry.compress_type in _COMPRESSED for entry in entries)
    if not compressed_as_ours or MANIFEST not in names or len(entries) > MAX_FILES or len(set(names)) < len(names):
        raise BundleError(f"{archive.filename} is no archive of %ddl export.")
    with archive.open(MANIFEST) as source:
        text = source.read(MAX_MANIFEST_BYTES + 1)
    if len(text) > MAX_MANIFEST_BYTES:
        raise BundleError(f"{archive.filename} is damaged: {MANIFEST} is too long.")
    try:
        manifest = json.loads(text)
        format_, files = manifest["format"], manifest["files"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise BundleError(f"{archive.filename} is damaged: {MANIFEST} cannot be read.") from None
    if not isinstance(format_, int) or format_ > FORMAT:
        raise BundleError(
            f"{archive.filename} is of a newer ddl_magics (format {plain(str(format_)[:20])}): update this one."
        )
    if not isinstance(files, dict) or {*files} != {*names} - {MANIFEST}:
        raise BundleError(f"{archive.filename} is damaged: its files are not those of its list.")
    for name, promised in files.items():
        if not _NAME.fullmatch(name):
            raise BundleError(f"{archive.filename} has a file that no run has, {plain(name)}: nothing is imported.")
        size = promised.get("size") if isinstance(promised, dict) else None
        if type(size) is not int or size < 0 or not isinstance(promised.get("sha256"), str):
            raise BundleError(f"{archive.filename} is damaged: {MANIFEST} cannot be read.")
    if sum(promised["size"] for promised in files.values()) > MAX_BYTES:
        raise BundleError(f"{archive.filename} is larger than {in_bytes(MAX_BYTES)}.")
    for name, promised in files.items():
        if name.rpartition("/")[2] in _READ_WHOLE and promised["size"] > MAX_RECORD_BYTES:
            raise BundleError(f"{archive.filename} is damaged: {plain(name)} is too long.")
    return files


def _check_room(folders: Sequence[tuple[str, str]], manifest: Mapping[str, Mapping[str, Any]]) -> None:
    """Raises BundleError where the store has one of the folders, or the disk too little space."""
    if not folders:
        raise BundleError("the archive has no run.")
    existing = next((folder for folder in folders if (_store(folder[0]) / folder[1]).exists()), None)
    if existing is not None:
        raise BundleError(f"{existing[1]} is in the store already: %ddl show {existing[1]} shows it.")
    make_private(runs_folder())
    size, free = sum(promised["size"] for promised in manifest.values()), shutil.disk_usage(runs_folder()).free
    if size > free:
        raise BundleError(f"the archive needs {in_bytes(size)}, and {in_bytes(free)} are free in {runs_folder()}.")


def _store(kind: str) -> Path:
    return runs_folder() if kind == "runs" else searches_folder()


def _hidden(folder: tuple[str, str]) -> Path:
    """A folder that no reader of the store looks into; `%ddl clean` removes it after an interruption."""
    path = _store(folder[0]) / f".{folder[1]}.{secrets.token_hex(3)}"
    make_private(path.parent)
    path.mkdir(mode=0o700)
    for name in ("control", *(["files"] if folder[0] == "runs" else [])):
        (path / name).mkdir()
    return path


def _extract(archive: zipfile.ZipFile, name: str, promised: Mapping[str, Any], to: Path) -> None:
    digest, remaining = hashlib.sha256(), promised["size"]
    with archive.open(name) as source, open(to, "xb") as file:
        while chunk := source.read(min(_CHUNK_BYTES, remaining + 1)):
            remaining -= len(chunk)
            if remaining < 0:
                break
            digest.update(chunk)
            file.write(chunk)
        synchronize(file.fileno())
    if remaining or digest.hexdigest() != promised["sha256"]:
        raise BundleError(f"{archive.filename} is damaged: {name} is not what its list says.")


def _mark_imported(record: Path) -> None:
    """Note in `run.json` or `search.json` that an archive has brought it, which no archive can say otherwise."""
    write_atomically(record, [json.dumps({**read_object(record), "imported": True}, indent=1).encode()])


def _check_record(kind: str, name: str, folder: Path) -> None:
    """Raises BundleError unless the folder holds a run, or search, that has this id and has ended."""
    file = folder / _RECORDS[kind]
    with contextlib.suppress(OSError):
        if file.stat().st_size <= MAX_RECORD_BYTES:
            stored = read_object(file)
            spec = stored.get("spec")
            stored_id = stored.get("id") if kind == "runs" else isinstance(spec, dict) and spec.get("run")
            # The hidden folder has another name, and readers of the store take the id from the name.
            final = folder.with_name(name)
            record = _record(kind, stored, folder, final)
            if stored_id == name and record is not None and record.over and record.name.isidentifier():
                return
    raise BundleError(f"the archive's {'run' if kind == 'runs' else 'search'} {name} is damaged, or has not ended.")


def _record(kind: str, stored: Mapping[str, Any], folder: Path, final: Path) -> RunRecord | SearchRecord | None:
    try:
        if kind == "runs":
            return RunRecord.read(stored, read_object(folder / "labels.json"), final)
        return SearchRecord.read(stored, final)
    except (KeyError, TypeError, ValueError):
        return None
