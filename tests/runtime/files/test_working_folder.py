"""The folder in which a rank runs a cell, in a process of its own, as it hooks the process's functions."""

import json
import shutil
import subprocess
import sys
import zipfile

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
print(json.dumps({"written": {each.name: each.size for each in folder.written()}, "outside": folder.outside()}))
"""


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


@pytest.mark.parametrize("is_chief", [True, False])
def test_what_a_rank_writes_stays_in_its_scratch_folder(folders, is_chief):
    before = contents(folders)
    assert run(folders, CELL, is_chief) == {"written": WRITTEN, "outside": []}
    assert contents(folders) == before


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


def test_the_chief_writes_elsewhere_as_a_plain_cell_does(folders):
    before = contents(folders)
    assert run(folders, ELSEWHERE, is_chief=True) == {"written": {}, "outside": []}
    new = {"elsewhere/new.txt": "new", "elsewhere/e.txt": "e+", "project/data/up.txt": "up"}
    assert contents(folders) == {**before, **new}


def test_other_ranks_write_nothing_elsewhere(folders):
    before = contents(folders)
    ended = run(folders, ELSEWHERE, is_chief=False)
    assert ended["written"] == {} and len(ended["outside"]) == 3
    assert contents(folders) == before


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
    rank = RANK.replace(
        "folder.enter()", "from ddl_magics.runtime.files import mirror; mirror.MAX_ENTRIES = 0\nfolder.enter()"
    )
    for each in (code, writes):
        run(folders, each, False, rank=rank)
        assert contents(folders) == before
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
    assert run(folders, "import helpers_of_the_cell as h; assert h.x == 3", True) == {"written": {}, "outside": []}


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
