"""A link that is cut while data are on their way is noticed; a live peer that does not read is left alone."""

import subprocess
import sys
import threading
import time

import pytest
from chaos import hosts
from support.paths import environment
from support.rings import CREDENTIALS
from support.until import until

from ddl_magics.runtime.transport import link_watch, wire

DRIVER, RANK = wire.Identity("driver", -1, 0), wire.Identity("rank", 0, 1)

#: Connects to the driver and does not read; it says so, and ends with its standard input.
SILENT_PEER = """
import sys
from support.rings import CREDENTIALS
from ddl_magics.runtime.transport import wire
rank, driver = wire.Identity("rank", 0, 1), wire.Identity("driver", -1, 0)
channel = wire.connect((sys.argv[1], int(sys.argv[2])), CREDENTIALS, rank, driver, 10)
print("connected", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def listen():
    """listen(host): the address of a listener, and a list that gets the channels of those that connect to it."""
    listeners = []

    def listen(host):
        channels = []
        listeners.append(wire.Listener(host, CREDENTIALS, DRIVER, lambda identity: None, channels.append))
        return listeners[-1].address, channels

    yield listen
    for listener in listeners:
        listener.close()


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(link_watch, "SILENT_SECONDS", 3.0)
    monkeypatch.setattr(link_watch, "TICK_SECONDS", 0.5)


def sending(channel):
    """A thread that sends without end, and the error that ended it."""
    errors = []

    def send():
        try:
            while True:
                channel.send(1, bytes(1 << 20))
        except wire.ConnectionLost as error:
            errors.append(str(error))

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    return thread, errors


@pytest.mark.skipif(bool(hosts.obstacle()), reason=hosts.obstacle())
def test_a_cut_link_is_noticed_while_data_are_on_their_way(listen, short, tmp_path):
    with hosts.Hosts(1, tmp_path / "hosts", "java") as network:
        address, channels = listen(network.driver_address)
        command = [*network.prefix(0), sys.executable, "-c", SILENT_PEER, address[0], str(address[1])]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, env=environment(), **pipes) as peer:
            assert peer.stdout.readline() == "connected\n"
            network.cut(0)
            began = time.monotonic()
            thread, errors = sending(channels[0])
            thread.join(15)
            seconds = time.monotonic() - began
            peer.kill()
    assert errors == ["rank 0: its host does not answer"] and seconds < 8


def test_a_peer_that_does_not_read_is_alive(listen, short):
    address, channels = listen("127.0.0.1")
    peer = wire.connect(address, CREDENTIALS, RANK, DRIVER, 5)
    until(lambda: channels, 5)
    thread, errors = sending(channels[0])
    thread.join(5)
    assert thread.is_alive() and not errors
    peer.close(0)
    thread.join(5)
    assert not thread.is_alive()
