"""The folder in which a rank runs a cell, in a process of its own, as it hooks the process's functions."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from ddl_magics.runtime.files.names import is_inside

RANK = """
import json, os, pathlib, shutil, sys
from ddl_magics.runtime.files.working_folder import WorkingFolder
scratch, notebook, is_chief = sys.argv[1], sys.argv[2] or None, sys.argv[3] == "True"
elsewhere = os.path.join(os.path.dirname(scratch), "elsewhere")
folder = WorkingFolder(scratch, notebook, is_chief)
folder.enter()
exec(sys.stdin.read())
print(json.dumps({"written": {each.name: each.size for each in folder.written()},
    "removed": folder.removed(), "outside": folder.outside()}))
"""


#: The same where the rank has namespaces of its own, as `executor.rank_main` makes them, and so an overlay.
COVERED = RANK.replace(
    "folder = ",
    """
from ddl_magics.runtime.files import namespaces
namespaces.separate()
folder = """,
).replace("folder.enter()", "assert folder.path == notebook, 'there is an overlay'\nfolder.enter()")
#: Of another user than root, who needs a user namespace for it.
OF_USER = COVERED.replace(
    "namespaces.separate()",
    """
import ctypes
os.setgid(65534), os.setgroups([]), os.setuid(65534)
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # as a process that was started as this user
namespaces.separate()
""",
)


def _allows_overlays():
    """Whether this host does: a container may forbid namespaces, or have its temporary folder on an overlay itself."""
    code = "import sys; from ddl_magics.runtime.files import namespaces as n; n.separate(); sys.exit(not n.own)"
    return subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


overlay = pytest.mark.skipif(not _allows_overlays(), reason="this host allows no overlay")
ways = pytest.mark.parametrize(
    "rank", [pytest.param(COVERED, id="overlay", marks=overlay), pytest.param(RANK, id="mirror")]
)


@pytest.fixture
def folders(tmp_path):
    for name in ("project/notebooks/sub", "project/notebooks/.hidden", "project/data", "elsewhere", "scratch"):
        (tmp_path / name).mkdir(parents=True)
    texts = {"notebooks/a.csv": "1,2\n", "notebooks/sub/b.txt": "b", "notebooks/.hidden/h": "h", "data/x.csv": "x"}
    for name, text in texts.items():
        (tmp_path / "project" / name).write_text(text)
    (tmp_path / "elsewhere" / "e.txt").write_text("e")
    return tmp_path


def contents(folders):
    return {
        str(path.relative_to(folders)): path.read_text()
        for path in folders.rglob("*")
        if path.is_file() and folders / "scratch" not in path.parents
    }


def run(folders, code, is_chief, notebook="project/notebooks", rank=RANK):
    given = str(folders / notebook) if notebook else ""
    command = [sys.executable, "-c", rank, str(folders / "scratch"), given, str(is_chief)]
    ended = subprocess.run(command, input=code, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


CELL = """
assert open("a.csv").read() == "1,2\\n" and open("../data/x.csv").read() == "x"
assert open(notebook + "/sub/b.txt").read() == "b"
open("new.txt", "w").write("new")
assert pathlib.Path(notebook, "new.txt").read_text() == "new", "relative and absolute are the same file"
with open("a.csv", "a") as file:
    file.write("3,4\\n")
assert open(notebook + "/a.csv").read() == "1,2\\n3,4\\n"
pathlib.Path(notebook, "sub", "c.txt").write_text("c")
os.makedirs(notebook + "/made/below")
open(notebook + "/made/below/y", "w").write("y")
open(".hidden/k", "w").write("k")
os.rename("sub/b.txt", "sub/renamed.txt")
shutil.copytree(notebook + "/sub", notebook + "/copied")
os.remove(notebook + "/made/below/y")
try:
    open(notebook + "/a.csv", "x")
except FileExistsError:
    pass
os.chdir("sub")
open("d.txt", "w").write("d")
os.chdir(notebook)
assert os.path.exists("sub/d.txt")
"""
WRITTEN = {
    ".hidden/k": 1,
    "a.csv": 8,
    "copied/c.txt": 1,
    "copied/renamed.txt": 1,
    "new.txt": 3,
    "sub/c.txt": 1,
    "sub/d.txt": 1,
    "sub/renamed.txt": 1,
}


@ways
@pytest.mark.parametrize("is_chief", [True, False])
def test_what_a_rank_writes_stays_in_its_scratch_folder(folders, is_chief, rank):
    before = contents(folders)
    expected = {"written": WRITTEN, "removed": ["sub/b.txt"], "outside": []}
    assert run(folders, CELL, is_chief, rank=rank) == expected
    assert contents(folders) == before


NATIVE = """
import sqlite3, subprocess
with sqlite3.connect("rows.db") as database:
    database.execute("insert into rows values (2)")
