"""What a cell may do on the ranks beyond learning the right thing: data, names, stopping, files, results."""

from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from support import comparison, launch

from ddl_magics.runtime.cell import execution

pytestmark = pytest.mark.timeout(300)

HEAD = """
import keras, numpy as np, tensorflow as tf
x = np.random.default_rng(0).normal(size=(130, 8)).astype("float32")
y = (x.sum(1) > 0).astype("int64")
def build(activation="relu"):
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(8, activation=activation), keras.layers.Dense(2)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1), loss, metrics=["accuracy"])
    return model
"""


EVALUATION = (
    HEAD
    + """
import os
seen = {}
class Watch(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        seen[f"logs {epoch}"] = dict(logs)
        if ddl.is_chief:  # a collective would hang here
            seen["own"] = self.model.evaluate(x[:40], y[:40], verbose=0, return_dict=True)
        seen["predicted"] = self.model.predict(x[:10], verbose=0).tolist()
model = build()
path = os.path.join(SHARED, "best.keras")
best = keras.callbacks.ModelCheckpoint(path, monitor="val_loss", save_best_only=True)
model.fit(x, y, batch_size=32, epochs=2, validation_split=0.2, verbose=0, callbacks=[Watch(), best])
ddl.log(again=model.evaluate(x, y, verbose=0)[0], loaded=float(np.sum(keras.models.load_model(path).get_weights()[0])))
ddl.log(**{f"{key} {name}": v for key, logs in seen.items() if "logs" in key for name, v in logs.items()})
ddl.log(total=float(ddl.allreduce(np.arange(3), "sum").sum()), mean=float(ddl.allreduce(float(ddl.rank))))
ddl.barrier()
evaluated = {"own": seen["own"], "predicted": seen["predicted"]} if ddl.is_chief else None
"""
)
STOPPING = (
    HEAD
    + """
class StopHere(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if ddl.rank == 1 and batch == 2:
            self.model.stop_training = True
model = build()
history = model.fit(x, y, batch_size=13, epochs=50, verbose=0, callbacks=[StopHere()])
ddl.log(epochs=len(history.history["loss"]))
"""
)
NOISE = """
class Seen(keras.layers.Layer):
    def call(self, x):
        tf.numpy_function(lambda values: SUMS.append(float(np.sum(values * np.arange(64)))), [x], [])
        return x
SUMS = []
noisy = keras.Sequential([keras.Input((64,)), keras.layers.Dropout(0.5), Seen(), keras.layers.Dense(1)])
noisy.compile("sgd", "mse")
ones = np.ones((64, 64), "float32")
noisy.fit(ones, ones[:, :1], batch_size=32, verbose=0)
ddl.log(noise=SUMS[-1])
ddl.log(noisy=float(np.sum(noisy.get_weights()[0])))
"""
PROGRESS = """
build().fit(x, y, epochs=2)
print("done", ddl.rank)
"""
FOREIGN_TO_XLA = """
class Foreign(keras.layers.Layer):
    def call(self, x):
        same = tf.numpy_function(lambda values: values, [x], x.dtype)
        same.set_shape(x.shape)
        return same
model = keras.Sequential([keras.Input((8,)), Foreign(), keras.layers.Dense(2)])
model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=COMPILED)
model.fit(x, y, batch_size=26, verbose=0)
"""
MIXED = """
keras.mixed_precision.set_global_policy("mixed_float16")
model = build()
model.optimizer.initial_scale = 1e38  # overflows at first, by design
model.fit(x, y, batch_size=26, epochs=30, verbose=0)
ddl.log(scale=float(np.asarray(model.optimizer.dynamic_scale)), weights=float(np.sum(model.get_weights()[0])))
"""

OWN_STEP = """
class Own(keras.Model):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            p = self(x, training=True)
            loss = LOSS
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(CHANGED, self.trainable_variables))
        self.largest.assign(tf.reduce_max(x))
        self.steps.assign_add(1.0)
        return {"loss": loss}
weight = tf.Variable(0.0, trainable=False)
given = keras.Input((8,))
model = Own(given, keras.layers.Dense(4)(given))
model.largest, model.steps = (keras.Variable(0.0, trainable=False, name=name) for name in ("largest", "steps"))
model.compile("sgd", lambda y, p: tf.reduce_max((y - p) ** 2))
model.fit(x, x[:, :4], verbose=0)
"""


def own_step(loss, gradients="gradients"):
    return OWN_STEP.replace("LOSS", loss).replace("CHANGED", gradients)


NOT_PUT_TOGETHER = "the loss of train_step of the model 'Own' is neither a mean nor a sum"

