"""Why an executor was lost, by value: the texts of Spark on YARN, and how long they are waited for."""

from types import SimpleNamespace

import pytest
from support import listed_executors

from ddl_magics.runtime.spark import executor_loss

TOO_LARGE = (
    "Container killed by YARN for exceeding physical memory limits. 2.1 GB of 2 GB physical memory used. "
    "Consider boosting spark.executor.memoryOverhead."
)
KILLED = "Container from a bad node: container_1 on host: h. Exit status: 137. Diagnostics: [now]killed; 1\n\nend"


class Clock:
    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr(executor_loss.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(executor_loss.time, "sleep", self._sleep)

    def _sleep(self, seconds):
        self.now += seconds


def context(clock, told=None, at=0.0, lost=("2",), master="yarn"):
    """Executor 2 may be lost, which is explained at a time."""

    def summaries(active):
        reason = told if clock.now >= at else None
        option = SimpleNamespace(isDefined=lambda: reason is not None, get=lambda: reason)
        listed = [
            SimpleNamespace(id=lambda: "1", isActive=lambda: True, removeReason=lambda: 1 / 0),
            SimpleNamespace(id=lambda: "2", isActive=lambda: reason is None, removeReason=lambda: option),
        ]
        return SimpleNamespace(size=lambda: 2, apply=lambda index: listed[index])

    jvm = listed_executors.context([1, 2], lost)
    jvm.statusStore = lambda: SimpleNamespace(executorList=summaries)
    return SimpleNamespace(master=master, _jsc=SimpleNamespace(sc=lambda: jvm))


def test_a_reason_that_comes_late_is_waited_for(monkeypatch):
    clock = Clock(monkeypatch)
    assert executor_loss.wait_for_reason(context(clock, TOO_LARGE, at=4.0), "2") == TOO_LARGE.rstrip(".")
    assert clock.now == pytest.approx(4.0, abs=0.3)


@pytest.mark.parametrize(
    ("lost", "seconds"), [(["2"], executor_loss.REASON_SECONDS), ([], executor_loss.NOTICE_SECONDS)]
)
def test_one_that_is_there_or_stays_unexplained_is_not_waited_for_long(monkeypatch, lost, seconds):
    clock = Clock(monkeypatch)
    assert executor_loss.wait_for_reason(context(clock, lost=lost), "2") is None
    assert clock.now == pytest.approx(seconds, abs=0.3)


def test_a_master_that_says_only_that_the_process_has_ended_is_not_asked(monkeypatch):
    clock = Clock(monkeypatch)
    sc = context(clock, "Command exited with code 137", master="local-cluster[2,1,1024]")
    assert executor_loss.wait_for_reason(sc, "2") is None and clock.now == 0


def test_a_reason_is_one_line_that_names_the_setting_for_memory():
    assert executor_loss.in_one_line(TOO_LARGE).count("spark.executor.memoryOverhead") == 1
    assert executor_loss.in_one_line(KILLED) == (
        "Container from a bad node: container_1 on host: h. Exit status: 137. Diagnostics: [now]killed, 1 end, "
        "which is often want of memory: raise spark.executor.memoryOverhead"
    )
    assert executor_loss.in_one_line("Container released on a *lost* node.") == "Container released on a *lost* node"
