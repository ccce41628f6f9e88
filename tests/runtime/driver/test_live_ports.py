"""Strangers at every listening port of a live run: they are refused, and the run continues."""

import importlib
import os
from pathlib import Path

import pytest
from support import attacks, launch, processes, trainings

CELL = trainings.source(epochs=100_000, pause=0.2)


def listening_ports(pids):
    """{port: pid} of the TCP ports on which these processes listen."""
    inodes = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":
                inodes[f"socket:[{fields[9]}]"] = int(fields[1].rpartition(":")[2], 16)
    found = {}
    for pid in pids:
        try:
            for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                port = inodes.get(os.readlink(descriptor))
                if port is not None:
                    found[port] = pid
        except FileNotFoundError:
            continue  # it has ended, or has just closed that file
    return found


@pytest.fixture
def taps(monkeypatch):
    """Relays before the ports of the driver and the parameter server, by port. They record handshakes."""
    taps = {}
    job = importlib.import_module(launch.load_driver().__package__ + ".job")

    def put_before(address):
        tap = attacks.Tap(tuple(address))
        taps[address[1]] = tap
        return tap.address

    class Listener(job.wire.Listener):
        def __init__(self, *args):
            super().__init__(*args)
            self.address = put_before(self.address)

    class Servers(job.ParameterServers):
        def __init__(self, *args):
            super().__init__(*args)
            self.addresses = [list(put_before(address)) for address in self.addresses]

    monkeypatch.setattr(job.wire, "Listener", Listener)
    monkeypatch.setattr(job, "ParameterServers", Servers)
    yield taps
    for tap in taps.values():
        tap.close()


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("strategy", ["ps", "allreduce"])
def test_attacks_on_every_port_of_a_run_are_refused_and_it_continues(spark_cluster, strategy, taps, tmp_path):
    spark = spark_cluster(2)
    before = listening_ports([os.getpid()])
    running = launch.start(spark, CELL, strategy=strategy)

    def steps():
        return sum(event["count"] for event in running.of_kind("steps"))

    running.until(lambda _: steps() > 0, seconds=120)
    ours = listening_ports([os.getpid(), *processes.our_processes()])
    relays = {tap.address[1] for tap in taps.values()}
    ports = set(ours) - set(before) - relays
    assert ports == set(taps), "each port is the driver's or the parameter server's; those of the ranks are closed"
    assert len(ports) == (2 if strategy == "ps" else 1)

    for port in ports:
        captured = max(taps[port].sent(), key=len)
        at_first = steps()
        outcomes = attacks.attack_all(("127.0.0.1", port), captured, canary=tmp_path / "canary")
        assert [outcome for outcome in outcomes if not outcome.refused] == []
        running.until(lambda _, at_first=at_first: steps() > at_first, seconds=20)
    assert not (tmp_path / "canary").exists()

    ended = running.stopped(15)
    assert ended.failure is None
    assert ended.of_kind("artifact")  # the model was kept