#: Fits that cannot be put together, and what is said of them.
REFUSED = {
    # A loss of all rows, multiplied by a term of a worker's own rows.
    own_step("self.compute_loss(x=x, y=y, y_pred=p) * tf.reduce_mean(p**2)"): NOT_PUT_TOGETHER,
    # A mean that becomes a sum later: the weight of a term begins at 0.
    own_step("tf.reduce_mean(p**2) + weight * tf.reduce_sum(p)"): NOT_PUT_TOGETHER,
    # And by a counter.
    own_step(
        "tf.cond(self.optimizer.iterations < 4, lambda: tf.reduce_mean(p**2), lambda: tf.reduce_sum(p**2))"
    ): NOT_PUT_TOGETHER,
    # A mean over what is kept, by a number that no row of the trial would have by chance.
    own_step("tf.reduce_sum(p * tf.cast(y != -100, p.dtype)) / tf.reduce_sum(tf.cast(y != -100, p.dtype))"): (
        NOT_PUT_TOGETHER
    ),
    # Weights that a step changes without an optimizer.
    own_step("tf.reduce_mean((y - p) ** 2)").replace(
        "self.largest.assign(",
        "self.trainable_variables[0].assign_sub(0.1 * gradients[0])\n        self.largest.assign(",
    ): "changes the weight",
    # Gradients of a worker's own rows, which are clipped where they are large only.
    own_step("tf.reduce_mean((y - p) ** 2)", "tf.clip_by_global_norm(gradients, 20.0)[0]"): "global_clipnorm",
    # Rows beside each other in a train_step.
    own_step(
        "tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(tf.range(tf.shape(p)[0]), p @ tf.transpose(p)))"
    ): NOT_PUT_TOGETHER,
    # Rows beside each other in a layer, also beside a loss whose rows are put together.
    """
class Spread(keras.layers.Layer):
    def call(self, inputs):
        self.add_loss(tf.reduce_mean(tf.math.reduce_variance(inputs, 0)))
        return inputs
model = keras.Sequential([keras.Input((8,)), Spread(name="spread"), keras.layers.Dense(1)])
model.compile("sgd", lambda y, p: tf.reduce_max((y - p) ** 2))
model.fit(x, x[:, :1], verbose=0)
""": "the loss that the layer 'spread' adds is neither",
    # And in a model, for a loss that is a mean.
    """
class Joined(keras.Model):
    def call(self, inputs):
        return tf.tensordot(inputs, inputs, 2) + inputs
model = Joined()
model.compile("sgd", "mse")
model.fit(x, x, verbose=0)
""": "the model 'Joined' couples the rows of a batch",
    # Batches whose first axis is not rows.
    """
pairs = tf.data.Dataset.from_tensors((np.ones((2, 10, 8), "float32"), np.ones(10))).repeat(4)
build().fit(pairs, verbose=0)
""": "the parts of a batch have 2 and 10 rows",
    """
class Pairs(keras.Model):
    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(data[0], training=True) - self(data[1], training=True)) ** 2)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss}
given = keras.Input((8,))
model = Pairs(given, keras.layers.Dense(4)(given))
model.compile("sgd")
model.fit(tf.data.Dataset.from_tensors(np.ones((2, 10, 8), "float32")).repeat(4), verbose=0)
""": "the loss of train_step of the model 'Pairs' is neither a mean nor a sum",
    """
model = keras.Sequential([keras.Input((3, 8), batch_size=26), keras.layers.LSTM(4, stateful=True, name="steady")])
model.compile("sgd", "mse")
model.fit(np.ones((52, 3, 8), "float32"), np.ones((52, 4), "float32"), batch_size=26, verbose=0)
""": "the layer 'steady' is stateful",
    # What XLA does not know, in a step that is XLA's.
    FOREIGN_TO_XLA.replace("COMPILED", "True"): "PyFunc",
}
REFUSALS = f"""
def refusal(fit):
    try:
        exec(fit, globals())
    except Exception as error:
        return str(error)
refusals = [refusal(fit) for fit in {list(REFUSED)!r}]
"""
GENERATED = """
import itertools
numbers = ((np.full((6, 1), n, "float32"), np.zeros((6, 1), "float32")) for n in itertools.count(1))
same = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="ones")])
same.compile(keras.optimizers.SGD(0.0), "mae")
fitted = [same.fit(numbers, steps_per_epoch=3, epochs=2, verbose=0).history["loss"] for _ in range(3)]
ddl.log(generated=fitted == [[2.0, 5.0], [8.0, 11.0], [14.0, 17.0]])
"""
#: The numbers of the fits in the cell of all of these.
EVALUATED, STOPPED, FOREIGN = 0, 1, 4
#: What the ranks log in it beside the values of `EVALUATION`.
LOGGED = {"epochs", "noise", "noisy", "scale", "weights"}


