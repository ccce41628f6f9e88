"""How many slots an application has, by value: of the executors that take tasks, and of those that are promised."""

from types import SimpleNamespace

import pytest
from support import listed_executors

from ddl_magics.runtime.spark import slots


def context(executors, lost=(), ending=(), hosts=(), master="yarn", **conf):
    named = {name.replace("_", "."): value for name, value in conf.items()}
    jvm = listed_executors.context(executors, lost, ending, hosts)
    return SimpleNamespace(master=master, _conf=named, _jsc=SimpleNamespace(sc=lambda: jvm))


def test_an_executor_that_is_lost_has_no_slot_while_spark_still_lists_it():
    sc = context([1, 2, 3], lost=["2"], spark_executor_instances="3", spark_executor_cores="2")
    assert slots.executors(sc) == ["1", "3"] and slots.lost(sc) == ["2"]
    assert slots.registered_slots(sc) == 4 and slots.total(sc) == 6


def test_an_executor_that_is_being_ended_has_no_slot_and_is_not_lost():
    sc = context([1, 2, 3], ending=["2"], spark_executor_instances="3")
    assert slots.executors(sc) == ["1", "3"] and slots.lost(sc) == []


def test_the_executors_of_a_host_are_found_by_one_of_them():
    sc = context([1, 2, 3, 4], lost=["4"], hosts=["a", "b", "a", "a"])
    assert slots.on_host_of(sc, "1") == ["1", "3"] and slots.on_host_of(sc, "2") == ["2"]


@pytest.mark.parametrize(
    ("master", "executors"), [("yarn", 2), ("k8s://https://host:6443", 2), ("spark://host:7077", 0)]
)
def test_without_a_number_spark_starts_two_executors_on_yarn_and_on_kubernetes(master, executors):
    sc = context([], master=master)
    assert slots.executors_promised(sc) == slots.total(sc) == executors
    assert slots.executors_promised(context([], master=master, spark_executor_instances="5")) == 5
