"""Pipelines that draw otherwise in each process: rank 0 reads them, and the ranks learn what one process learns."""

import subprocess
import sys
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf
from support import hosts, launch

from ddl_magics.runtime.training import chief_feed, share

pytestmark = pytest.mark.timeout(300)

#: Each rank would draw with a seed of its own; a plain process draws as rank 0.
CELL = """
import json
import keras, numpy as np, tensorflow as tf
keras.config.set_floatx("float64")
keras.utils.set_random_seed(7)
SEED = getattr(globals().get("ddl"), "rank", 0)
x = np.arange(88.0).reshape(22, 4) / 88
y = x.sum(1, keepdims=True)
names = np.array([b"a\\0", b"bc"] * 11)

def noisy(seed, weighted=False):
    draws = np.random.default_rng(100 * SEED + seed)
    for begin in list(range(0, 22, 8)) * 4:
        rows = slice(begin, begin + 8)
        batch = {"x": x[rows] + draws.normal(size=x[rows].shape)}, y[rows]
        yield (*batch, draws.random(len(y[rows]))) if weighted else batch

class Augmented(keras.utils.PyDataset):
    def __init__(self):
        super().__init__()
        self.draws = np.random.default_rng(SEED)
    def __len__(self):
        return 3
    def __getitem__(self, at):
        rows = slice(8 * at, 8 * at + 8)
        return x[rows] + self.draws.normal(size=x[rows].shape), y[rows]

def draw(rows):
    return rows + np.random.default_rng(SEED + int(1000 * rows.sum())).normal(size=rows.shape)

def augment(rows, targets):
    return tf.ensure_shape(tf.numpy_function(draw, [rows], tf.float64), [None, 4]), targets

arrays = tf.data.Dataset.from_tensor_slices((x, y)).batch(8)
spec = {"x": tf.TensorSpec([None, 4], tf.float64)}, tf.TensorSpec([None, 1], tf.float64)
generated = tf.data.Dataset.from_generator(lambda: noisy(3), output_signature=spec)
in_parallel = arrays.repeat().map(augment, num_parallel_calls=2)
alike = tf.data.Dataset.from_generator(lambda: ((x[at : at + 8], y[at : at + 8]) for at in (0, 8, 16)),
    output_signature=(tf.TensorSpec([None, 4], tf.float64), tf.TensorSpec([None, 1], tf.float64)))
FITS = {
    # One validation: in a second one, plain Keras goes on where its own thread has read ahead to by chance.
    "generator": dict(x=noisy(1, weighted=True), steps_per_epoch=4, epochs=2, validation_data=noisy(2),
        validation_steps=3, validation_freq=2),
    "pydataset": dict(x=Augmented(), epochs=3),
    "from_generator": dict(x=generated, epochs=2),
    "in_parallel": dict(x=in_parallel, steps_per_epoch=3, epochs=2, validation_data=arrays.map(augment, 2)),
    "alike": dict(x=alike, epochs=2),
}
learned = {}
for name, arguments in FITS.items():
    inputs = keras.Input((4,), name="x")
    model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Dense(3, activation="tanh")(inputs)))
    together = 2 if name == "in_parallel" else 1
    # Adam: at the end of data of unknown length, plain Keras counts one step more than it makes.
    model.compile(keras.optimizers.Adam(0.05), "mse", metrics=["mae"], steps_per_execution=together)
    history = model.fit(verbose=0, **arguments).history
    values = [float(value) for key in sorted(history) for value in history[key]]
    values += [float(v) for w in model.get_weights() for v in np.ravel(w)]
    learned[name] = [*values, int(model.optimizer.iterations)]
"""


@pytest.fixture(scope="module")
def plain():
    cell = CELL + "\nprint('@@' + json.dumps(learned))"
    output = subprocess.run([sys.executable, "-c", cell], capture_output=True, text=True, check=True).stdout
    return launch.json.loads(output.rpartition("@@")[2])


