"""A search on a real Spark with two executors: two trials at once, pruned or killed ones, ordinary runs."""

import dataclasses
import json
import os
import signal
import sys

import numpy as np
import pytest
from support.processes import completed
from support.until import until

from ddl_magics import store
from ddl_magics.clusters.embedded import EmbeddedCluster
from ddl_magics.options.parsing import parse
from ddl_magics.runtime import events as ev
from ddl_magics.search import Search
from ddl_magics.session.session import Session

CELL = """
import os, time
found = sorted(os.listdir("."))
def wait(logs):
    # until the test lets the trial train whose learning rate the file has
    while os.path.exists(waiting) and float(open(waiting).read()) == lr:
        time.sleep(0.05)
slow = keras.callbacks.LambdaCallback(on_train_begin=wait, on_epoch_end=lambda *epoch: time.sleep(0.6))  # to prune
lr = ddl.suggest_float("lr", 1e-6, 1.0, log=True)
units = ddl.suggest_int("units", 2, 8)
act = ddl.suggest_categorical("act", ["relu", "tanh"], default="relu")
with open("units.txt", "a") as file:
    file.write(str(units))
x = np.random.default_rng(0).normal(size=(256, 4)).astype("float32")
y = (x @ weights > 0).astype("float32")
model = keras.Sequential([keras.layers.Dense(units, act), keras.layers.Dense(1, "sigmoid")])
model.compile(keras.optimizers.SGD(lr), "binary_crossentropy", metrics=["accuracy"])
model.fit(x, y, validation_data=(x, y), epochs=4, batch_size=32, verbose=0, callbacks=[slow])
[units, act, found]
"""
OPTIONS = "--seed 1 --set act=tanh"


def kinds(run, kind):
    return [event for event in run.events if event["kind"] == kind]


@pytest.mark.timeout(240)
def test_a_search_on_two_executors(spark_cluster, data_dir, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    waiting = tmp_path / "waiting"
    names = {"spark": spark_cluster(2), "weights": np.array([1.0, -2.0, 3.0, -4.0], "float32"), "waiting": str(waiting)}
    session = Session(EmbeddedCluster(lambda: names))
    line = f"--trials 4 --objective val_loss:min --name tuned --attempts 1 {OPTIONS}"
    search = session.search(dataclasses.replace(parse(line), cell=CELL), names)
    training = []
    search.listen(lambda view: training.append(sum(row.state == "training" for row in view.rows)))

    killed = search.run(0)
    until(lambda: kinds(killed, "fit"), 60)
    worker = kinds(killed, "worker")[0]
    assert worker["executor"].isdigit()
    waiting.write_text(killed.spec.set["lr"])  # its second run
    os.kill(worker["pid"], signal.SIGKILL)
    until(lambda: kinds(search.run(1), "epoch"), 60)
    waiting.unlink()
    search.wait(200)
    print(search)
    assert search.state == ev.FINISHED and max(training) == 2, "as many at once as there are slots"

    # The killed trial has a second run with the same values.
    assert killed.state == ev.FAILED and kinds(killed, "state")[-1]["failure"]["kind"] == "signal"
    again = search.run(0)
    assert again.name == "tuned_0_again" and again.spec.set == killed.spec.set
    assert [row.tries for row in search.view.rows] == [2, 1, 1, 1]

    # It came to its first epoch after trial 1, and was worse.
    frame = search.trials
    assert set(frame["state"]) == {"finished", "pruned"} and frame["state"][0] == "pruned"
    assert again.wait(30).state == ev.STOPPED
    assert 1 <= len(again.history["val_loss"]) < 4, "it keeps the history that it has"
    reason = search.view.rows[0].reason
    assert reason.startswith("pruned after epoch 1: val_loss 0.79")
    assert kinds(again, "state")[-1]["message"].startswith(f"stopped: {reason}; the model and its history are kept")

    best = search.best
    assert best.value == min(row.value for row in search.view.rows if row.state == "finished")
    run = best.run.wait(30)
    assert run.history["val_loss"][-1] == best.value and run.result[:2] == [best.params["units"], "tanh"]
    assert run.weights()[0].shape == (4, best.params["units"])
    records = store.list_runs()
    assert sorted(record.spec["trial"] for record in records) == [0, 0, 1, 2, 3]
    assert {record.spec["parent"] for record in records} == {search.id}
    assert Search.stored(store.find_search("tuned")).best.value == best.value

    # No trial has seen the file that an earlier one has written, and each keeps its own.
    finished = [search.run(row.number).wait(30) for row in search.view.rows if row.state == "finished"]
    assert not any("units.txt" in each.result[2] for each in finished)
    assert {(tmp_path / each.name / "units.txt").read_text() for each in finished} == {
        each.spec.set["units"] for each in finished
    }
    assert not (tmp_path / "units.txt").exists()

    # An ordinary run of the same cell with the best values learns the same.
    spec = dataclasses.replace(parse(f"--strategy single {OPTIONS} {best.options}"), cell=CELL)
    assert session.submit(spec, names).wait(60).history["val_loss"] == pytest.approx(run.history["val_loss"], rel=1e-5)


OF_OURS = """
import dataclasses, json, sys, time
from ddl_magics.clusters.embedded import EmbeddedCluster
from ddl_magics.session.session import Session
from ddl_magics.options.parsing import parse
from ddl_magics.runtime.spark.slots import executors

if __name__ == "__main__":
    cluster = EmbeddedCluster(dict)
    session = Session(cluster)
    line = "--trials 4 --search random --prune no --objective score:max --attempts 1 --seed 1 --name tuned"
    conf = "--conf spark.master=local-cluster[2,1,1024] --workers 1"
    search = session.search(dataclasses.replace(parse(f"{line} {conf}"), cell=CELL), {})
    search.settled(200)
    where = {run.id: {e["executor"] for e in run.events if e["kind"] == "worker" and e.get("executor")}
             for run in session.runs.values()}
    died = [sorted(where[run.id]) for run in session.runs.values() if run.state == "FAILED"]
    deadline = time.monotonic() + 60
    while len(now := executors(cluster._created.sparkContext)) < 2 and time.monotonic() < deadline:
        time.sleep(0.2)
    print(json.dumps([search.state, search.view.message, died, now, [r.state for r in search.view.rows]]))
    cluster.shutdown()
"""

#: A trial on executor 0 dies, as where another process takes the host's memory.
DEADLY = """
import os, re, signal, time
ddl.suggest_int("units", 1, 1000)
pid, executor = os.getpid(), None
while pid > 1 and executor is None:
    words = open(f"/proc/{pid}/cmdline").read().split("\\0")
    executor = words[words.index("--executor-id") + 1] if "--executor-id" in words else None
    pid = int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
if executor == "0":
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(1)
ddl.log(score=1.0)
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_executor_that_kills_its_trials_is_replaced(tmp_path):
    program = tmp_path / "ours.py"
    program.write_text(f"CELL = {DEADLY!r}\n{OF_OURS}")
    environment = {**os.environ, "JUPYTER_DATA_DIR": str(tmp_path / "data")}
    run = completed([sys.executable, program], cwd=tmp_path, env=environment, timeout=280)
    state, message, died, now, trials = json.loads(run.stdout.splitlines()[-1])
    assert (state, trials) == (ev.FINISHED, ["finished"] * 4), (message, run.stderr[-3000:])
    assert died == [["0"], ["0"]], "no further trial went there"
    assert "2 runs of trials died on executor 0 on " in message and message.endswith("it was replaced by another")
    assert len(now) == 2 and "0" not in now, "the new one"