@pytest.fixture(scope="module")
def fits(rank_pool, tmp_path_factory):
    """One run of many small fits, as a launch takes longer than all of them."""
    foreign = FOREIGN_TO_XLA.replace("COMPILED", "False")
    states = own_step("tf.reduce_mean((y - p) ** 2)")
    cell = EVALUATION + STOPPING + NOISE + PROGRESS + foreign + REFUSALS + states + GENERATED + MIXED
    cell += "[evaluated, refusals]"
    shared = str(tmp_path_factory.mktemp("shared"))
    return launch.finished(rank_pool(2), cell, {"SHARED": shared}, compression="bf16")


def evaluation(ended):
    """What each rank has logged of `EVALUATION`: {name: value}."""
    values = [[pair for e in ended.of_kind("values", rank) for pair in e["metrics"].items()] for rank in range(2)]
    return [{name: value for name, value in pairs if name not in LOGGED} for pairs in values]


def test_evaluation_callbacks_files_and_collectives(fits):
    said, evaluated = evaluation(fits), fits.result[0]
    assert said[0] == said[1]  # the same logs on every rank, and the same model loaded from an absolute path
    assert said[0]["total"] == 6.0 and said[0]["mean"] == 0.5 and "logs 1 val_accuracy" in said[0]
    assert evaluated["own"]["loss"] > 0 and np.shape(evaluated["predicted"]) == (10, 2)


def test_ranks_of_a_host_exchange_gradients_by_shared_memory(fits):
    steps = [e for e in fits.of_kind("steps") if e["fit"] == EVALUATED]
    assert {e["rank"] for e in steps} == {0, 1}
    assert all(0 < e["copy"] <= e["wait"] and e["wire"] == 0 for e in steps)


def test_ranks_report_their_waiting_for_data(fits):
    steps = [e for e in fits.of_kind("steps") if e["fit"] == EVALUATED]
    assert all(0 < e["data"] <= 1.001 * e["seconds"] - e["compute"] - e["wait"] for e in steps)


def test_the_versions_of_a_rank_are_reported_once(fits):
    told = [e["versions"] for e in fits.of_kind("worker", 0) if "versions" in e]
    assert [sorted(versions) for versions in told] == [["keras", "python", "spark", "tensorflow"]]
    assert told[0]["spark"] == metadata.version("pyspark")


def test_stop_training_by_one_rank_stops_all_at_the_same_step(fits):
    assert fits.logged("epochs") == [1, 1]
    steps = [sum(e["count"] for e in fits.of_kind("steps", rank) if e["fit"] == STOPPED) for rank in range(2)]
    assert steps == [3, 3]
    (notice,) = [e["message"] for e in fits.of_kind("notice") if "has stopped a fit" in e["message"]]
    assert notice.startswith("a callback has stopped a fit on worker 1 and not on worker 0, and it ends on all: ")


STOPS_ALONE = """
import keras, numpy as np
x = np.random.default_rng(0).normal(size=(64, 8)).astype("float32")
class Stop(keras.callbacks.Callback):
    pass
def stop(self, *args, **kwargs):
    if ddl.rank == 1 and (not args or not isinstance(args[0], int) or args[0] == 1):
        self.model.stop_training = True
for hook in HOOKS:
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    kind = type("Stop", (Stop,), {hook: stop})
    data = dict(validation_data=(x, x[:, :2]), validation_batch_size=16)
    fit = model.fit(x, x[:, :2], batch_size=16, epochs=6, verbose=0, callbacks=[kind()], **data)
    ddl.log(**{hook: len(fit.history["loss"])})
"""
HOOKS = {
    **dict.fromkeys(("on_train_begin", "on_train_batch_begin", "on_train_batch_end"), 1),
    **dict.fromkeys(("on_test_begin", "on_test_batch_end", "on_test_end"), 1),
    **dict.fromkeys(("on_epoch_begin", "on_epoch_end"), 2),
}


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["allreduce", "average"])
def test_a_callback_that_stops_one_rank_alone_wherever_it_does_leaves_no_other_waiting(rank_pool, strategy):
    ended = launch.finished(rank_pool(2), STOPS_ALONE.replace("HOOKS", repr(list(HOOKS))), strategy=strategy)
    assert {hook: ended.logged(hook) for hook in HOOKS} == {hook: [epochs] * 2 for hook, epochs in HOOKS.items()}