os.system("echo 3,4 >> a.csv; cp a.csv copied.csv; chmod 600 left.txt")
subprocess.run(["sh", "-c", "rm -rf big/*; echo w > sub/w"], check=True)
assert os.listdir("big") == []
shutil.rmtree("away")
os.mkdir("away")
open("away/1", "w").write("one")
shutil.move("data.txt", "moved.txt")
shutil.move("sub", "renamed")
open("opened.txt", "r+").close()
"""


@ways
def test_what_code_of_any_language_does_stays_with_the_rank(folders, rank):
    import sqlite3

    notebook = folders / "project/notebooks"
    for name in ("big", "away"):
        (notebook / name).mkdir()
    for number in range(400):
        (notebook / "big" / str(number)).write_text("x")
    for name in ("data.txt", "left.txt", "opened.txt", "away/1", "away/2"):
        (notebook / name).write_text("mine")
    with sqlite3.connect(notebook / "rows.db") as database:
        database.execute("create table rows (n)")
        database.execute("insert into rows values (1)")
    database.close()
    before = {path: path.read_bytes() for path in notebook.rglob("*") if path.is_file()}
    modes = {path: path.stat().st_mode for path in before}
    ended = run(folders, NATIVE, True, rank=rank)
    after = {path: path.read_bytes() for path in notebook.rglob("*") if path.is_file()}
    assert after == before and {path: path.stat().st_mode for path in after} == modes
    written = {"a.csv", "away/1", "copied.csv", "moved.txt", "renamed/b.txt", "renamed/w", "rows.db"}
    assert set(ended["written"]) == written and ended["written"]["a.csv"] == 8
    removed = [f"big/{number}" for number in range(400)]
    assert ended["removed"] == sorted([*removed, "away/2", "data.txt", "sub/"])


TAKES_OVER = """
best, paths = os.path.join(elsewhere, "e.txt"), folder.paths
with open(paths.apart(best), "w") as file:
    file.write("own")
os.utime(best, (1e9, 1e9))
assert open(paths.read_apart(best)).read() == "own" and open(best).read() == "e"
paths.is_chief = lambda: True
assert paths.read_apart(best) == best and open(best).read() == "own"
with open(paths.apart(best), "w") as file:
    file.write("newer")
os.utime(best, (3e9, 3e9))
assert paths.read_apart(best) == best and open(paths.read_apart(best)).read() == "newer"
"""


def test_who_becomes_the_chief_reads_what_it_has_written_apart(folders):
    """Until there is a newer one where the chief writes."""
    run(folders, TAKES_OVER, False)
    assert (folders / "elsewhere/e.txt").read_text() == "newer"


@overlay
@pytest.mark.parametrize("is_chief", [True, False])
def test_where_links_lead_the_chief_alone_writes(folders, is_chief):
    notebook, elsewhere = folders / "project/notebooks", folders / "elsewhere"
    (notebook / "linked").symlink_to(elsewhere)
    (notebook / "x.csv").symlink_to("../data/x.csv")
    code = "os.system('echo + >> linked/e.txt; rm -rf linked/n*; echo + >> x.csv; echo + > linked/new')"
    (elsewhere / "n").write_text("n")
    run(folders, code, is_chief, rank=COVERED)
    assert (elsewhere / "e.txt").read_text() == ("e+\n" if is_chief else "e")
    assert (folders / "project/data/x.csv").read_text() == ("x+\n" if is_chief else "x")
    assert {path.name for path in elsewhere.iterdir()} == {"e.txt", "new" if is_chief else "n"}


@overlay
def test_absolute_paths_are_kept_apart_for_code_of_any_language(folders):
    before = contents(folders)
    code = "os.system('echo w > ' + notebook + '/sub/w; rm ' + notebook + '/a.csv')"
    assert run(folders, code, True, rank=COVERED) == {"written": {"sub/w": 2}, "removed": ["a.csv"], "outside": []}
    assert contents(folders) == before


@overlay
@pytest.mark.skipif(os.geteuid() != 0, reason="it becomes another user")
def test_a_user_without_rights_has_an_overlay_too_and_no_rights_in_it():
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        folders = Path(name)
        for path in (folders / "notebook/sub", folders / "scratch"):
            path.mkdir(parents=True)
        (folders / "notebook/a").write_text("a")
        (folders / "notebook/forbidden").write_text("")
        (folders / "notebook/forbidden").chmod(0o400)
        for path in (folders, *folders.rglob("*")):
            os.chown(path, 65534, 65534)
        code = """
