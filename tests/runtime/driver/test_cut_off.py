"""A rank whose host is cut off has ended before its successor starts, and nothing of it is taken afterwards."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from chaos import hosts as chaos_hosts
from support import jobs, trainings
from support.paths import environment
from support.rings import CREDENTIALS
from support.until import until

from ddl_magics.runtime.cell import names
from ddl_magics.runtime.driver import attempt as attempts
from ddl_magics.runtime.provenance.packages import Distinct
from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.runtime.transport import link_watch, sockets, wire

#: In place of 20 and 30 s.
SUPERVISOR_SILENT_SECONDS, SILENT_SECONDS = 3.0, 8.0

CELL = trainings.source(epochs=1_000_000)
DRIVER = wire.Identity("driver", -1, 0)


class Hosts:
    """Takes the place of `RankJobs`: the first attempt runs in a namespace, the second here."""

    logs = None

    def __init__(self, prefixes):
        self._prefixes, self.processes = prefixes, []

    submitted = property(lambda self: len(self.processes))

    def submit(self, config, on_end, only=None, first=None):
        command = [*self._prefixes[config.attempt - 1], sys.executable, "-m", "support.supervisor_process"]
        pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
        process = subprocess.Popen(command, env=environment(), start_new_session=True, **pipes)
        self.processes.append(process)
        packed = names.pack(CELL, {}, {}).hex()
        about = {"rank": 0, "config": config.to_json(), "names": packed, "silent": SUPERVISOR_SILENT_SECONDS}
        process.stdin.write(json.dumps(about) + "\n")
        process.stdin.flush()

    def cancel(self):
        """The host cannot be reached."""

    join = cancel

    def end(self):
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            process.stdin.close()


class Run(jobs.Run):
    """got: (attempt, kind) of all that has come, in order."""

    def __init__(self, folder):
        super().__init__()
        self.attempt, self.got, self.pids, self._folder = None, [], [], folder
        self.log = SimpleNamespace(histories=dict, append=self._append)
        self.checkpoints = SimpleNamespace(files=list, keep=lambda file: self._take("checkpoint"))
        self.files = SimpleNamespace(keep=lambda file: self._take("file"), new_path=self._new_path)
        self.packages = Distinct({})

    def _new_path(self):
        return str(self._folder / f"file-{len(list(self._folder.iterdir()))}")

    def _append(self, event, number):
        self._take(event["kind"])
        if event["kind"] == "worker" and event["pid"] not in self.pids:
            self.pids.append(event["pid"])

    def _take(self, kind):
        self.got.append((self.attempt.number, kind))

    def admit(self, identity):
        return self.attempt.admit(identity)

    def accept(self, channel):
        self.attempt.accept(channel)

    def until(self, number, *kinds):
        until(lambda: {(number, kind) for kind in kinds} <= set(self.got), 60, lambda: self.got[-3:])


@pytest.fixture
def network(tmp_path):
    with chaos_hosts.Hosts(1, tmp_path / "hosts", "java") as network:
        yield network


@pytest.mark.slow
@pytest.mark.skipif(bool(chaos_hosts.obstacle()), reason=chaos_hosts.obstacle())
def test_a_rank_that_is_cut_off_ends_before_its_successor_and_writes_nothing_beside_it(network, monkeypatch, tmp_path):
    monkeypatch.setattr(link_watch, "SILENT_SECONDS", SILENT_SECONDS)
    for name, value in (("IDLE_SECONDS", 4), ("PROBE_SECONDS", 1), ("PROBES", 4)):
        monkeypatch.setattr(sockets, f"KEEPALIVE_{name}", value)
    hosts = Hosts([network.prefix(0), []])
    run = Run(tmp_path)
    listener = wire.Listener(network.driver_address, CREDENTIALS, DRIVER, run.admit, run.accept)
    address = (network.driver_address, listener.address[1])
    config = jobs.job(RunSpec(cell=CELL, strategy="single", seed=0, prewarm=False), CREDENTIALS, address)
    try:
        first = run.attempt = attempts.Attempt(run, 1, 2, "", hosts, config)
        first.start()
        run.until(1, "steps", "epoch", "checkpoint")
        network.cut(0)
        began = time.monotonic()
        result = first.wait()
        seconds = time.monotonic() - began
        assert "or cut off" in result.death and seconds < SILENT_SECONDS + 5
        first.clear(cancel=True)
        assert not os.path.exists(f"/proc/{run.pids[0]}"), "the rank trains on"
        assert hosts.processes[0].wait(5) == 0
        taken = len(run.got)
        network.mend(0)
        time.sleep(2)
        assert len(run.got) == taken

        second = run.attempt = attempts.Attempt(run, 2, 2, "", hosts, dataclasses.replace(config, attempt=2))
        second.start()
        run.until(2, "steps", "epoch", "checkpoint")
        assert len(run.pids) == 2 and os.path.exists(f"/proc/{run.pids[1]}")
        second.clear(cancel=False)
    finally:
        listener.close()
        hosts.end()