def test_steps_that_the_loss_scale_skips_are_no_fault(fits):
    first, second = fits.logged("scale")
    assert first == second and first < 1e38
    assert len(set(fits.logged("weights"))) == 1
    assert np.isfinite(fits.history["loss"][-1])


def test_a_layer_foreign_to_xla_is_trained_where_the_step_is_not_xlas(fits):
    """And REFUSED holds that it is refused where it is."""
    assert FOREIGN in {event["fit"] for event in fits.of_kind("epoch")}


def test_fits_go_on_with_a_generator(fits):
    """Keras reads ahead; what was read in vain is not lost."""
    assert fits.logged("generated") == [True, True]
    assert sum("reuses the generator" in e["message"] for e in fits.of_kind("notice")) == 1


def test_what_cannot_be_put_together_is_refused_by_name(fits):
    for (fit, wanted), said in zip(REFUSED.items(), fits.result[1], strict=True):
        assert wanted in (said or ""), fit


def test_a_variable_that_a_step_sets_from_its_rows_is_named(fits):
    """And not one that counts, nor what optimizers and metrics keep."""
    said = [e["message"] for e in fits.of_kind("notice") if "is set from the rows" in e["message"]]
    assert [message.split(" is set")[0] for message in said] == ["the variable 'largest'"]


def test_dropout_differs_between_ranks_and_weights_do_not(fits):
    assert len(set(fits.logged("noise"))) == 2 and len(set(fits.logged("noisy"))) == 1


def test_progress_bars_of_other_ranks_are_silent(fits):
    assert "Epoch 2/2" in fits.logs(0) and "Epoch" not in fits.logs(1)
    assert "done 0" in fits.logs(0) and "done 1" in fits.logs(1)


def test_compression_on_one_machine_is_left_out_with_a_notice(fits):
    notices = [e["message"] for e in fits.of_kind("notice") if "compression" in e["message"]]
    assert notices == [
        "--compression bf16 is left out: it saves bytes on a network, and all workers are on one machine"
    ]


DATA = """
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, activation="softmax")])
model.compile(keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy", metrics=["accuracy"])
rows = sorted(float(v) for x, _ in dataset for v in x[:, 0])
held = sorted(float(v) for x, _ in validation for v in x[:, 0])
for value in rows:
    ddl.log(row=value)
for value in held:
    ddl.log(held=value)
model.fit(dataset.map(scale), validation_data=validation.map(scale), epochs=2, verbose=0)
"""


@pytest.mark.parametrize(
    "strategy", ["allreduce", *(pytest.param(name, marks=pytest.mark.slow) for name in ("ps", "single"))]
)
def test_a_data_frame_becomes_the_ranks_datasets(spark_cluster, strategy):
    spark = spark_cluster(2)
    factor = 0.01

    def scale(x, y):
        return x * factor, y

    rows = [(float(i), float(i % 3), [1.0][0], i % 2) for i in range(101)]
    namespace = {"frame": spark.createDataFrame(rows, ["a", "b", "c", "y"]), "scale": scale}
    data = {"data": "frame", "features": ["a", "b", "c"], "label": "y", "batch_size": 16, "validation": 0.2}
    ended = launch.finished(spark, DATA, namespace, strategy=strategy, **data)
    told = {key: ended.logged(key) for key in ("row", "held")}
    if strategy == "ps":  # the chief validates for all, and so every worker may
        told["held"] = sorted(set(told["held"]))
    assert sorted(told["row"] + told["held"]) == [float(i) for i in range(101)]
    assert len(told["held"]) == 20 and len(ended.history["val_loss"]) == 2


WEIGHTED = """
import keras, tensorflow as tf
keras.config.set_floatx("float64")
def double(x, y, w):
    return tf.cast(x, "float64"), tf.cast(y, "float64"), tf.cast(w, "float64")
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4, "tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.05), "mse", weighted_metrics=["mae"])
fit = model.fit(dataset.map(double), validation_data=validation.map(double), epochs=2, verbose=0)
{"history": fit.history, "weights": [w.tolist() for w in model.get_weights()]}
"""


