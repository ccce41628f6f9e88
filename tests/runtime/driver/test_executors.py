"""Waiting for executors, by value: until the slots are there, a stop, or the time is over."""

from types import SimpleNamespace

import pytest

from ddl_magics.runtime.driver import executors


class Spark:
    """Its slots, as each query finds them; the clock moves on by a query's wait."""

    def __init__(self, monkeypatch, *ready):
        self.ready, self.now, self.reported = list(ready), 0.0, []
        self.lost, self.replaced, self.ends_at = [], [], float("inf")
        monkeypatch.setattr(executors.slots, "registered_slots", lambda sc, gpus: self._next())
        monkeypatch.setattr(executors.slots, "dynamic_allocation", lambda sc: False)
        self.why = None
        monkeypatch.setattr(executors.yarn, "view", lambda sc: self.why)
        monkeypatch.setattr(executors.slots, "lost", lambda sc: self.lost)
        monkeypatch.setattr(executors.session_end, "why_ended", self._end)
        monkeypatch.setattr(executors.allocation, "acquire", lambda sc: 0)
        monkeypatch.setattr(executors.allocation, "replace_lost", self._replace)
        monkeypatch.setattr(executors.time, "monotonic", lambda: self.now)

    def _next(self):
        return self.ready.pop(0) if len(self.ready) > 1 else self.ready[0]

    def _end(self, sc):
        return "killed: begin another" if self.now >= self.ends_at else None

    def _report(self, available, why):
        self.reported.append(available if why is None else (available, why))

    def _replace(self, sc, lost):
        self.replaced.append((self.now, lost))
        self.ready = [2]

    def wait(self, workers=2, stop_at=float("inf"), least=None):
        def stopped(seconds):
            self.now += seconds
            return self.now >= stop_at

        sc = SimpleNamespace(master="yarn")
        return executors.wait_for_slots(sc, least or workers, workers, None, self._report, stopped)


def test_slots_that_are_there_need_no_wait(monkeypatch):
    spark = Spark(monkeypatch, 2)
    assert spark.wait() == 2 and (spark.now, spark.reported) == (0.0, [])


def test_each_number_of_slots_is_reported_once(monkeypatch):
    spark = Spark(monkeypatch, 0, 0, 1, 1, 1, 3)
    assert spark.wait() == 2 and spark.reported == [0, 1]


def test_a_stop_ends_the_wait(monkeypatch):
    spark = Spark(monkeypatch, 1)
    assert spark.wait(stop_at=3.0) == 1 and spark.now == 3.0


@pytest.mark.parametrize(
    ("ready", "count", "seconds"),
    [
        ([1], 1, 10),  # MIN are there, and no other comes
        ([0, 0, 0, 2], 2, 13),
        ([1] * 5 + [2], 2, 15),  # one more comes within the time
        ([1] * 5 + [4], 3, 5),  # MAX are there
        ([3], 3, 0),
    ],
)
def test_beyond_the_least_number_slots_are_waited_for_shortly(monkeypatch, ready, count, seconds):
    spark = Spark(monkeypatch, *ready)
    assert (spark.wait(workers=3, least=1), spark.now) == (count, seconds)


def test_who_comes_shortly_before_the_end_of_the_wait_is_there(monkeypatch):
    spark = Spark(monkeypatch, *[1] * 118, 2)
    assert spark.wait(workers=3, least=2) == 2


def test_fewer_than_the_least_number_are_too_few(monkeypatch):
    assert Spark(monkeypatch, 1).wait(workers=4, least=2).startswith("1 of 2 slots after 120 s: ask for fewer")


@pytest.mark.parametrize("seconds", [0.0, 3.0])
@pytest.mark.parametrize("dynamic", [False, True])
def test_the_end_of_the_session_is_the_end_of_the_wait(monkeypatch, seconds, dynamic):
    spark = Spark(monkeypatch, 1)
    spark.ends_at = seconds
    monkeypatch.setattr(executors.slots, "dynamic_allocation", lambda sc: dynamic)
    if seconds and dynamic:  # nothing is waited for
        assert spark.wait() == 2
    else:
        assert spark.wait() == "killed: begin another" and spark.now == seconds


@pytest.mark.parametrize(("ready", "advice"), [(1, "--workers 1"), (3, "--workers 3")])
def test_executors_that_do_not_come_are_a_reason_with_advice(monkeypatch, ready, advice):
    spark = Spark(monkeypatch, ready)
    problem = spark.wait(workers=4)
    assert problem.startswith(f"{ready} of 4 slots after 120 s: ask for fewer with {advice}, or raise spark.executor")
    assert executors.EXECUTORS_SECONDS < spark.now <= executors.EXECUTORS_SECONDS + executors.LOOK_SECONDS


def test_that_spark_has_no_executor_is_said_as_such(monkeypatch):
    problem = Spark(monkeypatch, 0).wait()
    assert problem.startswith(
        "Spark has got no executor after 120 s: see the web page of yarn, or ask for less in spark."
    )


def test_what_yarn_says_is_in_the_state_and_in_the_end(monkeypatch):
    spark = Spark(monkeypatch, 0, 0, 1)
    spark.why = "YARN has no room: wait"
    assert spark.wait() == "1 of 2 slots after 120 s: YARN has no room: wait"
    assert spark.reported == [0, 1, (1, spark.why)]


def test_an_executor_that_stays_lost_is_replaced_once(monkeypatch):
    """YARN tells after ten minutes why, where a host is gone; until then Spark starts none in its place."""
    spark = Spark(monkeypatch, 1)
    spark.lost = ["2"]
    assert spark.wait() == 2
    assert spark.replaced == [(executors.LOST_SECONDS + 1, ["2"])]


def test_an_executor_whose_loss_is_explained_is_left_to_spark(monkeypatch):
    spark = Spark(monkeypatch, *[1] * 12, 2)
    monkeypatch.setattr(executors.slots, "lost", lambda sc: ["2"] if spark.now < 8 else [])
    assert spark.wait() == 2 and spark.replaced == []


def test_a_cluster_that_replaces_no_executor_is_told_at_the_end_of_the_wait(monkeypatch):
    spark = Spark(monkeypatch, 1)
    spark.lost, asked = ["2"], []

    def refuse(sc, lost):
        asked.append(lost)
        raise executors.allocation.CannotChange("no")

    monkeypatch.setattr(executors.allocation, "replace_lost", refuse)
    assert spark.wait().startswith("1 of 2 slots after 120 s") and asked == [["2"]]
