"""Executors are given back: by %ddl release in the user's session, by --release in ours, by Spark's own allocation."""

import dataclasses
import json
import os
import signal
import sys
import time

import pytest
from IPython.core.error import UsageError
from support import processes
from support import spark as spark_of_tests
from support.fake_cluster import FakeCluster, notices, training
from support.processes import our_processes, prewarmed
from support.until import until

from ddl_magics.clusters import embedded_check
from ddl_magics.clusters.base import Ready, Refused
from ddl_magics.clusters.embedded import EmbeddedCluster
from ddl_magics.clusters.session_details import executors, slots
from ddl_magics.commands import check, release
from ddl_magics.commands.kernel import Kernel
from ddl_magics.options.parsing import parse
from ddl_magics.runs import follower
from ddl_magics.runtime import events as ev
from ddl_magics.session.session import Session

CELL = """
x = np.random.default_rng(0).normal(size=(128, 4)).astype("float32")
model = keras.Sequential([keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(x, x[:, :1], epochs=1, batch_size=32, verbose=0)
"""


pytestmark = pytest.mark.usefixtures("data_dir")


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_users_session_gives_its_executors_back_when_it_is_told_to(spark_cluster):
    spark = spark_cluster(2)
    sc, names = spark.sparkContext, {"spark": spark}
    session = Session(EmbeddedCluster(lambda: names))
    until(lambda: session.cluster.status().details["executors"] == 2, 60)
    refused = session.cluster.check(dataclasses.replace(parse("--release executors"), cell="1"), names)
    assert refused.message.startswith("--release is for sessions that ddl_magics has started, and this one is yours")

    assert release.release(Kernel(session)) == (
        "2 executors given back; a Spark job waits until a run or %ddl acquire asks for new ones"
    )
    until(lambda: session.cluster.status().details["executors"] == 0, 60)
    assert session.cluster.status().slots == 2, "as a run can have them"
    assert "0 executors, 2 given back: the next run asks for them again" in check.check(Kernel(session))
    assert release.release(Kernel(session)) == "there are no executors to give back"

    assert release.acquire(Kernel(session)) == "asked for 2 executors"
    until(lambda: session.cluster.status().details["executors"] == 2, 60)
    assert release.acquire(Kernel(session)) == "no executors were given back with %ddl release"
    assert sc.parallelize(range(4), 2).sum() == 6

    release.release(Kernel(session))
    run = session.submit(dataclasses.replace(parse("--seed 1"), cell=CELL), names)
    run.wait(120)
    assert run.state == ev.FINISHED, "it has asked for them again"
    release.release(Kernel(session))  # a prewarmed process holds no executor
    until(lambda: not our_processes() and not prewarmed(), 60)
    until(lambda: session.cluster.status().details["executors"] == 0, 60)
    release.acquire(Kernel(session))
    until(lambda: session.cluster.status().details["executors"] == 2, 60)

    _kill_an_executor(sc.applicationId)
    release.release(Kernel(session))  # Spark starts one in its place
    until(lambda: session.cluster.status().details["executors"] == 0, 60)
    assert release.acquire(Kernel(session)) == "asked for 2 executors"
    until(lambda: session.cluster.status().details["executors"] == 2, 60)


def _kill_an_executor(app):
    """And wait until Spark has started one in its place, which has not registered yet."""
    executors = [pid for pid, command in processes.session().items() if f"--app-id {app}" in command]
    os.kill(executors[0], signal.SIGKILL)
    time.sleep(0.5)


OURS = """
import dataclasses, json, subprocess, sys, time
from ddl_magics.clusters.embedded import EmbeddedCluster
from ddl_magics.clusters.base import NotStarted
from ddl_magics.commands.kernel import Kernel
from ddl_magics.session.session import Session
from ddl_magics.options.parsing import parse

def executors():  # processes of this Spark
    listed = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True).stdout.splitlines()
    return sum("CoarseGrainedExecutorBackend" in line and app() in line for line in listed)

def app():
    return cluster._created.sparkContext.applicationId if cluster._created else "no application"

def train(line):
    spec = dataclasses.replace(parse(f"--seed 1 --conf spark.master=local-cluster[2,1,1024] {line}"), cell=CELL)
    run = session.submit(spec, {})
    run.wait(150)
    ended = next(e["time"] for e in reversed(run.events) if e["kind"] == "state")
    return run, ended

def gone(ended):
    while executors() and time.time() < ended + 60:
        time.sleep(0.1)
    return time.time() - ended

if __name__ == "__main__":
    cluster = EmbeddedCluster(dict)
    session = Session(cluster)
    found = {}
    for name, line in json.loads(sys.argv[1]):
        run, ended = train(line)
        found[name] = {
            "state": run.state,
            "notices": [e["message"] for e in run.events if e["kind"] == "notice"],
            "workers": len({e["rank"] for e in run.events if e["kind"] == "worker"}),
            "held": [e["executors"] for e in run.events if e["kind"] == "held"],
            "seconds": gone(ended),
            "left": executors(),
            "no session": isinstance(cluster.status(), NotStarted),
            "slots": getattr(cluster.status(), "slots", None),
        }
    cluster.shutdown()
    print(json.dumps(found))
"""

DYNAMIC = (
    "--conf spark.dynamicAllocation.enabled=true --conf spark.dynamicAllocation.shuffleTracking.enabled=true "
    "--conf spark.dynamicAllocation.minExecutors=0 --conf spark.dynamicAllocation.maxExecutors=2 "
    "--conf spark.dynamicAllocation.executorIdleTimeout=3s"
)


