"""`%ddl check` on a Livy: each line says how it is, and what to do where it is wrong."""

import contextlib
import json
import sys
import time

import pytest
from support.fake_livy import FakeLivy, driver

from ddl_magics.clusters import livy_check
from ddl_magics.clusters.livy import LivyCluster
from ddl_magics.clusters.livy_http import Connection, LivyHttp
from ddl_magics.clusters.livy_session import LivySession
from ddl_magics.commands import check
from ddl_magics.commands.kernel import Kernel
from ddl_magics.session.session import Session

DETAILS = {
    "spark": "3.5.9",
    "master": "yarn",
    "slots": 4,
    "ready": 4,
    "free": 4,
    "dynamic_allocation": False,
    "executor_gpus": 0,
    "task_gpus": 0.0,
}
THERE = {"python": "3.10.4", "tensorflow": "2.17.1", "keras": "3.5.0"}
LINES = ["ddl_magics", "cluster", "Livy", "CSRF", "session", "idle timeout", "Spark", "executors", "allocation", "GPUs"]
LINES += ["encryption", "files", "side channel", "a worker", "Python", "TensorFlow", "clock", "runs"]
#: What an executor's Python says, and the driver of that.
OF_ARCHIVE = {
    "version": "3.10.4",
    "path": "/yarn/container_1/training/bin/python",
    "folder": "/yarn/container_1",
    "environment": "a conda environment",
    "packages": {"tensorflow": "2.17.1", "keras": "3.5.0", "numpy": "1.26.4", "pyarrow": None},
    "archive": "training.tar.gz",
    "setting": "spark.yarn.dist.archives",
}
OF_HOST = {
    **OF_ARCHIVE,
    "path": "/usr/bin/python3",
    "environment": "",
    "packages": {"tensorflow": None, "keras": None, "numpy": "1.26.4", "pyarrow": "21.0.0"},
    "archive": None,
    "setting": None,
}


FUNCTIONS = """
DETAILS, PYTHON = {}, {}
def busy(argument): return json.dumps({'busy': 0})
def info(argument): return json.dumps(DETAILS)
def python_of_worker(argument): return json.dumps(PYTHON)
"""


class Checked:
    """A fake Livy whose session's driver has no Spark but says that it has; `lines()` is the report."""

    def __init__(self, runtime, livy):
        self.runtime, self.livy = runtime, livy
        self.connection, self.session = {}, {}
        self.details, self.there, self.ahead = dict(DETAILS), dict(THERE), 0.0
        self.python = dict(OF_ARCHIVE)

    def lines(self):
        http = LivyHttp(Connection(self.livy.url, **self.connection))
        cluster = LivyCluster(LivySession(http, 7, **self.session), self.runtime)
        cluster.channel.open(5)
        there = sys.modules[self.runtime.module + ".driver.remote"]
        there.DETAILS.update(self.details)
        there.PYTHON.clear()
        there.PYTHON.update(self.python)
        cluster.channel.environment = lambda: {**self.there, "time": time.time() + self.ahead}
        return dict(line.split("  ", 1) for line in check.check(Kernel(Session(cluster))).splitlines())

    def line(self, what):
        return self.lines()[what].strip()


@pytest.fixture
def checked(tmp_path):
    """`checked(side_channel, csrf)`: a Checked with such a FakeLivy."""
    with contextlib.ExitStack() as stack:
        runtime = stack.enter_context(driver(tmp_path, FUNCTIONS))
        yield lambda **how: Checked(runtime, stack.enter_context(FakeLivy(**how)))


