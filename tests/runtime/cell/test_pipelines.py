"""A tf.data pipeline of the notebook gives on a rank what it gives in the notebook, or is refused before training."""

import pickle

import keras
import numpy as np
import pytest
import tensorflow as tf
from support import launch
from support.refusals import one_line

from ddl_magics.runtime.cell import names, pipelines
from ddl_magics.runtime.training import chief_feed, share

pytest.importorskip("pyspark")
pytestmark = pytest.mark.timeout(240)

rows = np.random.default_rng(0).normal(size=(20, 6))
pairs = tf.data.Dataset.from_tensor_slices((rows, rows[:, :1]))
texts = tf.data.Dataset.from_tensor_slices(["a", "b", "c"])
scale = 3.0


def table(text):
    pairs = tf.lookup.KeyValueTensorInitializer(["a", "b"], tf.constant([3, 4], tf.int64))
    return tf.lookup.StaticHashTable(pairs, -1).lookup(text)


def adapted(layer, data):
    layer.adapt(data)
    return layer


normalization, noise = adapted(keras.layers.Normalization(), rows), keras.layers.GaussianNoise(1.0)


def normalized(features, label):
    return normalization(features), label


def noisy(features, label):
    return features + tf.random.uniform([6], dtype=tf.float64), label


def blurred(features, label):
    return noise(features, training=True), label


def of_python(features, label):
    return tf.ensure_shape(tf.py_function(lambda row: row, [features], tf.float64), [6]), label


def in_any_order(dataset):
    options = tf.data.Options()
    options.deterministic = False
    return dataset.with_options(options)


def on_a_rank(dataset, in_new_process=True):
    if in_new_process:
        pipelines._resources.clear()
    make, arguments = pipelines.reduction(dataset)
    return make(*pickle.loads(pickle.dumps(arguments)))


def read(dataset):
    """The values of two iterations."""
    elements = [element for _ in range(2) for element in dataset]
    return [[part.numpy().tolist() for part in tf.nest.flatten(element, True)] for element in elements]


PIPELINES = {
    "arrays": lambda: pairs.map(lambda x, y: (x * scale, y), 2).batch(8).prefetch(2),
    "shuffled": lambda: pairs.shuffle(10, seed=3).cache().batch(4).repeat(2),
    "zipped": lambda: tf.data.Dataset.zip((pairs, tf.data.Dataset.range(9).shuffle(9, seed=1))).take(7).skip(1),
    "series": lambda: keras.utils.timeseries_dataset_from_array(
        rows, rows, sequence_length=3, batch_size=4, shuffle=True, seed=4
    ),
    "layers": lambda: pairs.map(normalized),
    "texts": lambda: texts.map(adapted(keras.layers.TextVectorization(output_mode="tf_idf"), ["a b", "b"])),
    "tables": lambda: texts.map(table),
    "seeded noise": lambda: pairs.map(lambda x, y: (x + tf.random.normal([6], dtype=tf.float64, seed=3), y)),
    "nested": lambda: pairs.flat_map(lambda x, y: tf.data.Dataset.from_tensor_slices(x).shuffle(6, seed=2)),
    "ragged": lambda: tf.data.Dataset.from_tensor_slices({"x": tf.ragged.constant([[1, 2], [3], [4, 5, 6]])}).batch(2),
    "sampled": lambda: tf.data.Dataset.sample_from_datasets([pairs, pairs.map(lambda x, y: (-x, y))], seed=3),
}


@pytest.mark.parametrize("kind", PIPELINES)
def test_the_elements_are_those_of_the_notebook(kind):
    dataset = PIPELINES[kind]()
    arrived = on_a_rank(dataset)
    assert arrived.element_spec == dataset.element_spec and arrived.cardinality() == dataset.cardinality()
    assert read(arrived) == read(dataset)


def test_pipelines_share_what_they_share_in_the_notebook_and_nothing_else():
    shuffled = tf.data.Dataset.range(20).shuffle(20, seed=1)
    orders = [list(shuffled.as_numpy_iterator()) for _ in range(3)]
    first, second = on_a_rank(shuffled), on_a_rank(shuffled.map(lambda number: number), False)
    assert [list(dataset.as_numpy_iterator()) for dataset in (first, second, first)] == orders
    assert len(list(shuffled)) == 20 and list(second.as_numpy_iterator()) not in orders


@pytest.mark.parametrize(
    "make",
    [
        lambda: pairs.shuffle(20),
        lambda: pairs.map(noisy),
        lambda: pairs.flat_map(lambda x, y: tf.data.Dataset.from_tensor_slices(x).shuffle(6)),
        lambda: tf.data.Dataset.random().take(9),
    ],
)
def test_what_draws_without_a_seed_draws_alike_on_all_ranks(make, monkeypatch):
    tf.random.set_seed(None)  # as in a notebook that has set none
    dataset = make()
    drawn = []
    for seed in (7, 7, 8):
        tf.random.set_seed(seed)  # as `startup.prepare`
        arrived = on_a_rank(dataset)
        assert not pipelines.begin_anew({"data": arrived})
        drawn.append(read(arrived))
    tf.random.set_seed(None)
    assert drawn[0] == drawn[1] != drawn[2]


