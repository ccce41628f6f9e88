"""scripts/setup on machines that lack something: one line that says what, and no traceback."""

import os
import shutil
import subprocess

import pytest
from support.paths import ROOT


class Machine:
    """A PATH with nothing but the shell, a user who is not root, and what a test puts there."""

    def __init__(self, folder):
        self.bin = folder / "bin"
        self.bin.mkdir()
        for tool in ("bash", "env", "dirname", "sort", "tr"):
            (self.bin / tool).symlink_to(shutil.which(tool))
        self.has("id", "echo 1000")
        self.clone = folder / "clone"
        (self.clone / "scripts").mkdir(parents=True)
        shutil.copy(ROOT / "scripts" / "setup", self.clone / "scripts")

    def has(self, name, script):
        program = self.bin / name
        program.write_text(f"#!{shutil.which('bash')}\n{script}\n")
        program.chmod(0o755)

    def setup(self, part):
        environment = {"PATH": str(self.bin), "HOME": os.environ.get("HOME", "/")}
        return subprocess.run(
            [self.clone / "scripts" / "setup", part], env=environment, capture_output=True, text=True, timeout=30
        )


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


NO_PYTHON = "no Python of 3.10 to 3.13 found: install python3 and python3-venv, then repeat"
NO_VENV = "Python's venv module is missing: install python3-venv as root, then repeat"
NO_CHROMIUM = "the browser tests need chromium: install it as root, or run make test-quick, which does not"


@pytest.mark.parametrize(
    ("part", "python", "says"),
    [
        ("python", None, NO_PYTHON),
        ("python", "exit 1", NO_PYTHON),  # it is too old
        ("python", 'case "$2" in *ensurepip*) exit 1;; esac', NO_VENV),
        ("browser", None, NO_CHROMIUM),
        ("kitchen", None, "usage: scripts/setup python|node|browser"),
    ],
)
def test_what_is_missing_is_said_in_a_line(machine, part, python, says):
    if python:
        machine.has("python3", python)
    done = machine.setup(part)
    assert (done.returncode, done.stderr) == (1, f"setup: {says}\n")


def test_a_playwright_that_lacks_its_library(machine):
    machine.has("chromium", "exit 0")
    (machine.clone / ".venv" / "bin").mkdir(parents=True)
    (machine.clone / ".venv" / "bin" / "playwright").symlink_to(shutil.which("false"))
    done = machine.setup("browser")
    assert done.returncode == 1 and "the browser tests need libatomic1" in done.stderr


def test_a_browser_is_enough(machine):
    machine.has("chromium", "exit 0")
    assert machine.setup("browser").returncode == 0


def test_a_node_that_is_new_enough_is_left_as_it_is(machine):
    machine.has("node", "echo v20.20.2")
    machine.has("npm", "exit 0")
    done = machine.setup("node")
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("version", ["v18.20.4", "v9.9.9", "v20.9.0"])
def test_a_node_that_is_too_old_is_not_used(machine, version):
    machine.has("node", f"echo {version}")
    machine.has("npm", "exit 0")
    (machine.clone / ".venv" / "bin").mkdir(parents=True)
    assert "putting one into .venv" in machine.setup("node").stdout
