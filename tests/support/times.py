"""What each test of a session takes, for `make test-times`."""

import json

from support.paths import ROOT

#: {test: {"setup": seconds, "call": seconds, "teardown": seconds}} of the last session.
FILE = ROOT / "build" / "test-times.json"


class Times:
    """A plugin of pytest; with `pytest -n`, of the process that starts the others."""

    def __init__(self):
        self._seconds = {}

    def pytest_runtest_logreport(self, report):
        self._seconds.setdefault(report.nodeid, {})[report.when] = round(report.duration, 3)

    def pytest_sessionfinish(self):
        if self._seconds:
            FILE.parent.mkdir(exist_ok=True)
            FILE.write_text(json.dumps(self._seconds, indent=0))