on_hosts = pytest.mark.skipif(not hosts.can_be_pretended(), reason="hosts are pretended with root's rights, on Linux")


@pytest.mark.parametrize(
    ("workers", "a_host", "transport"),
    [
        (2, 2, "SharedMemory False"),
        pytest.param(3, 2, "Hierarchy True", marks=[on_hosts, pytest.mark.slow]),
        pytest.param(2, 1, "Ring True", marks=[on_hosts, pytest.mark.slow]),
        pytest.param(4, 2, "Hierarchy True", marks=[on_hosts, pytest.mark.slow]),
    ],
)
def test_a_pipeline_that_draws_is_read_once(rank_pool, plain, tmp_path, workers, a_host, transport):
    """On one host, and on hosts of `a_host` workers each."""
    python = hosts.python(tmp_path, a_host) if workers > a_host else sys.executable
    cell = hosts.TRANSPORT + CELL + "\nlearned"
    ended = launch.run_cell(rank_pool(workers, python), cell, workers=workers, seconds=200)
    assert ended.state == "FINISHED", ended.message
    assert ended.logs().count("transport " + transport) == workers
    learned = ended.result
    for name, values in plain.items():
        np.testing.assert_allclose(learned[name], values, rtol=1e-9, atol=1e-12, err_msg=name)
    notices = [event["message"] for event in ended.of_kind("notice") if "one rank alone reads" in event["message"]]
    for reason in (chief_feed._DIFFERENT, chief_feed._PARALLEL):  # once for each, and again where training waits
        assert 1 <= len([text for text in notices if reason in text]) <= 2, notices


def test_elements_travel_whole():
    sparse = tf.sparse.from_dense([[0, 5], [6, 0]])
    element = {
        "texts": tf.constant([b"a\0", b"", "ü".encode()]),
        "ragged": tf.ragged.constant([[1, 2], []], tf.int64),
        "sparse": sparse,
        "half": tf.constant([1.5], tf.bfloat16),
        "scalar": tf.constant(True),
    }
    dataset = tf.data.Dataset.from_tensors(element).map(lambda parts: (parts, None))
    assert chief_feed.Elements.can_pack(dataset.element_spec)
    elements = chief_feed.Elements(dataset.element_spec)
    payload = elements.pack(next(iter(dataset)))
    unpacked = tf.data.Dataset.from_tensors(payload).map(elements.unpack)
    assert unpacked.element_spec == dataset.element_spec
    ((parts, none),) = unpacked
    assert none is None
    assert chief_feed.digest(parts) == chief_feed.digest(element)
    assert not chief_feed.Elements.can_pack(dataset.window(2).element_spec)


def test_a_batch_is_dealt_as_it_would_be_cut():
    batches = tf.data.Dataset.range(23).batch(5).map(lambda rows: (rows, tf.strings.as_string(rows)))
    for rank in range(3):
        dealt = chief_feed.ChiefShares(batches, chief_feed.OwnReading(), rank, 3)
        for _ in range(2):
            for share_of_dealt, share_of_cut in zip(dealt, share.cut(batches, rank, 3), strict=True):
                assert chief_feed.digest(tuple(share_of_dealt)) == chief_feed.digest(tuple(share_of_cut))


def noise(row):
    return tf.cast(row, tf.float32) + tf.random.uniform([])


@pytest.mark.parametrize(
    "dataset, reason",
    [
        (lambda rows: rows.map(noise), None),
        (lambda rows: rows.map(noise, num_parallel_calls=2).batch(2).prefetch(1), chief_feed._PARALLEL),
        (lambda rows: rows.map(lambda row: row + 1, num_parallel_calls=2).shuffle(4), None),
        (lambda rows: rows.map(lambda row: row, num_parallel_calls=2, deterministic=False), chief_feed._FREE_ORDER),
    ],
)
def test_what_a_graph_tells_of_draws(dataset, reason):
    assert chief_feed.drawing(dataset(tf.data.Dataset.range(8))) == reason


