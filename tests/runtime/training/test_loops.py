"""Loops that a cell writes itself: what is reported of them, and refused; what they learn is in tests/equality."""

import json

import numpy as np
import pytest
from support import launch

from ddl_magics.runs import tables
from ddl_magics.runtime.histories import histories

from . import test_training

pytestmark = pytest.mark.timeout(600)


#: A loop over single batches of two models, one with an optimizer of its own; then what cannot be done.
REPORTS = (
    test_training.HEAD
    + """
first, second, third = build(), build(), build()
for _ in range(6):
    first.train_on_batch(x[:32], y[:32])
    loss = second.train_on_batch(x[32:63], y[32:63])[0]
    ddl.log(loss=loss)

optimizer = keras.optimizers.SGD(0.1)
accuracy = keras.metrics.SparseCategoricalAccuracy()
data = tf.data.Dataset.from_tensor_slices((x, y)).batch(26)

@tf.function
def train(rows, labels):
    with tf.GradientTape() as tape:
        logits = third(rows, training=True)
        loss = tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True))
    gradients = tape.gradient(loss, third.trainable_variables)
    optimizer.apply_gradients(zip(gradients, third.trainable_variables))
    accuracy.update_state(labels, logits)

first.fit(x, y, batch_size=26, epochs=1, verbose=0)
for epoch in range(3):
    accuracy.reset_state()
    for rows, labels in ddl.distribute(data):
        train(rows, labels)
    ddl.log(accuracy=ddl.result(accuracy))

said = {}
def refused(name, call):
    try:
        call()
    except Exception as error:
        said[name] = str(error)

@tf.function
def in_graph():
    for rows, labels in ddl.distribute(data):
        train(rows, labels)

def uneven():
    for (rows, labels), _ in zip(ddl.distribute(data), ddl.distribute(data.unbatch().batch(13))):
        train(rows, labels)

def summed():
    for rows, labels in ddl.distribute(data):
        with tf.GradientTape() as tape:
            loss = keras.losses.SparseCategoricalCrossentropy(reduction="sum")(labels, third(rows))
        gradients = tape.gradient(loss, third.trainable_variables)
        optimizer.apply_gradients(zip(gradients, third.trainable_variables))

refused("sum", summed)
refused("in graph", in_graph)
refused("method", lambda: ddl.distribute(data).take(2))
refused("rows", lambda: ddl.distribute((x[:4], y[:3])))
refused("reduction", lambda: ddl.distribute(data, reduction="max"))
refused("uneven", uneven)
few = tf.data.Dataset.from_tensor_slices((x[:3], y[:3])).batch(2)
seen = [len(rows) for rows, labels in ddl.distribute(few)]
said
"""
)


@pytest.fixture(scope="module")
def reports(rank_pool):
    return launch.finished(rank_pool(2), REPORTS)


def test_a_loop_is_reported_like_a_fit(reports):
    fits = reports.of_kind("fit", 0)
    assert [(event["fit"], event["epochs"]) for event in fits] == [(0, 0), (1, 1), (2, 0)]
    assert [event["model"] for event in fits[::2]] == [fits[0]["model"], fits[2]["model"]]
    for rank in range(2):
        steps = [event for event in reports.of_kind("steps", rank) if event["fit"] == 0]
        assert sum(event["count"] for event in steps) == 12
        assert sum(event["rows"] for event in steps) == 6 * (16 + (15, 16)[rank])
        steps = [event for event in reports.of_kind("steps", rank) if event["fit"] == 2 and event["epoch"] < 3]
        by_epoch = [sum(event["count"] for event in steps if event["epoch"] == epoch) for epoch in range(3)]
        assert by_epoch == [5, 5, 5] and sum(event["rows"] for event in steps) == 3 * 65
        assert all(event["seconds"] > 0 and event["compute"] > 0 for event in steps)
    shown = {name for event in reports.of_kind("steps", 0) if event["fit"] == 0 for name in event["metrics"]}
    second = next(name for name in shown if name.startswith("loss of "))
    assert shown == {"loss", "accuracy", second, second.replace("loss", "accuracy")}


def test_a_batch_that_leaves_a_worker_without_a_row_is_told(reports):
    said = [event["rank"] for event in reports.of_kind("notice") if "fewer rows than there are" in event["message"]]
    assert said == [0]


