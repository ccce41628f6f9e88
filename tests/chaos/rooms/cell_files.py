"""The cell's files: a rank whose code, of any language, writes, moves and deletes, while the user edits the folder."""

import ctypes
import json
import mmap
import os
import random
import shutil
import sqlite3
import subprocess
import time
from pathlib import Path

from chaos.room import Room, check

FOLDERS, FILES, MOST = ("", "sub", "sub/deep", "many"), 24, 12
RUN = "run_1"


def _existing(random_, folder="."):
    found = sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*") if path.is_file())
    return random_.choice(found) if found else None


def _new(random_):
    folder = random_.choice([name for name in FOLDERS if os.path.isdir(name or ".")])
    return os.path.join(folder, f"new{random_.randrange(8)}")


def _path(random_):
    """Of a file that is there, or of a new one."""
    return (_existing(random_) if random_.random() < 0.6 else None) or _new(random_)


def _shell(words):
    return lambda draw: subprocess.run(["sh", "-c", words, "sh", _path(draw), _new(draw)], stderr=subprocess.DEVNULL)


def _database(draw):
    path = _new(draw) + ".db"
    with sqlite3.connect(path) as database:
        database.execute("create table if not exists t(x)")
        database.execute("insert into t values (?)", (draw.random(),))
    database.close()


def _in_c(draw):
    path = _path(draw)
    library = ctypes.CDLL(None)
    library.fopen.restype = ctypes.c_void_p
    file = library.fopen(path.encode(), b"ab")
    if file:
        library.fputs(b"from C", ctypes.c_void_p(file))
        library.fclose(ctypes.c_void_p(file))


def _unlinked_in_c(draw):
    ctypes.CDLL(None).unlink(_path(draw).encode())


def _mapped(draw):
    path = _existing(draw)
    if path and os.path.getsize(path):
        with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
            memory[0:1] = b"M"


def _written(draw):
    with open(_path(draw), draw.choice("wa")) as file:
        file.write("cell " * draw.randrange(200))


def _removed_tree(draw):
    shutil.rmtree(draw.choice(FOLDERS[1:]), ignore_errors=True)


def _moved(draw):
    source = _existing(draw)
    if source:
        shutil.move(source, _new(draw))


def _replaced(draw):
    source = _existing(draw)
    if source:
        os.replace(source, _path(draw))


def _absolute(draw):
    """By its whole path, which is the notebook's."""
    path = os.path.join(NOTEBOOK, draw.choice(("a0", "whole", "sub/whole")))
    if os.path.isdir(os.path.dirname(path)):
        with open(path, "w") as file:
            file.write("by its whole path")


def _absolute_shell(draw):
    subprocess.run(["sh", "-c", 'rm -f "$1"; echo x > "$1.whole"', "sh", f"{NOTEBOOK}/{_path(draw)}"], check=False)


EVERYWHERE = [_database, _in_c, _unlinked_in_c, _mapped, _written, _removed_tree, _moved, _replaced, _absolute]
EVERYWHERE += [_shell(words) for words in ('echo x >> "$1"', 'rm -rf "$1" many', 'mv "$1" "$2"', 'cp -p "$1" "$2"')]
#: Of code that is not Python's, where the rank has an overlay.
IN_OVERLAY = [_absolute_shell]
NOTEBOOK = ""


def cell(scratch, notebook, seed, count, overlay):
    """A rank, which is the chief: so many actions. Prints the files to be brought to the notebook, as JSON."""
    global NOTEBOOK
    from ddl_magics.runtime.files import namespaces
    from ddl_magics.runtime.files.working_folder import WorkingFolder

    if overlay:
        namespaces.separate()
    NOTEBOOK = notebook
    folder = WorkingFolder(scratch, notebook, True)
    folder.enter()
    covered = folder.path == notebook
    print(json.dumps(covered), flush=True)
    draw = random.Random(seed)
    actions = EVERYWHERE + (IN_OVERLAY if covered else [])
    for _ in range(count):
        try:
            draw.choice(actions)(draw)
        except OSError:
            pass  # as of a file in the place of a folder
        time.sleep(0.02)
    os.makedirs(os.path.join(scratch, "arrived"), exist_ok=True)
    back = {}
    for number, file in enumerate(folder.written()):
        back[file.name] = os.path.join(scratch, "arrived", str(number))
        shutil.copyfile(file.path, back[file.name])
    print(json.dumps(back), flush=True)


