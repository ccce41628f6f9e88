"""Executors on which workers die again and again, or are slow: they are named, excluded and replaced."""

import importlib
import os
import signal

import pytest
from support import jobs, launch, processes
from support.fake_cluster import steps

from ddl_magics.runtime import events
from ddl_magics.runtime.driver import bad_executors, slow_ranks
from ddl_magics.runtime.driver.bad_executors import SUSPICIOUS, TOGETHER_SECONDS, BadExecutors, Executor
from ddl_magics.runtime.driver.executor_watch import ExecutorWatch
from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.runtime.spark.allocation import CannotChange

ONE, OTHER = Executor("1", "h1"), Executor("2", "h2")


class Clock:
    now = 0.0

    def __call__(self):
        self.now += 2 * TOGETHER_SECONDS
        return self.now


def made_bad(*executors):
    bad = BadExecutors(Clock())
    for executor in executors:
        assert [bad.died(executor) for _ in range(SUSPICIOUS)] == [None] * (SUSPICIOUS - 1) + [SUSPICIOUS]
    return bad


def test_an_executor_is_bad_at_the_second_death_and_said_once():
    bad = BadExecutors(Clock())
    assert [bad.died(executor) for executor in (ONE, OTHER, ONE, ONE, OTHER)] == [None, None, 2, None, 2]


def test_workers_that_die_together_count_as_one():
    clock = Clock()
    bad = BadExecutors(lambda: clock.now)
    assert [bad.died(ONE) for _ in range(4)] == [None] * 4
    clock()
    assert bad.died(ONE) == 2


def test_a_bad_executor_is_taken_once():
    bad = made_bad(ONE)
    assert bad.died(OTHER) is None and bad.left_over() == [ONE]
    assert bad.take() == [ONE]
    assert (bad.take(), bad.take("1"), bad.left_over()) == ([], [], [])
    assert [bad.died(ONE) for _ in range(4)] == [None] * 4, "its end comes of the replacement"


def test_one_that_could_not_be_replaced_is_taken_again():
    bad = made_bad(ONE)
    bad.keep(bad.take())
    assert bad.take() == [ONE]


def test_only_the_one_that_is_meant_is_taken():
    bad = made_bad(ONE, OTHER)
    assert (bad.take("2"), bad.take("3"), bad.take()) == ([OTHER], [], [ONE])


def test_an_executor_stays_while_another_worker_is_there():
    bad = made_bad(ONE)
    bad.arrived(("run", 0), ONE)
    bad.arrived(("other run", 0), ONE)
    assert bad.take() == bad.take("1", but=("run", 0)) == []
    bad.left(("other run", 0))
    assert bad.take() == []
    assert bad.take("1", but=("run", 0)) == [ONE]


def test_slow_is_bad_at_once():
    bad = BadExecutors()
    bad.was_slow(ONE)
    assert bad.take() == [ONE]
    bad = BadExecutors(Clock())
    bad.was_slow(ONE)
    bad.take()
    assert [bad.died(ONE) for _ in range(SUSPICIOUS)] == [None] * SUSPICIOUS, "they end with it"


def test_applications_have_executors_of_their_own():
    one, same, other = map(bad_executors.of_application, ("app-1", "app-1", "app-2"))
    assert one is same and one is not other


