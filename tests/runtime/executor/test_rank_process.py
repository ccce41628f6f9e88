"""A rank's process group, when its supervisor is killed without warning."""

import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest
from support.paths import ROOT
from support.processes import has_ended
from support.until import until

from ddl_magics.runtime.executor.supervisor import _Supervisor

#: Stands for a supervisor: starts a group of two processes, and prints the number of the second.
_SUPERVISOR = """
import subprocess, time
from ddl_magics.runtime.executor import rank_process

command = ["/bin/sh", "-c", "sleep 300 & echo $!; wait"]
rank = subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE)
guard = rank_process.Guard(rank.pid)
child = rank.stdout.readline().decode().strip()
if {ends}:
    guard.dismiss()
print(child, flush=True)
time.sleep(300)
"""


def supervisor(ends):
    environment = dict(os.environ, PYTHONPATH=str(ROOT))
    command = [sys.executable, "-c", _SUPERVISOR.format(ends=ends)]
    started = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)
    child = int(started.stdout.readline())
    started.stdout.close()
    return started, child


def test_what_a_cell_has_started_ends_with_a_supervisor_that_is_killed():
    started, child = supervisor(ends=False)
    assert not has_ended(child)
    started.kill()
    started.wait()
    until(lambda: has_ended(child), 10)


def test_a_guard_that_was_ended_kills_nobody():
    started, child = supervisor(ends=True)
    started.kill()
    started.wait()
    assert not has_ended(child)
    os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize(("status", "how"), [(-9, "SIGKILL"), (-15, "SIGTERM"), (-40, "signal 40")])
def test_the_signal_that_has_ended_a_rank_is_named(status, how):
    failure = _Supervisor._death(SimpleNamespace(_rank=1), SimpleNamespace(returncode=status, pid=7))
    how_it_ended, _, advice = failure.message.partition(";")
    assert (failure.kind, how_it_ended) == ("signal", f"its process 7 was killed by {how}")
    assert ("ran out of memory" in advice) == (how == "SIGKILL")
