"""What code keeps in Python comes back: wherever a function, a loss or a model may keep it."""

import collections
import functools
import random
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

from ddl_magics.runtime.trial import COUPLED, MEAN, OUTPUT, TARGET, Leaf, adds_up, try_loss
from ddl_magics.runtime.trial.python_state import PythonState, differing

LEAVES = [Leaf(TARGET, (3,), np.dtype("float32")), Leaf(OUTPUT, (3,), np.dtype("float32"))]

calls, seen, by_name, flags = 0, [], collections.Counter(), {"warm": True}
drawn, ordinary, table = np.random.default_rng(1), random.Random(2), np.zeros(3)


class Schedule:
    made = 0

    def __init__(self):
        self.step, self.past = 0, collections.deque(maxlen=3)

    def next(self):
        Schedule.made += 1
        self.step += 1
        self.past.append(self.step)
        return self.step


schedule, inner = Schedule(), SimpleNamespace(schedule=Schedule(), level=None)


def tried(y, p, mine=[]):  # noqa: B006
    global calls, created
    calls += 1
    created = calls
    seen.append(y)
    by_name["calls"] += 1
    del flags["warm"]
    table[0] += 1
    mine.append(calls)
    tried.calls = calls
    inner.level = schedule.next() + drawn.uniform() + ordinary.random()
    return functools.partial(tf.reduce_mean, (y - p) ** 2)()


def everything():
    values = {name: globals().get(name) for name in ("calls", "created")}
    values |= {"contents": [list(seen), dict(by_name), dict(flags), table.tolist(), list(tried.__defaults__[0])]}
    values |= {"function": vars(tried).copy(), "class": Schedule.made, "inner": inner.level}
    values |= {"schedule": (schedule.step, list(schedule.past)), "random": ordinary.getstate()}
    return values | {"drawn": drawn.bit_generator.state}


def test_all_places_of_a_function():
    before = everything()
    state = PythonState([tried])
    with state.restored():
        tried(1.0, 2.0)
        assert everything() != before and {"calls", "seen", "step"} <= state.changes().keys()
    assert everything() == before and not state.changes()


def test_a_closure_and_what_it_mentions():
    count, kept = 0, {}

    def loss(y, p):
        nonlocal count
        count += 1
        kept[count] = y
        return p

    with PythonState([functools.partial(loss, p=1)]).restored():
        loss(1, 1)
        assert (count, kept) == (1, {1: 1})
    assert (count, kept) == (0, {})


def test_the_attributes_of_a_model_and_what_it_makes():
    """Layers and variables stay: they are made once."""
    made = SimpleNamespace(layer=None)

    class Lazy(keras.Model):
        def __init__(self):
            super().__init__()
            self.calls, self._own, self.rows, self.named, self.made = 0, 0, [], {}, made

        def call(self, x):
            self.calls += 1
            self._own += 1
            self.rows.append(x)
            self.named["x"] = x
            made.layer = made.layer or tf.Variable(1.0)
            return x * made.layer

    model = Lazy()
    model(np.zeros((2, 3)))
    made.layer = None
    with PythonState([model]).restored():
        model(np.zeros((2, 3)))
    assert (model.calls, model._own, len(model.rows), len(model.named)) == (1, 1, 1, 1)
    assert isinstance(made.layer, tf.Variable)


def test_methods_that_this_library_replaces_meanwhile_stay():
    """A metric that is made in a trial is hooked there, once."""
    metric = Collected()
    with PythonState([metric]).restored():
        metric.update_state, metric.result = differing, lambda: 0.0
    assert metric.update_state is differing and "result" not in vars(metric)


def test_long_lists_lose_what_was_appended(monkeypatch):
    monkeypatch.setattr("ddl_magics.runtime.trial.python_state._MOST_ITEMS", 2)
    long = [1, 2, 3]
    with PythonState([lambda: long]).restored():
        long.append(4)
    assert long == [1, 2, 3]


@pytest.mark.parametrize(("one", "other", "names"), [(1, 1, set()), (1, 2, {"a"}), ([tf.ones(2)], [tf.ones(3)], {"a"})])
def test_what_differs(one, other, names):
    assert differing({"a": one}, {"a": other}) == names


class Collected(keras.metrics.Metric):
    """Of the cell."""


class Counting(keras.losses.Loss):
    calls, level = 0, 1.0

    def call(self, y, p):
        self.calls += 1
        return self.calls * tf.reduce_mean((y - p) ** 2, -1)


class Following(Counting):
    def call(self, y, p):
        self.level = float(tf.reduce_mean(p))
        return super().call(y, p)


def test_a_loss_begins_where_it_was():
    loss = Counting()
    assert try_loss(loss, LEAVES, loss).kind == MEAN and loss.calls == 0


def test_a_loss_whose_state_follows_from_its_rows_is_one_of_all_rows():
    loss = Following()
    assert try_loss(loss, LEAVES, loss).kind == COUPLED and loss.level == 1.0


class Sum(keras.metrics.Metric):
    def __init__(self):
        super().__init__()
        self.total, self.rows = self.add_weight(shape=(), initializer="zeros"), []

    def update_state(self, y, p):
        self.total.assign_add(tf.reduce_sum(p))


class Listing(Sum):
    def update_state(self, y, p):
        super().update_state(y, p)
        self.rows.append(p)

    def reset_state(self):
        super().reset_state()
        self.rows = []


def test_a_metric_with_rows_in_a_list_does_not_add_up():
    of_variables, of_lists = Sum(), Listing()
    found = [
        adds_up(m, lambda tensors, m=m: m.update_state(*tensors), LEAVES, by_row=False)
        for m in (of_variables, of_lists)
    ]
    assert found == [True, False] and of_lists.rows == []
