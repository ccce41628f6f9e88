"""Where Spark encrypts and a run on several hosts does not, the run says so; %ddl check says what a run will do."""

from types import SimpleNamespace

import pytest

from ddl_magics.clusters.encryption import finding
from ddl_magics.runtime.driver import encryption
from ddl_magics.runtime.driver.job import Job

ON = {"spark.ssl.enabled": "TRUE", "spark.io.encryption.enabled": "true", "spark.network.crypto.enabled": "false"}


class Run:
    """As much of a `Job` as `note_hosts` uses."""

    def __init__(self, settings, encrypted=False):
        self.sc = SimpleNamespace(_conf=settings, master="yarn")
        self._encrypted, self._hosts_noted, self.notices = encrypted, False, []

    def _host(self):
        return "10.0.0.1"

    def _notice(self, level, message):
        self.notices.append((level, message))


def test_a_run_on_several_hosts_warns_once():
    run = Run(ON)
    for _ in range(2):
        Job.note_hosts(run, ["10.0.0.2", "10.0.0.2"])
    [(level, message)] = run.notices
    assert level == "warning"
    assert message.startswith("Spark encrypts (spark.ssl.enabled, spark.io.encryption.enabled), and this run's conn")
    assert message.endswith("cross the network between 2 hosts in clear text")


@pytest.mark.parametrize(
    ("settings", "encrypted", "hosts"),
    [({}, False, ["10.0.0.2"]), (ON, True, ["10.0.0.2"]), (ON, False, ["10.0.0.1"])],
    ids=["spark encrypts nothing", "the run encrypts", "one host"],
)
def test_otherwise_nothing_is_said(settings, encrypted, hosts):
    run = Run(settings, encrypted)
    Job.note_hosts(run, hosts)
    assert run.notices == []


def test_check_says_what_a_run_will_do():
    by_spark = encryption.settings(Run(ON).sc)
    said = finding({"master": "yarn", "encrypted_by": by_spark})
    assert said.startswith("a run's connections are encrypted, as Spark encrypts (spark.ssl.enabled, spark.io.encr")
    assert finding({"master": "yarn", "encrypted_by": []}).startswith("none, neither of Spark's own connections")
    assert finding({"master": "local[4]", "encrypted_by": by_spark}) == (
        "not needed: a run's connections stay on this machine"
    )