def test_draws_of_a_generator_and_of_keras_layers_are_seen():
    generator = tf.random.Generator.from_seed(3)
    layer = keras.layers.RandomFlip()
    images = tf.data.Dataset.from_tensors(tf.zeros([2, 4, 4, 1]))
    for augment in (lambda rows: rows + generator.normal([4, 4, 1]), lambda rows: layer(rows, training=True)):
        assert chief_feed.drawing(images.map(augment, num_parallel_calls=2)) == chief_feed._PARALLEL


def read_by_chief(monkeypatch, said, reading_seconds, step_seconds):
    """What rank 0 of two says of 40 batches of 8 rows: (level, text) each."""
    now, notices = [0.0], []
    monkeypatch.setattr(chief_feed.time, "perf_counter", lambda: now[0])
    rank = SimpleNamespace(
        peers=SimpleNamespace(position=0, place=(0, 2), feed=SimpleNamespace(scatter=lambda payloads, *_: payloads[0])),
        errors=SimpleNamespace(first=None),
        reporter=SimpleNamespace(notice_once=lambda *notice: notices.append(notice)),
    )
    reading = chief_feed.ChiefReading(rank, chief_feed._PARALLEL, said)

    def batches():
        for _ in range(40):
            now[0] += reading_seconds
            reading.note_rows(8)
            yield [b"rows", b"rows"]

    for _ in reading.payloads(batches()):
        now[0] += step_seconds
    return notices


def test_the_rate_of_the_reader_is_said_once_and_what_to_do_where_training_waits_for_it(monkeypatch):
    said = set()
    ((level, text),) = read_by_chief(monkeypatch, said, reading_seconds=0.01, step_seconds=0.03)
    assert level == "info" and text.endswith("it draws at random in parallel calls: 200 rows/s")
    assert read_by_chief(monkeypatch, said, reading_seconds=0.01, step_seconds=0.04) == []
    ((level, text),) = read_by_chief(monkeypatch, said, reading_seconds=0.03, step_seconds=0.01)
    assert level == "warning" and ": 200 rows/s; training waits for it: " in text
    assert "with seeds" in text and "ddl.local(...)" in text


def test_parts_of_unequal_rows_are_refused():
    batches = tf.data.Dataset.from_generator(
        lambda: [(np.zeros([4, 2]), np.zeros([3, 1]))],
        output_signature=(tf.TensorSpec([None, 2]), tf.TensorSpec([None, 1])),
    )
    with pytest.raises(tf.errors.OpError, match="the parts of a batch have different numbers of rows"):
        list(chief_feed.ChiefShares(batches, chief_feed.OwnReading(), 0, 2))


FAULTY = """
import os, keras, numpy as np
RANK = getattr(ddl, "rank")

def batches():
    draws = np.random.default_rng(RANK)
    while True:
        yield draws.normal(size=(8, 4)), draws.normal(size=(8, 1))
        FAULT

class Fault(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        LEAVE

model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(batches(), steps_per_epoch=20, verbose=0, callbacks=[Fault()])
"""


@pytest.mark.parametrize(
    "fault, leave, failure",
    [
        ("if draws.random() < 0.2: raise ValueError('bad batch')", "pass", (0, "ValueError: bad batch")),
        ("pass", "if RANK == 1 and batch == 5: os._exit(9)", (1, "exit status 9")),
    ],
)
def test_a_fault_ends_all_ranks(rank_pool, fault, leave, failure):
    cell = FAULTY.replace("FAULT\n", fault + "\n").replace("LEAVE", leave)
    ended = launch.run_cell(rank_pool(2), cell, seconds=60, attempts=1)
    assert ended.state == "FAILED"
    assert ended.failure["rank"] == failure[0]
    assert failure[1] in ended.failure["message"], ended.failure["message"]