class Watched:
    """A run whose ranks 0, 1, ... are on the executors."""

    def __init__(self, *executors, bad=None, refusal=None, gone=(), **spec):
        self.bad = bad or BadExecutors(Clock())
        self.run, self.replaced, self._refusal, self._gone = jobs.Run(), [], refusal, gone
        self.watch = ExecutorWatch(RunSpec(**{"run": "r", **spec}), self.bad, self.run, self._replace)
        for rank, executor in enumerate(executors):
            self.watch.arrived(rank, executor.id, executor.host)

    def _replace(self, ids):
        if self._refusal:
            raise CannotChange(self._refusal)
        self.replaced.append(sorted(ids))
        return [executor for executor in ids if executor not in self._gone]

    @property
    def said(self):
        return [message for _, message in self.run.notices]

    def train(self, *computes, seconds=80):
        """The ranks whose executors were slow; computes: seconds of each rank in buckets of 4 s."""
        slow = []
        for _ in range(seconds // 4):
            for rank, compute in enumerate(computes):
                bucket = dict(steps(rank, 0, seconds=4.0), compute=compute, run="r", attempt=1)
                slow += [rank] * self.watch.stepped(events.parse(bucket))
        return slow


REMEDY = "; --exclude bad keeps later runs of this session off it, though Spark may start the next one on the same host"


def test_the_second_death_is_named_with_host_and_remedy():
    run = Watched(ONE, OTHER)
    for rank in (0, 1, 0, 0):
        run.watch.died(rank)
    assert run.run.notices == [
        ("warning", "executor 1 on h1 is bad: workers have died there 2 times, now rank 0" + REMEDY)
    ]
    run.watch.replace_before(2)
    assert run.watch.replacement_after(0) is None and run.replaced == []


def test_without_processes_of_their_own_executors_are_not_counted():
    run = Watched(Executor("", "h1"))
    for _ in range(3):
        run.watch.died(0)
    assert run.said == [] and run.watch.replacement_after(0) is None


def test_a_slow_executor_is_named_once_a_run():
    run = Watched(ONE, OTHER, Executor("3", "h3"))
    assert run.train(2.0, 2.0, 3.6, seconds=200) == [2]
    what = "for a minute, rank 2 has taken 1.8 times as long to compute as the median of the workers"
    assert run.said == [f"executor 3 on h3 is bad: {what}{REMEDY}"]
    assert Watched(ONE, OTHER, bad=run.bad, run="later").train(2.0, 3.6) == [1]


def test_members_of_an_ensemble_are_not_compared():
    assert Watched(ONE, OTHER, strategy="ensemble").train(2.0, 3.6) == []
    assert Watched(ONE, OTHER, strategy="ps").train(2.0, 3.6) == [1]


@pytest.mark.parametrize("gone", [(), ("1",)])
def test_a_later_run_with_the_option_has_it_replaced_before_it_starts(gone):
    run = Watched(bad=made_bad(ONE), exclude="bad", gone=gone)
    run.watch.replace_before(1)
    run.watch.replace_before(1)
    assert run.replaced == [["1"]]
    said = "executor 1 on h1 is bad, and is replaced by another one, which Spark may start on the same host"
    assert run.run.notices == ([] if gone else [("info", said)])


def test_where_spark_allows_no_change_one_line_says_so():
    run = Watched(bad=made_bad(ONE), exclude="bad", refusal="Spark chooses its executors")
    for attempt in (1, 2):
        run.watch.replace_before(attempt)
    assert run.run.notices == [("warning", "executor 1 on h1 is bad, and stays: Spark chooses its executors")]
    later = Watched(bad=run.bad, exclude="bad", run="later")
    later.watch.replace_before(1)
    assert later.replaced == [["1"]]


def test_where_others_train_one_line_says_so():
    bad = made_bad(ONE)
    other = Watched(ONE, bad=bad, run="other")
    run = Watched(bad=bad, exclude="bad")
    run.watch.replace_before(1)
    assert run.said == ["executor 1 on h1 is bad, and stays: other workers train there"] and run.replaced == []
    other.watch.all_left()
    run.watch.replace_before(2)
    assert run.replaced == [["1"]]


def test_an_elastic_run_replaces_those_that_become_bad():
    run = Watched(ONE, OTHER, min_workers=1, workers=2, bad=made_bad(Executor("0", "h0")))
    run.watch.replace_before(1)
    assert run.replaced == [], "of earlier runs"
    run.watch.died(0)
    run.watch.left(0)
    run.watch.replacement_after(0)()
    assert run.replaced == []
    run.watch.arrived(2, "1", "h1")
    run.watch.died(2)
    run.watch.left(2)
    run.watch.replacement_after(2)()
    assert run.replaced == [["1"]]
    run.watch.replace_before(2)
    assert run.replaced == [["1"], ["0"]]


def test_an_elastic_run_says_nothing_where_spark_allows_no_change():
    run = Watched(ONE, min_workers=1, refusal="Spark chooses its executors")
    for _ in range(2):
        run.watch.died(0)
    run.watch.left(0)
    run.watch.replacement_after(0)()
    assert len(run.said) == 1 and "--exclude bad" in run.said[0]


def test_a_slow_one_is_replaced_with_its_rank_but_not_with_others_and_once_a_host():
    ranks = [ONE, OTHER, Executor("3", "h3"), Executor("3", "h3"), Executor("4", "h1")]
    run = Watched(*ranks, min_workers=1, workers=5)
    for executor in ranks:
        run.bad.was_slow(executor)
    for rank in (2, 0, 4, 1):
        run.watch.replace_slow(rank)
    assert run.replaced == [["1"], ["2"]]
    run.watch.died(0)
    assert not [text for text in run.said if "died" in text]


# -- on a cluster

WAITS = """
import os, time
while not os.path.exists(FILE):
    time.sleep(0.1)
"""


def places(run, attempt):
    """{rank: (id of its executor, its process)} of an attempt."""
    workers = [event for event in run.of_kind("worker") if event["attempt"] == attempt and "executor" in event]
    return {event["rank"]: (event["executor"], event["pid"]) for event in workers}


def notices(run):
    return [event["message"] for event in run.of_kind("notice") if event["message"].startswith("executor ")]


@pytest.mark.timeout(300)
@pytest.mark.fresh_cluster
def test_a_later_run_does_not_use_an_executor_on_which_workers_have_died_twice(spark_cluster, tmp_path):
    spark = spark_cluster(2, fresh=True)
    run = launch.start(spark, WAITS.replace("FILE", repr(f"{tmp_path}/go")))
    for attempt in (1, 2):
        run.until(lambda run, attempt=attempt: len(places(run, attempt)) == 2 and run.state == "RUNNING", 120)
        process = next(process for executor, process in places(run, attempt).values() if executor == "1")
        os.kill(process, signal.SIGKILL)
        run.until(lambda run, attempt=attempt: run.events[-1]["attempt"] > attempt, 60)
        assert len(notices(run)) == attempt - 1
    (tmp_path / "go").touch()
    (said,) = notices(run.finished())
    assert said.startswith("executor 1 on ") and "is bad: workers have died there 2 times, now rank " in said

    same = launch.finished(spark, "1")
    assert "1" in [executor for executor, _ in places(same, 1).values()] and notices(same) == []
    later = launch.finished(spark, "1", exclude="bad")
    used = {executor for executor, _ in places(later, 1).values()}
    assert len(used) == 2 and "1" not in used
    (said,) = notices(later)
    assert "is replaced by another one" in said
    assert notices(launch.finished(spark, "1", exclude="bad")) == []
    assert processes.wait_until_gone(10) == {}


FITS = """
import keras, numpy as np, os, tensorflow as tf, time
x = np.random.default_rng(0).normal(size=(64, 8)).astype("float32")
class Slow(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        if not os.path.exists(FILE):
            time.sleep(0.3)
@keras.saving.register_keras_serializable()
class SlowLayer(keras.layers.Layer):
    def call(self, inputs):
        def wait(values):
            if not os.path.exists(FILE):
                time.sleep(0.4 if ddl.rank == SLOW else 0.1)
            return values
        outputs = tf.py_function(wait, [inputs], tf.float32)
        outputs.set_shape(inputs.shape)
        return tf.stop_gradient(outputs)
    def compute_output_shape(self, shape):
        return shape
model = keras.Sequential([keras.Input((8,)), SlowLayer(), keras.layers.Dense(2)])
model.compile("sgd", "mse", jit_compile=False)
model.fit(x, x[:, :2], batch_size=16, epochs=30, verbose=0, callbacks=[Slow()])
ddl.size
"""


def fits(folder, slow):
    return FITS.replace("FILE", repr(f"{folder}/go")).replace("== SLOW", f"== {slow}")


def executor_of(run, rank):
    return next((event["executor"] for event in run.of_kind("worker", rank) if "executor" in event), None)


def wait_until_trains(run, rank):
    run.until(lambda run: any(event["members"] == [0, rank] for event in run.of_kind("group")), 120)
    run.until(lambda run: run.of_kind("steps", rank), 60)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.fresh_cluster
def test_in_an_elastic_run_another_worker_joins_on_another_executor(spark_cluster, tmp_path):
    run = launch.start(spark_cluster(2, fresh=True), fits(tmp_path, None), min_workers=1)
    for rank in (1, 2):
        wait_until_trains(run, rank)
        os.kill(run.pid(rank), signal.SIGKILL)
    wait_until_trains(run, 3)
    (tmp_path / "go").touch()
    ended = run.finished(120)
    first, second, third = (executor_of(ended, rank) for rank in (1, 2, 3))
    assert first == second != third
    named, replaced = notices(ended)
    assert f"executor {first} on " in named and "died there 2 times, now rank 2" in named
    assert f"executor {first} on " in replaced and "is replaced" in replaced
    assert {event["attempt"] for event in ended.of_kind("steps")} == {1}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.fresh_cluster
def test_in_an_elastic_run_a_slow_worker_is_replaced_with_its_executor(spark_cluster, tmp_path, monkeypatch):
    module = importlib.import_module(launch.load_driver().__package__ + "." + slow_ranks.__name__.rpartition(".")[2])
    monkeypatch.setattr(module, "SLOW_SECONDS", 4.0)
    monkeypatch.setattr(module, "PACE_SECONDS", 2.0)
    run = launch.start(spark_cluster(2, fresh=True), fits(tmp_path, 1), min_workers=1)
    wait_until_trains(run, 1)
    wait_until_trains(run, 2)
    (tmp_path / "go").touch()
    ended = run.finished(120)
    assert executor_of(ended, 1) != executor_of(ended, 2)
    named, replaced = notices(ended)
    assert named.startswith(f"executor {executor_of(ended, 1)} on ") and "for a minute, rank 1 has taken " in named
    assert "is replaced" in replaced
    assert {event["attempt"] for event in ended.of_kind("steps")} == {1}
