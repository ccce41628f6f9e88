"""Fixtures of the tests that talk to a Livy; conftest.py imports them."""

import pytest
from livy import rig
from livy.faults import faults
from livy.gateway import gateway
from support import starts


@pytest.fixture(scope="session")
def livy_server(tmp_path_factory):
    """A Livy with two executors a session, for all tests. Sessions are a test's own to delete."""
    server = rig.start(tmp_path_factory.mktemp("livy"), environment={"PYTHONPATH": starts.STARTUP})
    yield server
    assert server.stop() == [], "had to be killed"


@pytest.fixture(scope="session")
def livy_gateway(livy_server):
    """HDInsight's gateway in front of `livy_server`: url, user, password, ca."""
    front = gateway(livy_server)
    yield front
    front.stop()


@pytest.fixture
def livy_faults(livy_server):
    """A fault proxy in front of `livy_server`, without faults at first."""
    with faults(livy_server) as proxy:
        yield proxy


def mark_livy_tests(items):
    """What uses a Livy is marked so, and as using Spark, that `make test-quick` can leave it out."""
    for item in items:
        if any(name.startswith("livy_") for name in getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.livy)
            item.add_marker(pytest.mark.spark)