os.system("echo b >> a; rm -rf sub")
try:
    open("forbidden", "w")
    raise AssertionError("it can be written")
except PermissionError:
    pass
assert os.stat("a").st_uid == os.getuid() == 65534
"""
        ended = run(folders, code, True, notebook="notebook", rank=OF_USER)
        assert ended == {"written": {"a": 3}, "removed": ["sub/"], "outside": []}
        assert (folders / "notebook/a").read_text() == "a" and (folders / "notebook/sub").is_dir()


def test_what_is_too_large_to_be_copied_is_named(folders):
    large = RANK.replace(
        "folder.enter()", "from ddl_magics.runtime.files import mirror; mirror.MAX_COPIED_FILES = 7\nfolder.enter()"
    )
    pictures = folders / "project/notebooks/pictures"
    pictures.mkdir()
    for number in range(8):
        (pictures / str(number)).touch()
    rank = large.partition("exec(")[0] + "print(json.dumps(folder.links))"
    assert run(folders, "", True, rank=rank) == ["pictures/"]


@overlay
def test_a_folder_with_another_mounted_in_it_or_with_the_ranks_own_is_not_covered(folders):
    code = """
import os, sys
from ddl_magics.runtime.files import namespaces
from ddl_magics.runtime.files.overlay import Overlay
top = sys.argv[1]
namespaces.separate()
namespaces.mount(top + "/elsewhere", top + "/project/data", "", 4096)
assert Overlay.mount(top + "/project", top + "/scratch", True) is None
assert Overlay.mount(top, top + "/scratch", True) is None
os.symlink(top, top + "/elsewhere/link")
assert Overlay.mount(top + "/elsewhere", top + "/scratch", True) is None, "a link leads above it"
"""
    subprocess.run([sys.executable, "-c", code, str(folders)], check=True)


ELSEWHERE = """
os.chdir(elsewhere)
assert open("e.txt").read() == "e"
open("new.txt", "w").write("new")
with open("e.txt", "a") as file:
    file.write("+")
assert sorted(os.listdir(elsewhere)) == sorted(os.listdir(".")) == ["e.txt", "new.txt"]
os.chdir(notebook)
open("../data/up.txt", "w").write("up")
assert open("../data/up.txt").read() == "up"
"""


@overlay
def test_what_an_overlay_cannot_rename_is_moved(folders):
    code = """
os.rename("sub", "renamed")
pathlib.Path("a.csv").replace(elsewhere + "/a.csv")
os.replace(elsewhere + "/a.csv", notebook + "/back.csv")
for target in ("renamed", elsewhere):
    try:
        os.rename(".hidden/h" if target == elsewhere else ".hidden", target)
        raise AssertionError(target + " is replaced")
    except OSError:
        pass
assert not os.path.exists("sub") and not os.path.exists(elsewhere + "/a.csv") and os.listdir(elsewhere) == ["e.txt"]
"""
    expected = {"written": {"back.csv": 4, "renamed/b.txt": 1}, "removed": ["a.csv", "sub/"], "outside": []}
    assert run(folders, code, True, rank=COVERED) == expected


@ways
def test_the_chief_writes_elsewhere_as_a_plain_cell_does(folders, rank):
    before = contents(folders)
    assert run(folders, ELSEWHERE, is_chief=True, rank=rank) == {"written": {}, "removed": [], "outside": []}
    new = {"elsewhere/new.txt": "new", "elsewhere/e.txt": "e+", "project/data/up.txt": "up"}
    assert contents(folders) == {**before, **new}


@ways
def test_other_ranks_write_nothing_elsewhere(folders, rank):
    before = contents(folders)
    ended = run(folders, ELSEWHERE, is_chief=False, rank=rank)
    assert ended["written"] == {} and len(ended["outside"]) == 3
    assert contents(folders) == before


@ways
def test_a_rank_that_becomes_the_chief_writes_elsewhere_as_a_plain_cell_does(folders, rank):
    before = contents(folders)
    code = "folder.paths.is_chief = lambda: True\n" + ELSEWHERE
    assert run(folders, code, is_chief=False, rank=rank) == {"written": {}, "removed": [], "outside": []}
    new = {"elsewhere/new.txt": "new", "elsewhere/e.txt": "e+", "project/data/up.txt": "up"}
    assert contents(folders) == {**before, **new}


def test_more_folders_than_are_mirrored_at_once(folders):
    before = contents(folders)
    code = """
