"""Exports and the registry: a writer that is killed at any of its changes, a power cut, a full disk."""

import json
import os
import random
from pathlib import Path

from chaos.room import Room, age, check

NAME = "digits"
EARLIER = 2


def export(file, target):
    """Export a model of the format that needs no Keras."""
    from ddl_magics.errors import CannotExport
    from ddl_magics.models.export import Trained, export

    try:
        export(Trained(Path(file), lambda: None, {"run": "20261121-000001-aaaaaa", "name": NAME}), target, "keras")
    except CannotExport as error:
        print(f"refused: {error}")
    else:
        print("done")


def add(folder, seed):
    """Add a version to a registry, and make it the champion."""
    from ddl_magics import CannotExport, Registry

    registry = Registry(folder)
    try:
        version = registry.add(NAME, lambda path: _write(path, seed))
        print(f"added {version}", flush=True)
        registry.alias(NAME, "champion", version)
        print(f"champion {version}", flush=True)
    except CannotExport as error:
        print(f"refused: {error}")


def look(folder):
    """Print the versions of a registry, and its champion."""
    from ddl_magics import Registry

    registry = Registry(folder)
    print(json.dumps([registry.versions(NAME), registry.aliases(NAME)]))


def _write(folder, seed):
    draw = random.Random(seed)
    (folder / "more").mkdir()
    for name in ("model.bin", "more/weights.bin", "ddl_magics.json"):
        content = draw.randbytes(draw.randint(1, 100_000))
        (folder / name).write_bytes(len(content).to_bytes(8, "big") + content)


def _is_whole(version):
    """Whether a version has all its files with all their bytes."""
    for name in ("model.bin", "more/weights.bin", "ddl_magics.json"):
        path = version / name
        content = path.read_bytes() if path.is_file() else b""
        if len(content) < 9 or int.from_bytes(content[:8], "big") != len(content) - 8:
            return False
    return True


def _exports(act):
    """(the model's file, the folder of exports)."""
    file = act.work / "model.keras"
    file.write_bytes(act.random.randbytes(act.random.randint(1, 300_000)))
    (act.work / "exports").mkdir(exist_ok=True)
    return file, act.work / "exports"


def _export_is_whole(folder, file):
    description = folder / "ddl_magics.json"
    same = (folder / "model.keras").is_file() and (folder / "model.keras").read_bytes() == file.read_bytes()
    return same and description.is_file() and json.loads(description.read_text() or "{}").get("name") == NAME


def broken_export(cut):
    def begin(act):
        file, folder = _exports(act)
        changes = act.changes(export, str(file), str(folder / "before"))
        lines = act.broken_off(export, str(file), str(folder / "model"), changes=changes, cut=cut)
        there = (folder / "model").exists()
        check(not there or _export_is_whole(folder / "model", file), "an export has its name and is not whole")
        check(there or "done" not in lines, "an export was told as done, and is not there")
        age(folder)
        check(act.done(export, str(file), str(folder / ("again" if there else "model"))) == ["done"], "refused again")
        _nothing_beside(folder, {"before", "model", *(["again"] if there else [])})
        return ""

    return begin


def full_export(act):
    file, _ = _exports(act)
    disk = act.disk("small", act.random.randint(1, max(1, file.stat().st_size // 4096)) * 4096)
    (line,) = act.done(export, str(file), str(disk / "model"))
    if line == "done":
        check(_export_is_whole(disk / "model", file), "an export is told as done, and is not whole")
        return ""
    check(line.startswith("refused: ") and "No space left on device" in line, f"it says {line}")
    _nothing_beside(disk, set())
    return line


def _nothing_beside(folder, names):
    found = set(os.listdir(folder))
    check(found == names, f"{folder.name} has {sorted(found)} instead of {sorted(names)}")


def _registry(act):
    folder = act.work / "registry"
    for number in range(EARLIER):
        act.done(add, str(folder), number)
    return folder


def _looked(act, folder):
    ((line),) = act.done(look, str(folder))
    return json.loads(line)


def broken_registry(cut):
    def begin(act):
        folder, seed = _registry(act), act.random.randrange(1000)
        changes = act.changes(add, str(act.work / "other"), seed)
        lines = act.broken_off(add, str(folder), seed, changes=changes, cut=cut)
        versions, aliases = _looked(act, folder)
        told = [int(line.split()[1]) for line in lines if line.startswith("added")]
        check(set(range(1, EARLIER + 1)) | set(told) <= set(versions), f"of {told} told there are {versions}")
        for version in versions:
            check(_is_whole(folder / NAME / str(version)), f"version {version} is not whole")
        champion = aliases.get("champion")
        check(champion in versions, f"the champion is {champion}, and there are {versions}")
        moved = [int(line.split()[1]) for line in lines if line.startswith("champion")]
        check(champion == (moved or [champion])[0], f"the champion was moved to {moved}, and is {champion}")
        age(folder)
        added = act.done(add, str(folder), seed + 1)
        check(int(added[0].split()[1]) > max(versions), f"the next version is {added}")
        check(_looked(act, folder)[1]["champion"] == int(added[1].split()[1]), "the champion does not move any more")
        parts = [path.name for path in folder.rglob(".*.part")]
        check(not parts, f"{parts} are left")
        return ""

    return begin


def full_registry(act):
    disk = act.disk("small", act.random.randint(1, 60) * 4096)
    lines = act.done(add, str(disk / "registry"), act.random.randrange(1000))
    if any(line.startswith("added") for line in lines):
        check(_is_whole(disk / "registry" / NAME / "1"), "a version was told, and is not whole")
    refused = [line for line in lines if line.startswith("refused")]
    check(len(refused) == 1 or len(lines) == 2, f"it says {lines}")
    check(not refused or "No space left on device" in refused[0], f"it says {refused}")
    parts = [path.name for path in disk.rglob(".*.part")]
    check(not parts, f"{parts} are left")
    return "".join(refused)


ROOMS = {
    "export: SIGKILL": Room(broken_export(cut=False)),
    "export: power cut": Room(broken_export(cut=True)),
    "export: disk full": Room(full_export),
    "registry: SIGKILL": Room(broken_registry(cut=False)),
    "registry: power cut": Room(broken_registry(cut=True)),
    "registry: disk full": Room(full_registry),
}