def in_a_process(tmp_path, *lines):
    """What the runs of OURS have found: they have a Spark of their own."""
    spark_of_tests.prepare_environment()
    script = tmp_path / "ours.py"
    script.write_text(OURS.replace("if __name__", f"CELL = {CELL!r}\nif __name__"))
    environment = {**os.environ, "SPARK_HOME": spark_of_tests._home().name}
    answer = processes.completed([sys.executable, script, json.dumps(lines)], timeout=220, env=environment)
    return json.loads(answer.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(240)
def test_a_session_of_ours_gives_back_what_release_says(tmp_path):
    found = in_a_process(tmp_path, ("executors", "--release executors"), ("session", "--release session"))
    print({name: round(each["seconds"], 1) for name, each in found.items()})
    first, second = found["executors"], found["session"]
    assert first["state"] == second["state"] == ev.FINISHED
    assert first["left"] == second["left"] == 0
    assert first["notices"][-1].startswith("2 executors given back") and not first["no session"]
    assert second["notices"][-1] == "the embedded Spark has ended; the next run starts a new one"
    assert second["no session"]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(300)
def test_dynamic_allocation_takes_executors_back_by_itself(tmp_path):
    """Nothing of ours keeps one; and the next run on a session that was ended by --release has a new one."""
    found = in_a_process(
        tmp_path,
        ("first", f"--strategy ps {DYNAMIC}"),
        ("elastic", f"--workers 1..2 {DYNAMIC}"),
        ("second", f"--strategy ps --release session {DYNAMIC}"),
        ("new", "--release session"),
    )
    print({name: round(each["seconds"], 1) for name, each in found.items()})
    assert [each["state"] for each in found.values()] == [ev.FINISHED] * 4
    assert [each["left"] for each in found.values()] == [0] * 4
    assert found["elastic"]["workers"] == 2, "its executors were asked for"
    assert found["elastic"]["held"][-1] == 2 and not found["first"]["held"], "told where workers come and go"
    assert found["first"]["slots"] == 2, "as maxExecutors says"


def test_what_release_does_at_the_end_of_a_run(monkeypatch):
    monkeypatch.setattr(follower, "IDLE_POLL_SECONDS", 0.02)
    done = []

    class Given(FakeCluster):
        def give_back(self, what):
            done.append((what, list(self.released)))
            return Refused("spark", "Spark runs 1 job: wait for the end") if what == "executors" else "it has ended"

    session = Session(Given(training(), slots=4))
    runs = [
        session.submit(dataclasses.replace(parse(f"--release {what}"), cell="1"), {}).wait(20)
        for what in ("no", "executors", "session")
    ]
    assert [what for what, _ in done] == ["executors", "session"]
    assert runs[2].id in done[1][1], "after all was fetched"
    assert notices(runs[1])[-1] == "--release executors: Spark runs 1 job: wait for the end"
    assert notices(runs[2])[-1] == "it has ended"


def test_a_run_that_follows_keeps_what_it_needs(monkeypatch):
    monkeypatch.setattr(follower, "IDLE_POLL_SECONDS", 0.02)
    monkeypatch.setattr(follower, "TURN_SECONDS", 0.02)
    done = []

    class Given(FakeCluster):
        def give_back(self, what):
            done.append(what)
            return what

    cluster = Given(training(), slots=2)
    cluster.visible = 3
    session = Session(cluster)
    first, second = (session.submit(dataclasses.replace(parse("--release session"), cell="1"), {}) for _ in range(2))
    assert second.state == ev.QUEUED
    with pytest.raises(UsageError, match="run_1 is RUNNING: wait for its end, or %ddl stop run_1"):
        release.release(Kernel(session))
    cluster.visible = len(cluster.script)
    first.wait(20)
    second.wait(20)
    assert done == ["session"], "the last one"


def test_where_executors_are_in_words():
    assert executors({"executors": None}) is None and executors({"executors": 2}) == "2 executors"
    dynamic = executors({"executors": 0, "dynamic_allocation": True, "slots": 8})
    assert dynamic.startswith("0 executors; Spark itself starts more when there is work, up to 8 slots")


def test_what_a_container_may_use_is_in_words():
    small = {"executors": 2, "container": {"java": 1024, "overhead": 384, "cores": 2}}
    assert executors(small) == (
        "2 executors; each may use 1024 MiB for Java and 384 MiB for its workers (spark.executor.memoryOverhead), "
        "too little for 2 workers: raise it to 3g a worker before the session starts"
    )
    large = {"executors": 2, "container": {"java": 1024, "overhead": 6144, "cores": 4}, "task_cores": 2}
    assert executors(large).endswith("6144 MiB for its workers (spark.executor.memoryOverhead)")


def test_slots_that_have_not_come_are_not_free():
    assert slots(2, 2, {"ready": 0}) == "0 of 2 slots ready" and slots(2, 1, {"ready": 2}) == "2 slots, 1 free"
    assert slots(1, 1, {}) == "1 slot, 1 free"


def test_executors_elsewhere_are_not_called_this_machine():
    status = Ready(2, 2, {"spark": "3.5.9", "master": "yarn", "ready": 1, "executors": 1})
    cluster = dict(embedded_check.lines("this machine", status, None))["cluster"]
    assert cluster == "the notebook's session: Spark 3.5.9 at yarn, 1 of 2 slots ready"
    status = Ready(2, 2, {"spark": "3.5.9", "master": "local[2]", "ready": 2, "executors": None})
    cluster = dict(embedded_check.lines("this machine", status, None))["cluster"]
    assert cluster == "this machine: Spark 3.5.9 at local[2], 2 slots, 2 free"