def test_every_line_is_there_and_all_is_well(checked):
    report = checked().lines()
    assert [what.strip() for what in report] == LINES
    said = {what.strip(): how.strip() for what, how in report.items()}
    assert said["Livy"].endswith(", without credentials")
    assert said["CSRF"] == "X-Requested-By is sent, and not required"
    assert said["Spark"] == "3.5.9 at yarn, 4 slots" and said["executors"] == "4 slots ready, 4 of 4 free"
    assert said["allocation"] == "fixed, as --strategy allreduce requires"
    assert said["encryption"].startswith("none, neither of Spark's own connections nor of a run's: --encrypt yes")
    assert said["GPUs"] == "none managed by Spark; a worker uses the GPUs that it finds on its host"
    assert said["side channel"].startswith("answers in ") and said["clock"] == "in sync"
    assert said["Python"].startswith("3.10.4 on the cluster, 3.")
    assert said["TensorFlow"] == "2.17.1, Keras 3.5.0 (the driver's)"


@pytest.mark.parametrize(
    ("details", "what", "says"),
    [
        ({"spark": "2.4.4"}, "Spark", "2.4.4 at yarn, 4 slots; Spark 3.0 or newer is needed"),
        ({"slots": 0, "ready": 0}, "executors", "none: ask for some with numExecutors in %%configure -f"),
        ({"ready": 1}, "executors", "1 slot ready, 4 of 4 free; the rest start with the first run"),
        (
            {"encrypted_by": ["spark.network.crypto.enabled"]},
            "encryption",
            "a run's connections are encrypted, as Spark encrypts (spark.network.crypto.enabled); not with --",
        ),
        ({"pyarrow": "21.0.0"}, "files", "workers read Parquet (pyarrow 21.0.0) and TFRecord themselves where they"),
        ({"pyarrow": None}, "files", "Parquet, ORC and CSV go through Spark, and TFRecord that is not on local"),
        (
            {"dynamic_allocation": True},
            "allocation",
            "dynamic, with which --strategy allreduce needs --workers MIN..M",
        ),
        ({"executor_gpus": 2}, "GPUs", "2 per executor, none per task: use --gpus N, or set spark.task.resource"),
        ({"executor_gpus": 2, "task_gpus": 0.5}, "GPUs", "2 per executor, 0.5 per task"),
    ],
)
def test_what_the_session_has(checked, details, what, says):
    one = checked()
    one.details.update(details)
    assert one.line(what).startswith(says)


@pytest.mark.parametrize(
    ("there", "what", "says"),
    [
        ({"python": "3.6.9"}, "Python", "the cluster's must be 3.8 or newer: set spark.pyspark.python"),
        ({"tensorflow": None}, "TensorFlow", "missing in the driver's Python: install it on all nodes"),
        ({"tensorflow": "2.12.0"}, "TensorFlow", "too old: 2.13 (Keras 2) to 2.21 (Keras 3) is supported"),
        ({"tensorflow": "2.22.0"}, "TensorFlow", "newer than the tested versions: 2.13 (Keras 2) to 2.21 (Keras 3)"),
        ({"tensorflow": "of unknown version"}, "TensorFlow", "of unknown version, Keras 3.5.0 (the driver's)"),
    ],
)
def test_what_its_python_has(checked, there, what, says):
    one = checked()
    one.there.update(there)
    assert says in one.line(what)


@pytest.mark.parametrize(
    ("python", "says"),
    [
        (
            OF_ARCHIVE,
            "Python 3.10.4 at ./training/bin/python, of the archive training.tar.gz (spark.yarn.dist.archives), "
            "TensorFlow 2.17.1, Keras 3.5.0, NumPy 1.26.4; lacks pyarrow: pack the packages into that archive",
        ),
        (
            OF_HOST,
            "Python 3.10.4 at /usr/bin/python3, of the executor's host or image (found by its PATH), NumPy 1.26.4, "
            "pyarrow 21.0.0; lacks TensorFlow and Keras: install the packages on all nodes, or bring an environment "
            "with spark.archives",
        ),
        (
            {**OF_HOST, "environment": "a virtualenv", "setting": "PYSPARK_PYTHON", "packages": {"keras": "3.5.0"}},
            "Python 3.10.4 at /usr/bin/python3, a virtualenv of the executor's host or image (named by "
            "PYSPARK_PYTHON), Keras 3.5.0",
        ),
        ({"unknown": "not asked: runs take all slots"}, "not asked: runs take all slots"),
    ],
)
def test_a_workers_python_its_origin_and_what_it_lacks(checked, python, says):
    one = checked()
    one.python = python
    assert one.line("a worker") == says


