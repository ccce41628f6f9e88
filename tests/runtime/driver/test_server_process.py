"""The processes of parameter servers: what they print reaches the run, and a death says its reason."""

import secrets

import pytest
from support.until import until

from ddl_magics.runtime.driver.server_process import ParameterServers
from ddl_magics.runtime.transport import wire


def servers(rule, shown):
    credentials = wire.Credentials("r", secrets.token_bytes(32))
    return ParameterServers(credentials, 1, rule, 1, "127.0.0.1", "127.0.0.1", shown.append, shown.append)


def test_a_server_that_cannot_start_says_why():
    shown = []
    with pytest.raises(RuntimeError, match=r"\(process \d+\) ended with status 1: \w+.*nonsense"):
        servers("nonsense", shown)
    assert "Traceback" in "".join(shown)


def test_a_server_that_can_prints_nothing():
    shown = []
    started = servers("adag", shown)
    assert started.addresses[0][1] > 0
    started.close()
    assert shown == [] and started.death is None


def test_the_death_of_a_server_is_said_at_once_and_kept():
    shown = []
    started = servers("adag", shown)
    (process,) = started._processes
    process._process.kill()
    until(lambda: shown)
    message = f"the parameter server (process {process._process.pid}) ended with status -9"
    assert shown == [message] and started.death == message
    started.close()