def test_its_history_is_what_it_logs(reports):
    single, fit, tape = histories(reports.events)
    assert len(single["loss"]) == 6 and single["loss"][-1] < single["loss"][0]
    assert set(fit) == {"loss", "accuracy"}
    assert tables.last_history(reports.events) == tape and len(tape["accuracy"]) == 3
    logged = reports.logged("accuracy")
    assert logged[::2] == logged[1::2]  # the ranks have seen other rows, and know of all


def test_its_models_come_back(reports):
    assert [len(launch.weights(reports.run, index)) for index in range(3)] == [4, 4, 4]
    weights = [np.concatenate([w.ravel() for w in launch.weights(reports.run, index)]) for index in range(3)]
    assert len({one.tobytes() for one in weights}) == 3


def test_what_cannot_be_distributed_is_refused(reports):
    refused = reports.result
    assert "call a tf.function with each batch" in refused["in graph"]
    assert "ddl.distribute(dataset.take(...))" in refused["method"]
    assert "different numbers of rows" in refused["rows"]
    assert "'mean' or 'sum'" in refused["reduction"]
    assert "reduction='mean' if you divide it by their number" in refused["sum"]
    assert "no weight is right for both" in refused["uneven"]


ALONE = (
    test_training.HEAD
    + """
model = build()
losses = [model.train_on_batch(x[:32], y[:32])[0] for _ in range(3)]
optimizer = keras.optimizers.SGD(0.1)

@tf.function
def train(rows, labels):
    with tf.GradientTape() as tape:
        loss = model.compute_loss(rows, labels, model(rows))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))

rows = []
try:
    for inputs, labels in ddl.distribute(tf.data.Dataset.from_tensor_slices((x, y)).batch(100)):
        train(inputs, labels)
        rows.append(len(labels))
except RuntimeError as error:
    rows = str(error)
ddl.log(loss=losses[-1])
[losses, rows]
"""
)


def test_one_worker_has_the_whole_batch(rank_pool):
    ended = launch.finished(rank_pool(2), ALONE, strategy="single", workers=1)
    losses, rows = ended.result
    assert losses[2] < losses[0] and rows == [100, 30]
    assert histories(ended.events) == [{"loss": losses[2:]}] and launch.weights(ended.run)
    assert [sum(event[name] for event in ended.of_kind("steps")) for name in ("count", "rows")] == [5, 226]


LISTING = """
import keras

class Listing(keras.Model):
    def __init__(self, *args):
        super().__init__(*args)
        self.rows_seen = []

    def train_step(self, data):
        self.rows_seen.append(len(data[0]))
        return super().train_step(data)

inputs = keras.Input((8,))
listing = Listing(inputs, keras.layers.Dense(2)(inputs))
listing.compile("sgd", "mse", metrics=["mae"], run_eagerly=True)
"""
FIT_OF_LISTING = """
listing.fit(x, keras.ops.one_hot(y, 2), batch_size=13, epochs=2, verbose=0)
weight_sum = float(sum(weights.sum() for weights in listing.get_weights()))
scores = {name: float(value) for name, value in listing.get_metrics_result().items()}
"""


def test_with_a_parameter_server_loops_and_lists_of_a_worker_are_told_and_variables_come(rank_pool):
    variables = {"__name__": "__main__"}
    exec(LISTING, variables)
    listing, rows_seen = variables["listing"], variables["listing"].rows_seen
    ended = launch.finished(rank_pool(2), test_training.HEAD + FIT_OF_LISTING + ALONE, variables, strategy="ps")
    assert "needs --strategy allreduce; with --strategy ps, use model.fit" in ended.result[1]
    notices = [event["message"] for event in ended.of_kind("notice")]
    assert any("train_on_batch is not distributed with --strategy ps" in message for message in notices)
    named = "train_step of the model 'Listing' sets 'rows_seen' in Python, and each of the 2 workers for batches of its"
    assert [named in message for message in notices].count(True) == 1
    reply = launch.load_driver().place(json.dumps({"run": ended.run, "folder": None, "mentioned": None}), variables)
    assert "listing" in json.loads(reply)["placed"] and not json.loads(reply)["kept"]
    assert variables["listing"] is listing and listing.rows_seen is rows_seen and len(rows_seen) == 10
    assert sum(weights.sum() for weights in listing.get_weights()) == pytest.approx(variables["weight_sum"])
    scores = {name: float(value) for name, value in listing.get_metrics_result().items()}
    assert scores == pytest.approx(variables["scores"])
