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
history = model.fit(x, y, batch_size=16, epochs=2, verbose=0)
noise = [np.random.rand(), random.random(), float(tf.random.uniform([])), float(keras.random.uniform([]))]
score = model.evaluate(x, y, verbose=0)
results.append(history.history["loss"][-1])
"""


def notebook():
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, "tanh"), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.05), "mse")
    modules = {"keras": keras, "np": np, "random": random, "tf": tf}
    return {"x": ROWS, "y": TARGETS, "model": model, "results": [], **modules}


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
        assert sorted(json.loads(reply)["placed"]) == ["history", "model", "noise", "results", "score"]
        streams = random_streams.current()
        assert streams == plain_streams and variables["noise"] == plain["noise"]
        assert variables["model"] is model and variables["results"] is results
        assert variables["history"].history == model.history.history and variables["history"].epoch == [0, 1]
    assert results == pytest.approx(plain["results"], rel=1e-4)
    assert variables["score"] == pytest.approx(plain["score"], rel=1e-4)
    for ours, theirs in zip(model.get_weights(), plain["model"].get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
