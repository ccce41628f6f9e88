"""Where Spark encrypts and a run on several hosts does not, the run says so; %ddl check says what a run will do."""

from types import SimpleNamespace

import pytest

from ddl_magics.clusters.session_details import encryption as finding
from ddl_magics.runtime.driver import encryption
from ddl_magics.runtime.driver.driver_network import DriverNetwork
from ddl_magics.runtime.driver.journal import Journal
from ddl_magics.runtime.run_spec import RunSpec

ON = {"spark.ssl.enabled": "TRUE", "spark.io.encryption.enabled": "true", "spark.network.crypto.enabled": "false"}


def notices(settings, *reports, encrypted=False):
    """The notices of a run whose workers are on these hosts, reported one after the other."""
    sc = SimpleNamespace(_conf={**settings, "spark.driver.host": "10.0.0.1"}, master="yarn")
    journal = Journal("r")
    network = DriverNetwork(sc, RunSpec(), journal)
    network._encrypted = encrypted
    for hosts in reports:
        network.note_hosts(hosts)
    return [(event["level"], event["message"]) for event in journal.log.all_events()]


def test_a_run_on_several_hosts_warns_once():
    [(level, message)] = notices(ON, *[["10.0.0.2", "10.0.0.2"]] * 2)
    assert level == "warning"
    assert message.startswith("Spark encrypts (spark.ssl.enabled, spark.io.encryption.enabled), and this run's conn")
    assert message.endswith("cross the network between 2 hosts in clear text")


@pytest.mark.parametrize(
    ("settings", "encrypted", "hosts"),
    [({}, False, ["10.0.0.2"]), (ON, True, ["10.0.0.2"]), (ON, False, ["10.0.0.1"])],
    ids=["spark encrypts nothing", "the run encrypts", "one host"],
)
def test_otherwise_nothing_is_said(settings, encrypted, hosts):
    assert notices(settings, hosts, encrypted=encrypted) == []


def test_check_says_what_a_run_will_do():
    by_spark = encryption.settings(SimpleNamespace(_conf=ON))
    said = finding({"master": "yarn", "encrypted_by": by_spark})
    assert said.startswith("a run's connections are encrypted, as Spark encrypts (spark.ssl.enabled, spark.io.encr")
    assert finding({"master": "yarn", "encrypted_by": []}).startswith("none, neither of Spark's own connections")
    assert finding({"master": "local[4]", "encrypted_by": by_spark}) == (
        "not needed: a run's connections stay on this machine"
    )


@pytest.mark.parametrize("by_spark", [True, False])
def test_keys_that_spark_hands_out_in_the_clear_are_warned_of(monkeypatch, by_spark):
    monkeypatch.setattr(encryption, "certificate", lambda sc, spec: object())
    conf = {"spark.driver.host": "10.0.0.1", "spark.network.crypto.enabled": str(by_spark).lower()}
    journal = Journal("r")
    DriverNetwork(SimpleNamespace(_conf=conf, master="yarn"), RunSpec(), journal).new_credentials()
    said = [(event["level"], event["message"]) for event in journal.log.all_events()]
    assert said == ([] if by_spark else [("warning", encryption.KEYS_IN_THE_CLEAR)])
