"""`pytest --repeat-failed 5`: at most 5 failed tests run once more, each in a session of its own, after all others.

A test that passes then is flaky. It does not fail the session, and it does not hide: its first failure is printed, it
is counted in the closing line and named after the summary, and build/flaky.json counts its failures on this machine.
A test in that file is not repeated again: mend it, and take it out.

Nothing is repeated where more have failed, after an error of collection, or in an interrupted session.
"""

import copy
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

import pytest


def add_option(parser):
    parser.addoption(
        "--repeat-failed",
        type=int,
        default=0,
        metavar="N",
        help="run at most N failed tests once more; build/flaky.json counts those that pass then",
    )


def configure(config):
    """Registers the plugin where the option asks for it."""
    if config.option.repeat_failed and not hasattr(config, "workerinput"):  # of pytest -n
        config.pluginmanager.register(RepeatFailed(config))


class RepeatFailed:
    """A plugin of pytest; with `pytest -n`, of the process that starts the others."""

    def __init__(self, config):
        self._root, self._most = config.rootpath, config.option.repeat_failed
        self._file = config.rootpath / "build" / "flaky.json"
        self._failures = {}  # {test: its reports of a failure or an error}
        self._incomplete = False  # a file could not be collected
        self._flaky = []
        self._terminal = None

    def pytest_sessionstart(self, session):
        self._terminal = session.config.pluginmanager.getplugin("terminalreporter")

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self._failures.setdefault(report.nodeid, []).append(report)

    def pytest_collectreport(self, report):
        self._incomplete |= report.failed

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session):
        result = yield  # an interrupted session raises
        if self._failures and self._may_repeat():
            counts = self._counts()
            for test, reports in self._failures.items():
                if test in counts:
                    self._line(
                        f"{test} was flaky before, and is not repeated: mend it, then take it out of {self._file}"
                    )
                    counts[test] += 1
                elif self._passes(test):
                    self._flaky.append(test)
                    counts[test] = 1
                    session.testsfailed -= len(reports)
            self._store(counts)
            self._count_as_passed()
        return result

    def _may_repeat(self):
        if self._incomplete:
            self._line("no failed test is repeated: a file could not be collected")
        elif len(self._failures) > self._most:
            self._line(f"no failed test is repeated: {len(self._failures)} have failed, more than {self._most}")
        else:
            return True
        return False

    def _counts(self):
        """{flaky test: how often it failed} on this machine."""
        return json.loads(self._file.read_text()) if self._file.exists() else {}

    def _store(self, counts):
        if counts:
            self._file.parent.mkdir(exist_ok=True)
            self._file.write_text(json.dumps(counts, indent=1, sort_keys=True) + "\n")

    def _passes(self, test):
        """Whether it passes in a session of its own."""
        self._line(f"running once more: {test}")
        with tempfile.TemporaryDirectory() as folder:
            results = Path(folder) / "results.xml"
            options = ["-p", "no:cacheprovider", "--repeat-failed=0", f"--junitxml={results}"]
            command = [sys.executable, "-m", "pytest", *options, test]
            done = subprocess.run(command, cwd=self._root, capture_output=True, text=True)
            passed = done.returncode == 0 and _all_passed(results)
        if not passed:
            self._line(done.stdout + done.stderr)
        return passed

    def _line(self, text):
        self._terminal.ensure_newline()
        self._terminal.write_line(text)

    def _count_as_passed(self):
        stats = self._terminal.stats
        for category in ("failed", "error"):
            stats[category] = [report for report in stats.get(category, ()) if report.nodeid not in self._flaky]
        for test in self._flaky:
            report = copy.copy(self._failures[test][0])
            report.outcome = "passed"
            if test not in {each.nodeid for each in stats.get("passed", ())}:
                stats.setdefault("passed", []).append(report)
            stats.setdefault("flaky", []).append(report)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self):
        for test in self._flaky:
            self._terminal.section(f"{test} failed, and passed when it ran once more")
            for report in self._failures[test]:
                report.toterminal(self._terminal._tw)
        result = yield
        for test in self._flaky:
            self._terminal.write_line(f"flaky: {test}")
        return result


def _all_passed(results):
    """Whether JUnit's file tells of tests and none that failed or was skipped."""
    suites = ElementTree.parse(results).getroot().iter("testsuite")
    counts = [{name: int(suite.get(name)) for name in ("tests", "failures", "errors", "skipped")} for suite in suites]
    return all(suite.pop("tests") and not any(suite.values()) for suite in counts)