def test_weighted_rows_in_one_order_teach_what_one_process_learns(spark_cluster):
    """--weight; and the same global batches for 1 and 2 workers, the last of them partial."""
    spark = spark_cluster(2)
    rows = [(i / 400, (i % 7) / 7, (i * i % 11) / 11, float(i % 3), float(i % 5)) for i in range(1003)]
    namespace = {"frame": spark.createDataFrame(rows, ["a", "b", "c", "y", "w"])}
    data = {"data": "frame", "features": ["a", "b", "c"], "label": "y", "weight": "w", "batch_size": 64}
    two, one = (
        launch.finished(spark, WEIGHTED, namespace, strategy=strategy, validation=0.2, seed=5, **data).result
        for strategy in ("allreduce", "single")
    )
    assert set(two["history"]) == {"loss", "mae", "val_loss", "val_mae"}
    comparison.assert_equal(two, one)


BIGGEST = (
    HEAD
    + """
class Biggest(keras.metrics.Metric):
    def __init__(self):
        super().__init__(name="biggest")
        self.value = self.add_weight(name="value", initializer="zeros")
    def update_state(self, y_true, y_pred, sample_weight=None):
        self.value.assign(tf.maximum(self.value, tf.reduce_max(tf.cast(y_pred, tf.float32))))
    def result(self):
        return self.value
def rmse(labels, logits):
    return tf.sqrt(tf.reduce_mean(tf.square(tf.cast(labels, "float32")[:, None] - logits)))
model = build()
model.compile("sgd", model.loss, metrics=["accuracy", rmse, Biggest()])
model.fit(x, y, batch_size=26, epochs=1, verbose=0)
"""
)


XLA = (
    HEAD
    + """
model = build()
model.compile("sgd", model.loss, metrics=["accuracy"], jit_compile=True, steps_per_execution=2)
model.fit(x, y, batch_size=26, epochs=2, verbose=0)
"""
)


def test_xla_compiles_steps_that_are_made_several_at_once(rank_pool):
    assert len(launch.finished(rank_pool(2), XLA, strategy="single", workers=1).history["loss"]) == 2


@pytest.mark.parametrize("strategy", ["ps", pytest.param("average", marks=pytest.mark.slow)])
def test_a_metric_that_does_not_add_up_is_named_and_xla_compiles_steps_of_several_workers(rank_pool, strategy):
    ended = launch.finished(rank_pool(2), BIGGEST + XLA, strategy=strategy)
    assert len(ended.history["loss"]) == 2
    said = [event["message"] for event in ended.of_kind("notice") if "states of the metric" in event["message"]]
    assert len(said) == 1 and said[0].startswith("the states of the metric 'biggest' are added up over the workers")


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("{'a': np.float32(0.5), 'b': [np.arange(2)]}", {"encoding": "json", "value": {"a": 0.5, "b": [[0, 1]]}}),
        ("'text'", {"encoding": "json", "value": "text"}),
        ("x = 1", {"encoding": "none"}),
        ("object", {"encoding": "repr", "value": "<class 'object'>"}),
        ("np.eye(3)", {"encoding": "npy", "artifact": "result.npy"}),
        ("np.ma.array([1, 2], mask=[0, 1])", {"encoding": "json", "value": [1, None]}),
        ("{'loss': [0.5, float('nan')]}", {"encoding": "json", "artifact": "result.json"}),
    ],
)
def test_the_last_expression_is_the_result(tmp_path, source, told):
    said = []

    def send(name, path):
        text = name.endswith(".json")
        said.append((name, Path(path).read_text() if text else np.load(path, allow_pickle=False).tolist()))

    reporter = SimpleNamespace(emit=lambda kind, **fields: said.append((kind, fields)), send_artifact=send)
    rank = SimpleNamespace(config=SimpleNamespace(scratch=str(tmp_path)), reporter=reporter)
    execution.report_result(execution.execute("import numpy as np\n" + source, {}), rank)
    assert said.pop() == ("result", told)
    sent = {"result.npy": np.eye(3).tolist(), "result.json": '{"loss": [0.5, NaN]}'}
    assert said == [(name, sent[name]) for key, name in told.items() if key == "artifact"]


def test_a_model_that_keras_cannot_save_is_no_failure_of_the_cell(tmp_path):
    source = """
import keras


class Odd(keras.layers.Layer):
    def get_config(self):
        raise NotImplementedError("no config")


keras.Sequential([keras.Input((1,)), Odd()])
"""
    said = []
    reporter = SimpleNamespace(
        emit=lambda kind, **fields: said.append(fields["encoding"]), notice=lambda level, text: said.append(text)
    )
    rank = SimpleNamespace(config=SimpleNamespace(scratch=str(tmp_path)), reporter=reporter)
    execution.report_result(execution.execute(source, {}), rank)
    assert said == [
        "the value of the cell cannot be saved as a .keras file (no config), so that run.result is its text",
        "repr",
    ]
