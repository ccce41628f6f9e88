"""Waiting for executors, by value: until the slots are there, a stop, or the time is over."""

import pytest

from ddl_magics.runtime.driver import executors


class Spark:
    """Its slots, as each query finds them; the clock moves on by a query's wait."""

    def __init__(self, monkeypatch, *ready):
        self.ready, self.now, self.reported = list(ready), 0.0, []
        monkeypatch.setattr(executors.slots, "registered_slots", lambda sc, gpus: self._next())
        monkeypatch.setattr(executors.slots, "dynamic_allocation", lambda sc: False)
        monkeypatch.setattr(executors.allocation, "acquire", lambda sc: 0)
        monkeypatch.setattr(executors.time, "monotonic", lambda: self.now)

    def _next(self):
        return self.ready.pop(0) if len(self.ready) > 1 else self.ready[0]

    def wait(self, workers=2, stop_at=float("inf")):
        def stopped(seconds):
            self.now += seconds
            return self.now >= stop_at

        return executors.wait_for_slots(None, workers, None, self.reported.append, stopped)


def test_slots_that_are_there_need_no_wait(monkeypatch):
    spark = Spark(monkeypatch, 2)
    assert spark.wait() is None and (spark.now, spark.reported) == (0.0, [])


def test_each_number_of_slots_is_reported_once(monkeypatch):
    spark = Spark(monkeypatch, 0, 0, 1, 1, 1, 3)
    assert spark.wait() is None and spark.reported == [0, 1]


def test_a_stop_ends_the_wait(monkeypatch):
    spark = Spark(monkeypatch, 1)
    assert spark.wait(stop_at=3.0) is None and spark.now == 3.0


@pytest.mark.parametrize(("ready", "advice"), [(1, "--workers 1"), (0, "--workers 1"), (3, "--workers 3")])
def test_executors_that_do_not_come_are_a_reason_with_advice(monkeypatch, ready, advice):
    spark = Spark(monkeypatch, ready)
    problem = spark.wait(workers=4)
    assert problem.startswith(f"{ready} of 4 slots after 120 s: ask for fewer with {advice}, or raise spark.executor")
    assert executors.EXECUTORS_SECONDS < spark.now <= executors.EXECUTORS_SECONDS + executors.LOOK_SECONDS
