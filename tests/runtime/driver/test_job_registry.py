"""The driver keeps the runs that a notebook has released: enough for another notebook, and no more."""

from types import SimpleNamespace

import pytest

from ddl_magics.runtime.driver import job_registry
from ddl_magics.runtime.driver.run_files import Artifact
from ddl_magics.runtime.events import FINISHED, RUNNING


class Job:
    workers = 2

    def __init__(self, size=10, state=FINISHED):
        self.journal, self.forgotten, self.stops = SimpleNamespace(state=state), False, []
        self.files = SimpleNamespace(artifacts={"model-0.keras": Artifact("", size, "")})

    def forget(self):
        self.forgotten = True

    def stop(self, reason):
        self.stops.append(reason)


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(job_registry.time, "monotonic", lambda: now[0])
    return now


def holding(**jobs):
    runs = job_registry.JobRegistry()
    for run, job in jobs.items():
        runs.add(run, job)
    return runs


def test_one_notebook_is_done_and_another_is_not(clock):
    runs = holding(a=Job())
    assert runs.release("a") is True
    clock[0] += job_registry.KEPT_SECONDS - 1
    job = runs.get("a")
    assert job is not None and not job.forgotten
    clock[0] += job_registry.KEPT_SECONDS - 1
    runs.sweep()
    assert runs.get("a") is job, "it has been asked for meanwhile"
    assert runs.release("a") is True
    clock[0] += job_registry.KEPT_SECONDS + 1
    runs.sweep()
    assert runs.get("a") is None and job.forgotten


def test_a_run_that_goes_on_is_not_released_and_holds_its_slots(clock):
    runs = holding(a=Job(state=RUNNING), b=Job())
    assert (runs.release("a"), runs.release("c")) == (False, False)
    clock[0] += 10 * job_registry.KEPT_SECONDS
    runs.sweep()
    assert set(runs.all()) == {"a", "b"} and runs.busy() == 2


def test_newer_runs_push_out_older_ones(clock, monkeypatch):
    monkeypatch.setattr(job_registry, "KEPT_RUNS", 2)
    runs = holding(a=Job(), b=Job(), c=Job())
    for run in "abc":
        assert runs.release(run)
    assert set(runs.all()) == {"b", "c"}
    monkeypatch.setattr(job_registry, "KEPT_BYTES", 100)
    runs.add("d", Job(size=10**9))
    assert runs.release("d")
    assert set(runs.all()) == {"d"}, "the newest stays, whatever its size"


def test_a_stop_that_comes_before_its_launch_is_not_lost():
    runs, early, other = holding(), Job(state=RUNNING), Job(state=RUNNING)
    assert runs.stop("early", ", as nobody waits") is False
    runs.add("early", early)
    runs.add("other", other)
    assert early.stops == [", as nobody waits"] and other.stops == []
    assert runs.stop("other", "") is True and other.stops == [""]
    for number in range(job_registry.KEPT_STOPS + 1):
        runs.stop(f"run {number}", "")
    oldest, newest = Job(state=RUNNING), Job(state=RUNNING)
    runs.add("run 0", oldest)
    runs.add(f"run {job_registry.KEPT_STOPS}", newest)
    assert not oldest.stops and newest.stops
