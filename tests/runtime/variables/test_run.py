"""A whole run: the next cell finds what it would find after a plain cell, and the same cell goes on from there."""

import json
import random

import numpy as np
import pytest
from support import launch

from ddl_magics.runtime import random_streams

ROWS = np.random.default_rng(0).normal(size=(48, 4)).astype("float32")
TARGETS = ROWS.sum(axis=1, keepdims=True)
CELL = """
history = model.fit(x, y, batch_size=16, epochs=2, verbose=0, validation_split=0.25)
scores = numbers(model.get_metrics_result())
noise = [np.random.rand(), random.random(), float(tf.random.uniform([])), float(keras.random.uniform([]))]
score = model.evaluate(x, y, verbose=0)
results.append(history.history["loss"][-1])
"""


def notebook():
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, "tanh"), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.05), "mse", metrics=["accuracy"], weighted_metrics=["mae"])
    modules = {"keras": keras, "np": np, "random": random, "tf": tf}
    return {"x": ROWS, "y": TARGETS, "model": model, "results": [], "numbers": numbers, **modules}


def numbers(results):
    return {name: float(value) for name, value in results.items()}


@pytest.mark.timeout(300)
def test_a_cell_that_runs_twice_leaves_what_plain_cells_leave(rank_pool, tmp_path):
    plain, variables = notebook(), notebook()
    model, results = variables["model"], variables["results"]
    plain_streams = streams = random_streams.current()
    for _ in range(2):
        random_streams.continue_from(plain_streams)
        exec(CELL, plain)
        plain_streams = random_streams.current()
        random_streams.continue_from(streams)
        ended = launch.finished(rank_pool(2), CELL, variables, continues_streams=True)
        reply = launch.load_driver().place(json.dumps({"run": ended.run, "folder": None, "mentioned": None}), variables)
        placed = ["history", "model", "noise", "results", "score", "scores"]
        assert sorted(json.loads(reply)["placed"]) == placed and not json.loads(reply)["absent"]
        streams = random_streams.current()
        assert streams == plain_streams and variables["noise"] == plain["noise"]
        assert variables["model"] is model and variables["results"] is results
        assert variables["history"].history == model.history.history and variables["history"].epoch == [0, 1]
    assert numbers(model.get_metrics_result()) == pytest.approx(numbers(plain["model"].get_metrics_result()), rel=1e-4)
    assert variables["scores"] == pytest.approx(plain["scores"], rel=1e-4)
    assert results == pytest.approx(plain["results"], rel=1e-4)
    assert variables["score"] == pytest.approx(plain["score"], rel=1e-4)
    for ours, theirs in zip(model.get_weights(), plain["model"].get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


TWO = """
class Two(keras.Model):
    def __init__(self, inner):
        super().__init__()
        self.inner, self.best = inner, keras.optimizers.Adam(0.1)

    def call(self, rows):
        return self.inner(rows)
"""
OWN_STEP = """
with tf.GradientTape() as tape:
    loss = tf.reduce_mean((two(x) - y) ** 2)
two.best.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
rng.normal([])
top = keras.Sequential([layer, keras.layers.Dense(1)])
top.compile("sgd", "mse")
top.fit(x, y, verbose=0)
"""


@pytest.mark.timeout(300)
def test_an_optimizer_within_a_model_and_a_layer_that_a_new_model_copies(rank_pool):
    plain, variables = ({"__name__": "__main__", **notebook()} for _ in range(2))
    for each in (plain, variables):
        exec(TWO, each)
        layer = each["keras"].layers.Dense(4, name="first")
        layer.build((None, 4))
        each.update(two=each["Two"](each["model"]), rng=each["tf"].random.Generator.from_seed(1), layer=layer)
    exec(OWN_STEP, plain)
    ended = launch.finished(rank_pool(2), OWN_STEP, variables)
    reply = launch.load_driver().place(json.dumps({"run": ended.run, "folder": None, "mentioned": None}), variables)
    absent = {"layer within top": "a copy is there: take top.get_layer('first')"}
    assert json.loads(reply)["absent"] == absent and not json.loads(reply)["kept"]
    assert int(variables["two"].best.iterations) == 1
    assert float(variables["rng"].normal([])) == float(plain["rng"].normal([]))
    for ours, theirs in zip(variables["model"].get_weights(), plain["model"].get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


#: A loop of the cell's own, and layers that learn outside of a fit.
LOOP = """
normalizer.adapt(x)
vectorizer.adapt(texts)
weighted.adapt(texts)
layer.trainable = False
for start in range(0, len(x), 16):
    rows, targets = x[start : start + 16], y[start : start + 16]
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(rows) - targets) ** 2)
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
    metric.update_state(loss)
    steps.assign_add(1)
    log.losses.append(float(loss))
    log.steps += 1
    layer.steps_seen += 1
    model.notes["losses"].append(float(loss))
model.layers[0]._own_rate *= 2
model.threshold, model.tags, optimizer.clipnorm = 0.3, {"a"}, 1.0
model.watcher.seen.append("x")
del layer.old
model.layers[1].kernel_regularizer = keras.regularizers.L2(0.1)
"""

DEFINED = """
class Log:
    def __init__(self):
        self.losses, self.steps = [], 0

class Own(keras.layers.Dense):
    def __init__(self, units):
        super().__init__(units, "tanh")
        self._own_rate = 1.0

class Watcher:
    def __init__(self):
        self.seen = []
"""


def notebook_of_a_loop():
    import keras
    import tensorflow as tf

    variables = {"__name__": "__main__", **notebook()}
    exec(DEFINED, variables)
    variables.update(
        log=variables["Log"](), normalizer=keras.layers.Normalization(), vectorizer=keras.layers.TextVectorization(),
        layer=keras.layers.Dense(2), optimizer=keras.optimizers.Adam(0.05), metric=keras.metrics.Mean(),
        steps=tf.Variable(0), texts=["a b", "b c b"], weighted=keras.layers.TextVectorization(output_mode="tf_idf"),
        model=keras.Sequential([keras.Input((4,)), variables["Own"](3), keras.layers.Dense(1, name="last")]),
    )  # fmt: skip
    variables["layer"].steps_seen, variables["layer"].old = 0, 1
    variables["model"].notes, variables["model"].watcher = {"losses": []}, variables["Watcher"]()
    return variables


def states(variables):
    names = ("model", "optimizer", "metric", "normalizer")
    arrays = [np.asarray(variable) for name in names for variable in variables[name].variables]
    log, layer = variables["log"], variables["layer"]
    others = [variables["vectorizer"].get_vocabulary(), layer.trainable, int(variables["steps"]), log.steps]
    model = variables["model"]
    others += [layer.steps_seen, hasattr(layer, "old"), model.layers[0]._own_rate, model.threshold, model.tags]
    others += [variables["optimizer"].clipnorm, model.watcher.seen]
    arrays += [np.float32(model.notes["losses"]), variables["weighted"](["b a"])]
    return [*arrays, variables["normalizer"](ROWS), variables["vectorizer"](["b a"]), np.float32(log.losses)], others


@pytest.mark.timeout(300)
def test_what_a_loop_of_the_cell_changes_is_changed_in_the_same_objects(rank_pool):
    plain, variables = notebook_of_a_loop(), notebook_of_a_loop()
    exec(LOOP, plain)
    ended = launch.finished(rank_pool(2), LOOP, variables)
    before, notes = dict(variables), variables["model"].notes
    reply = launch.load_driver().place(json.dumps({"run": ended.run, "folder": None, "mentioned": None}), variables)
    absent = {"last.kernel_regularizer within model": "a L2"}
    assert (json.loads(reply)["absent"], json.loads(reply)["kept"]) == (absent, [])
    assert variables["model"].notes is notes
    names = ("model", "optimizer", "metric", "normalizer", "vectorizer", "layer", "steps", "log")
    assert all(variables[name] is before[name] for name in names)
    (ours, others), (expected, expected_others) = states(variables), states(plain)
    assert others == expected_others
    for array, expected_array in zip(ours, expected, strict=True):
        np.testing.assert_allclose(array, expected_array, atol=1e-5)