def test_both_ends_of_the_supported_range_are_well(checked):
    one = checked()
    for version in ("2.13.1", "2.21.0"):
        one.there["tensorflow"] = version
        assert one.line("TensorFlow") == f"{version}, Keras 3.5.0 (the driver's)"


def test_a_clock_that_is_wrong(checked):
    one = checked()
    one.ahead = 65.0
    assert one.line("clock") == "the cluster's differs by 65 s: synchronize it with NTP"


@pytest.mark.parametrize(
    ("about", "session", "says"),
    [
        ({"heartbeatTimeoutInSecond": 60}, {}, "idle; ends with its kernel, or 60 s after a crash (heartbeat)"),
        ({"heartbeatTimeoutInSecond": 0}, {}, "idle; outlives this kernel (no heartbeat)"),
        ({}, {"detached": True}, "idle; outlives this kernel (no heartbeat)"),
        ({}, {"ends_with_kernel": True}, "idle; ends with its kernel, or 60 s after a crash (heartbeat)"),
        ({}, {}, "idle; ends with its kernel, or about a minute after a crash (if sparkmagic made it): this"),
    ],
)
def test_when_the_session_ends(checked, about, session, says):
    one = checked()
    one.livy.about, one.session = about, session
    assert one.line("session").startswith(says)


@pytest.mark.parametrize(
    ("about", "says"),
    [
        ({}, "Livy's default (livy.server.session.timeout, 1 h unless set), which Livy does not report; a run that a"),
        ({"ttl": None, "idleTimeout": "30m"}, "30m without a request; a run that a notebook follows keeps it alive"),
        ({"ttl": "8h"}, "keeps it alive; it ends 8h after its start, also during a run: create a new one"),
    ],
)
def test_time_limits_are_told_as_far_as_livy_tells_them(checked, about, says):
    one = checked()
    one.livy.about = about
    assert says in one.line("idle timeout")


def test_the_header_that_csrf_protection_demands(checked):
    one = checked(csrf=True)
    assert one.line("CSRF").startswith("X-Requested-By is required and sent, but sparkmagic's own cells lack it: add ")
    one.connection = {"headers": {"x-requested-by": "me"}}
    assert one.line("CSRF") == "X-Requested-By is sent, and required"
    one.livy.faults["POST /sessions/7/connect"] = [(200, None), (503, b"")]
    one.livy.csrf = False
    assert one.line("CSRF") == "X-Requested-By is sent, and not required"
    assert one.line("CSRF") == "X-Requested-By is sent; whether Livy requires it could not be found out"


def test_without_a_side_channel_it_says_what_that_means(checked):
    says = "none (it refuses submit-job (404)): events arrive between cells, not while one is executed"
    assert checked(side_channel=False).line("side channel") == says


def test_credentials_in_clear_are_pointed_out():
    class Basic:
        pass

    class Http:
        url, authentication = "http://livy.example:8998", LivyHttp(Connection("http://x", auth=Basic())).authentication

        def get(self, path):
            return {"version": "0.9.0"}

    said = livy_check._livy(Http())
    assert said == (
        "0.9.0 at http://livy.example:8998, with basic credentials; not encrypted: use https:// on a network "
        "that you do not trust"
    )


def test_a_session_that_is_gone_ends_the_report(checked):
    one = checked()
    one.lines()
    one.livy.state = "gone"
    http = LivyHttp(Connection(one.livy.url))
    said = dict(LivyCluster(LivySession(http, 7), one.runtime).findings())
    assert list(said) == ["cluster", "Livy", "CSRF", "session"]
    assert said["session"].startswith("cannot be used: Livy session 7 at ") and json.dumps(said)