assert os.path.islink("sub") and open("sub/b.txt").read() == "b"
(top, folders, files), *below = os.walk(".")
assert sorted(folders) == [".hidden", "sub"] and files == ["a.csv"]
assert sorted(name for _, _, names in below for name in names) == ["b.txt", "h"], "no folder is left out"
assert sorted(os.listdir()) == [".hidden", "a.csv", "sub"] and len(list(pathlib.Path().rglob("*.txt"))) == 1
"""
    writes = """
open("sub/c.txt", "w").write("c")
open(notebook + "/sub/b.txt", "w").write("other")
assert not os.path.islink("sub")
"""
    times_and_modes = """
os.chmod("a.csv", 0o700)
os.utime("sub/b.txt", (1, 1))
assert os.stat("sub/b.txt").st_mtime == 1 and os.stat("a.csv").st_mode & 0o777 == 0o700
"""
    status = os.stat(folders / "project/notebooks/a.csv"), os.stat(folders / "project/notebooks/sub/b.txt")
    rank = RANK.replace(
        "folder.enter()",
        "from ddl_magics.runtime.files import mirror; mirror.MAX_ENTRIES = mirror.MAX_COPIED_FILES = 0\nfolder.enter()",
    )
    for each in (code, writes, times_and_modes):
        run(folders, each, False, rank=rank)
        assert contents(folders) == before
        after = os.stat(folders / "project/notebooks/a.csv"), os.stat(folders / "project/notebooks/sub/b.txt")
        assert [s.st_ctime_ns for s in after] == [s.st_ctime_ns for s in status]
        shutil.rmtree(folders / "scratch/root")


def test_a_subfolder_of_many_files_is_one_link_until_it_is_used(folders):
    pictures = folders / "project/notebooks/pictures"
    pictures.mkdir()
    for number in range(1_100):
        (pictures / str(number)).touch()
    before = contents(folders)
    code = """
assert os.path.islink("pictures") and not os.path.islink("sub")
open("pictures/mine", "w").write("mine")
assert len(os.listdir("pictures")) == 1_101
"""
    assert run(folders, code, True)["written"] == {"pictures/mine": 4}
    assert contents(folders) == before


def test_modules_beside_the_notebook_can_be_imported(folders):
    (folders / "project/notebooks/helpers_of_the_cell.py").write_text("x = 3")
    code = "import helpers_of_the_cell as h; assert h.x == 3"
    assert run(folders, code, True) == {"written": {}, "removed": [], "outside": []}


def test_files_that_were_sent(folders):
    with zipfile.ZipFile(folders / "scratch/files.zip", "w") as archive:
        archive.writestr("sub/b.txt", "b")
        archive.writestr("a.csv", "1,2")
    code = "assert open('sub/b.txt').read() == 'b'; open('a.csv', 'a').write('3'); open('out', 'w').write('o')"
    assert run(folders, code, True, notebook="")["written"] == {"a.csv": 4, "out": 1}


def test_a_sent_file_never_leaves_the_folder(folders):
    with zipfile.ZipFile(folders / "scratch/files.zip", "w") as archive:
        archive.writestr("../out", "b")
    with pytest.raises(AssertionError, match=r"'\.\./out' is no path in the notebook's folder"):
        run(folders, "", True, notebook="")


@pytest.mark.parametrize("name", ["a", "a/b.csv", "a b/..c"])
def test_names_inside(name):
    assert is_inside(name)


@pytest.mark.parametrize("name", ["", "/a", "../a", "a/../../b", "a//b", "a/..", "a\0b"])
def test_names_that_lead_out(name):
    assert not is_inside(name)