def test_orders_that_go_on_are_told():
    session = {"once": on_a_rank(pairs.shuffle(9, seed=1, reshuffle_each_iteration=False)), "n": 1}
    session.update(list=[on_a_rank(pairs.shuffle(9, seed=1))], here=pairs.shuffle(9, seed=1))
    assert pipelines.begin_anew(session) == ["list"]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: pairs.map(noisy, num_parallel_calls=2).batch(2), chief_feed._PARALLEL),
        (lambda: in_any_order(pairs), chief_feed._FREE_ORDER),
        (lambda: pairs.map(lambda x, y: x, 2, deterministic=False).batch(2), chief_feed._FREE_ORDER),
        (lambda: pairs.map(lambda x, y: x, 2).shuffle(3), None),
    ],
)
def test_the_chief_reads_what_draws_in_parallel(make, reason):
    arrived = on_a_rank(make())
    assert chief_feed.drawing(arrived.prefetch(1)) == reason
    assert share.is_random(arrived) == (reason is chief_feed._PARALLEL)
    assert not share.is_random(on_a_rank(PIPELINES["seeded noise"]()))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: pairs.map(of_python), "it calls functions of Python"),
        (
            lambda: tf.data.Dataset.from_generator(lambda: [1], output_signature=tf.TensorSpec([])),
            "it calls functions of",
        ),
        (lambda: pairs.map(blurred), "it reads variables"),
        (lambda: pairs.cache("/tmp/rows"), "it caches in a file"),
        (lambda: [pairs.map(noisy).map(of_python)], "it calls functions of Python"),
    ],
)
def test_what_is_not_in_the_graph_is_refused_in_one_line(make, reason):
    session = {"train": make()}
    captured = names.captured("model.fit(train)", {**session, "model": 1})
    said = one_line(names.NameProblem, names.pack, "train", captured, session)
    assert said.startswith("'train' (") and reason in said and said.endswith("make it inside the cell")


def test_files_are_read_where_workers_have_them(tmp_path):
    for number in range(6):
        path = tmp_path / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(tf.io.encode_png(np.full((4, 4, 3), number, np.uint8)).numpy())
    images = keras.utils.image_dataset_from_directory(tmp_path, image_size=(4, 4), batch_size=4, seed=1, verbose=False)
    arrived = on_a_rank(images)
    assert read(arrived) == read(images) and arrived.class_names == ["a", "b"]
    blob = names.pack("images", {"images": images}, {})
    (tmp_path / "a" / "2.png").unlink()
    said = one_line(names.NameProblem, names.unpack, blob)
    assert said.startswith(f"'images' reads {tmp_path}/a/2.png, which this worker does not have: put the files on ")


EARLIER = """
import keras, numpy as np, tensorflow as tf
keras.utils.set_random_seed(5)
draw = np.random.default_rng(0)
x = draw.normal(size=(46, 4)); y = x.sum(1, keepdims=True); scale = 0.5
pairs = tf.data.Dataset.from_tensor_slices((x, y))
train_ds = pairs.map(lambda x, y: (x * scale, y)).cache().shuffle(20).batch(8).prefetch(2)
val_ds = pairs.take(13).batch(8)
noisy_ds = pairs.map(lambda x, y: (x + tf.random.normal([4], stddev=0.1, dtype=tf.float64), y)).batch(8)
windows = keras.utils.timeseries_dataset_from_array(x, y, sequence_length=3, batch_size=8, shuffle=True, seed=2)
zipped = tf.data.Dataset.zip((pairs, pairs.shuffle(9, seed=4))).map(lambda one, two: (one[0], two[1])).batch(8)
"""
FITS = """
learned = {}
def fit(name, shape, *data, **arguments):
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input(shape), keras.layers.Flatten(), keras.layers.Dense(3), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), "mse", metrics=["mae"])
    history = model.fit(*data, verbose=0, **arguments).history
    learned[name] = [sum(history.values(), []), [weights.tolist() for weights in model.get_weights()]]

fit("shuffled", (4,), train_ds, validation_data=val_ds, epochs=3)
fit("repeated", (4,), train_ds.repeat(), validation_data=val_ds, epochs=2, steps_per_epoch=4)
fit("noisy", (4,), noisy_ds, epochs=2)
fit("windows", (3, 4), windows, epochs=2)
fit("zipped", (4,), zipped, epochs=2)
"""


@pytest.fixture
def float64():
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    yield
    keras.config.set_floatx("float32")
    keras.config.set_dtype_policy("float32")
    tf.random.set_seed(None)


@pytest.mark.parametrize("workers", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_fits_learn_what_one_process_learns(rank_pool, float64, workers):
    session = {"__name__": "builtins"}
    exec(EARLIER, session)
    ended = launch.finished(rank_pool(workers), FITS + "learned", session, workers=workers)
    exec(FITS, session)
    for name, plain in session["learned"].items():
        for ours, theirs in zip(*map(tf.nest.flatten, (ended.result[name], plain)), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-9, err_msg=name)
    told = [
        event["message"].partition(" ")[0] for event in ended.of_kind("notice") if "first order" in event["message"]
    ]
    assert told == ["train_ds", "windows", "zipped"]
