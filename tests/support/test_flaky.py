"""--repeat-failed, by sessions of pytest over small suites."""

import json
import os
import signal
import subprocess
import sys

import pytest

from support import paths
from support.until import until

CONFTEST = """
from support import flaky
pytest_addoption, pytest_configure = flaky.add_option, flaky.configure
"""
HEAD = """
import os, pathlib, pytest
def fail_at_first(name):
    file = pathlib.Path(__file__).with_name(name + ".failed")
    if not file.exists():
        file.touch()
        raise ValueError("at first")
"""


class Suite:
    """A suite of files of tests in a folder, and sessions of pytest with it."""

    def __init__(self, folder):
        self._folder = folder
        (folder / "conftest.py").write_text(CONFTEST)
        (folder / "pytest.ini").write_text("[pytest]\n")

    def add(self, source, name="test_small.py"):
        (self._folder / name).write_text(HEAD + source)

    def start(self, *options):
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--repeat-failed=5", *options]
        return subprocess.Popen(
            command,
            cwd=self._folder,
            env=paths.environment(PYTEST_DISABLE_PLUGIN_AUTOLOAD="1"),  # which import for a second
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *options):
        """(its exit status, the lines that it has printed)."""
        session = self.start(*options)
        printed = session.communicate(timeout=100)[0]
        return session.returncode, printed.splitlines()

    @property
    def flaky(self):
        file = self._folder / "build" / "flaky.json"
        return json.loads(file.read_text()) if file.exists() else {}


@pytest.fixture
def suite(tmp_path):
    return Suite(tmp_path)


def flaky_tests(number):
    return "".join(f"def test_{i}():\n    fail_at_first('{i}')\n" for i in range(number))


def repeated(lines):
    return [line.partition(": ")[2] for line in lines if line.startswith("running once more: ")]


@pytest.mark.parametrize("options", [(), ("-p", "xdist", "-n", "2")], ids=["one process", "two processes"])
def test_five_that_pass_then_do_not_fail_the_session_and_are_named_once_more(suite, options):
    suite.add(flaky_tests(5) + "def test_sound():\n    pass\n")
    status, lines = suite.run(*options)
    names = [f"test_small.py::test_{i}" for i in range(5)]
    assert status == 0
    assert "6 passed, 5 flaky in" in lines[-1] and "failed" not in lines[-1] and "error" not in lines[-1]
    assert sorted(lines[-6:-1]) == [f"flaky: {name}" for name in names]
    assert suite.flaky == dict.fromkeys(names, 1)
    assert sum("ValueError: at first" in line for line in lines) >= 5  # their tracebacks


def test_nothing_is_repeated_after_a_sixth(suite):
    suite.add(flaky_tests(6))
    status, lines = suite.run()
    assert status == 1 and "6 failed in" in lines[-1]
    assert not repeated(lines) and suite.flaky == {}
    assert "no failed test is repeated: 6 have failed, more than 5" in lines


def test_what_fails_twice_or_skips_then_fails_the_session(suite):
    suite.add(
        flaky_tests(1)
        + """
def test_broken():
    assert 'this is' == 'broken'
def test_skips():
    fail_at_first('skips')
    pytest.skip('then')
"""
    )
    status, lines = suite.run()
    assert status == 1 and "2 failed, 1 passed, 1 flaky in" in lines[-1]
    assert suite.flaky == {"test_small.py::test_0": 1}
    assert lines[-2] == "flaky: test_small.py::test_0"
    for name in ("test_broken", "test_skips"):
        assert any(line.startswith(f"FAILED test_small.py::{name}") for line in lines)


def test_one_that_was_flaky_before_is_not_repeated(suite, tmp_path):
    suite.add(flaky_tests(1))
    assert suite.run()[0] == 0
    (tmp_path / "0.failed").unlink()
    status, lines = suite.run()
    assert status == 1 and "1 failed in" in lines[-1] and not repeated(lines)
    assert any("test_small.py::test_0 was flaky before" in line for line in lines)
    assert suite.flaky == {"test_small.py::test_0": 2}


def test_set_up_and_tear_down_count(suite):
    suite.add("""
@pytest.fixture
def set_up():
    fail_at_first("set up")
@pytest.fixture
def torn_down(request):
    yield
    fail_at_first("tear-down of " + request.node.name)
def test_set_up(set_up):
    pass
def test_torn_down(torn_down):
    pass
def test_call_and_tear_down(torn_down):
    fail_at_first("call")
""")
    status, lines = suite.run()
    assert status == 0 and "3 passed, 3 flaky in" in lines[-1]
    assert len(suite.flaky) == 3


@pytest.mark.parametrize("options", [(), ("-p", "xdist", "-n", "2")], ids=["one process", "two processes"])
def test_a_file_that_cannot_be_collected_fails_the_session(suite, options):
    suite.add(flaky_tests(1))
    suite.add("import nowhere_to_be_found\n", "test_other.py")
    status, lines = suite.run(*options)
    assert status != 0 and "1 error" in lines[-1] and not repeated(lines) and suite.flaky == {}
    status, lines = suite.run("--continue-on-collection-errors", *options)
    assert status != 0 and "1 error" in lines[-1] and not repeated(lines) and suite.flaky == {}


def test_a_process_of_several_that_dies_once_or_always(suite):
    """What it was to run afterwards is run by another one."""
    suite.add("""
def test_dies():
    file = pathlib.Path(__file__).with_name("died")
    if not file.exists():
        file.touch()
        os._exit(1)
def test_always_dies():
    os._exit(1)
def test_afterwards():
    pass
""")
    status, lines = suite.run("-p", "xdist", "-n", "1")
    assert status == 1 and "1 failed, 2 passed, 1 flaky in" in lines[-1]
    assert suite.flaky == {"test_small.py::test_dies": 1}


def test_an_interrupted_session_repeats_nothing(suite, tmp_path):
    suite.add(
        flaky_tests(1)
        + """
def test_waits():
    pathlib.Path(__file__).with_name("waits").touch()
    import time; time.sleep(60)
"""
    )
    session = suite.start()
    until((tmp_path / "waits").exists, 30)
    os.kill(session.pid, signal.SIGINT)
    lines = session.communicate(timeout=30)[0].splitlines()
    assert session.returncode == 2 and "1 failed" in lines[-1] and not repeated(lines) and suite.flaky == {}