def _contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def _fill(folder, draw):
    for name in FOLDERS:
        (folder / name).mkdir(exist_ok=True)
    for number in range(FILES):
        path = folder / draw.choice(FOLDERS) / f"a{number}"
        path.write_bytes(draw.randbytes(draw.randint(0, 2000)))
        os.utime(path, (1_700_000_000, 1_700_000_000))


def _edit(folder, elsewhere, draw, mine):
    """What the user does meanwhile; `mine` gets by path what is the user's now, which no run may replace, or None."""
    names = sorted(_contents(folder))
    name = draw.choice([*names, f"new{draw.randrange(8)}"])
    path = folder / name
    match draw.choice(("write", "move", "delete", "old times")):
        case "delete":
            path.unlink(missing_ok=True)
        case "write":
            path.write_bytes(draw.randbytes(20))
        case "old times":
            path.write_bytes(draw.randbytes(20))
            os.utime(path, (1_600_000_000, 1_600_000_000))
        case "move":
            source = elsewhere / str(draw.random())
            source.write_bytes(draw.randbytes(20))
            os.utime(source, (1_500_000_000, 1_500_000_000))
            source.replace(path)
    mine[name] = path.read_bytes() if path.exists() else None


def edited(act):
    from ddl_magics.runs import cell_files

    notebook, scratch, elsewhere = act.work / "notebook", act.base / "scratch", act.work / "elsewhere"
    for folder in (notebook, scratch, elsewhere):
        folder.mkdir()
    _fill(notebook, act.random)
    before = cell_files.FolderState.of(notebook)
    killed, count = act.random.random() < 0.3, act.random.randint(1, MOST)
    process = act.start(cell, str(scratch), str(notebook), act.random.randrange(1 << 30), count, act.kind == "overlay")
    first = process.stdout.readline()
    check(first, f"the rank has not begun: {process.stderr.read()[-300:] if not first else ''}")
    act.about = f"{act.kind if json.loads(first) else 'mirror'}, {count} actions" + (", killed" if killed else "")
    mine: dict = {}
    expected = _contents(notebook)
    for _ in range(act.random.randint(0, 4)):
        _edit(notebook, elsewhere, act.random, mine)
        time.sleep(0.02)
    expected = {name: content for name, content in {**expected, **mine}.items() if content is not None}
    if killed:
        time.sleep(act.random.random() * 0.2)
        process.kill()
    out, errors = process.communicate(timeout=60)
    check(killed or process.returncode == 0, f"the rank has ended with {process.returncode}: {errors[-300:]}")
    found = _contents(notebook)
    others = sorted(name for name in expected.keys() | found.keys() if found.get(name) != expected.get(name))
    check(not others, f"{others} of the notebook's folder are not what the user has made of them")
    if not killed:
        _bring_back(notebook, json.loads(out.splitlines()[-1]), before)
        after = _contents(notebook)
        replaced = [name for name, content in mine.items() if content is not None and after.get(name) != content]
        check(not replaced, f"{replaced}, which the user has made meanwhile, are replaced")
    return ""


def _bring_back(notebook, arrived, before):
    """Place the files of the rank, as the end of a run does. arrived: name -> where it has come to."""
    from ddl_magics.runs import cell_files

    for name, source in arrived.items():
        try:
            path = cell_files.target(str(notebook), name)
            copy = Path(shutil.copyfile(source, path.with_name(".ddl-arrived")))
            placed = cell_files.move_into_place(copy, path, RUN, before)
        except (cell_files.CannotPlace, OSError) as error:
            check(str(error), f"{name} is not placed, without a word")
        else:
            check(placed.read_bytes() == Path(source).read_bytes(), f"{name} has come back otherwise")


ROOMS = {"cell's files: native writers, deletions, moves": Room(edited, ("overlay", "mirror"))}
