"""What a cell may do on the ranks beyond learning the right thing: data, names, stopping, files, results."""

from importlib import metadata
from types import SimpleNamespace

import launch
import numpy as np
import pytest

from ddl_magics.runtime import cell

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


def finished(spark, source, namespace=None, **spec):
    ended = launch.run_cell(spark, source, namespace, **spec)
    assert ended.state == "FINISHED", (ended.message, ended.failure and ended.failure["traceback"])
    return ended


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
{"own": seen["own"], "predicted": seen["predicted"]} if ddl.is_chief else None
"""
)


def test_evaluation_callbacks_files_and_collectives(spark_cluster, tmp_path):
    ended = finished(spark_cluster(2), EVALUATION, {"SHARED": str(tmp_path)})
    said = [{k: v for e in ended.of_kind("values", rank) for k, v in e["metrics"].items()} for rank in range(2)]
    assert said[0] == said[1]  # the same logs on every rank, and the same model loaded from an absolute path
    assert said[0]["total"] == 6.0 and said[0]["mean"] == 0.5 and "logs 1 val_accuracy" in said[0]
    assert ended.result["own"]["loss"] > 0 and np.shape(ended.result["predicted"]) == (10, 2)
    steps = [e for rank in range(2) for e in ended.of_kind("steps", rank)]
    assert all(0 < e["copy"] <= e["wait"] and e["wire"] == 0 for e in steps)  # by shared memory, on one host
    told = [e["versions"] for e in ended.of_kind("worker", 0) if "versions" in e]
    assert [sorted(versions) for versions in told] == [["keras", "python", "spark", "tensorflow"]]
    assert told[0]["spark"] == metadata.version("pyspark")


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


def test_stop_training_by_one_rank_stops_all_at_the_same_step(spark_cluster):
    ended = finished(spark_cluster(2), STOPPING)
    assert [e["metrics"]["epochs"] for e in ended.of_kind("values")] == [1, 1]
    steps = [sum(e["count"] for e in ended.of_kind("steps", rank)) for rank in range(2)]
    assert steps[0] == steps[1] and steps[0] in (3, 4)


MIXED = (
    HEAD.replace("import keras,", "import keras\nkeras.mixed_precision.set_global_policy('mixed_float16')\nimport")
    + """
model = build()
model.optimizer.initial_scale = 1e38  # overflows at first, by design
model.fit(x, y, batch_size=26, epochs=30, verbose=0)
ddl.log(scale=float(np.asarray(model.optimizer.dynamic_scale)), weights=float(np.sum(model.get_weights()[0])))
"""
)


def test_steps_that_the_loss_scale_skips_are_no_fault(spark_cluster):
    ended = finished(spark_cluster(2), MIXED)
    first, second = (e["metrics"] for e in ended.of_kind("values"))
    assert first == second and first["scale"] < 1e38
    assert np.isfinite(ended.history["loss"][-1])


FOREIGN_TO_XLA = (
    HEAD
    + """
class Foreign(keras.layers.Layer):
    def call(self, x):
        same = tf.numpy_function(lambda values: values, [x], x.dtype)
        same.set_shape(x.shape)
        return same
model = keras.Sequential([keras.Input((8,)), Foreign(), keras.layers.Dense(2)])
model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=COMPILED)
model.fit(x, y, batch_size=26, verbose=0)
"""
)


def test_a_step_with_jit_compile_is_xlas(spark_cluster):
    """What XLA does not know ends such a fit, and no other."""
    both = FOREIGN_TO_XLA.replace("COMPILED", "False") + FOREIGN_TO_XLA.replace("COMPILED", "True")
    ended = launch.run_cell(spark_cluster(2), both)
    assert ended.state == "FAILED" and "PyFunc" in ended.failure["message"], ended.failure
    assert {event["fit"] for event in ended.of_kind("epoch")} == {0}, "the first has ended well"


#: Fits that cannot be put together, and what is said of them.
REFUSED = {
    # A metric that does not add up.
    """
class Largest(keras.metrics.Metric):
    def __init__(self):
        super().__init__(name="largest")
        self.value = self.add_weight(initializer=keras.initializers.Constant(-1e9))
    def update_state(self, y_true, y_pred, sample_weight=None):
        self.value.assign(tf.maximum(self.value, tf.reduce_max(y_pred)))
    def reset_state(self):
        self.value.assign(-1e9)
    def result(self):
        return self.value
model = build()
model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=[Largest()])
model.fit(x, y, verbose=0)
""": "the metric 'largest' has a state that does not start at zero",
    # A sum beside regularisation.
    """
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1, kernel_regularizer="l2")])
model.compile("sgd", keras.losses.MeanSquaredError(reduction="sum"))
model.fit(x, x[:, :1], verbose=0)
""": "reduction='sum' beside regularisation",
}
REFUSALS = (
    HEAD
    + f"""
def refusal(fit):
    try:
        exec(fit, globals())
    except Exception as error:
        return str(error)
[refusal(fit) for fit in {list(REFUSED)!r}]
"""
)


def test_what_cannot_be_put_together_is_refused_by_name(spark_cluster):
    for said, wanted in zip(finished(spark_cluster(2), REFUSALS).result, REFUSED.values(), strict=True):
        assert wanted in said


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


@pytest.mark.parametrize("strategy", ["allreduce", "ps", "single"])
def test_a_data_frame_becomes_the_ranks_datasets(spark_cluster, strategy):
    spark = spark_cluster(2)
    factor = 0.01

    def scale(x, y):
        return x * factor, y

    rows = [(float(i), float(i % 3), [1.0][0], i % 2) for i in range(101)]
    namespace = {"frame": spark.createDataFrame(rows, ["a", "b", "c", "y"]), "scale": scale}
    data = {"data": "frame", "features": ["a", "b", "c"], "label": "y", "batch_size": 16, "validation": 0.2}
    ended = finished(spark, DATA, namespace, strategy=strategy, **data)
    told = {key: [e["metrics"][key] for e in ended.of_kind("values") if key in e["metrics"]] for key in ("row", "held")}
    if strategy == "ps":  # the chief validates for all, and so every worker may
        told["held"] = sorted(set(told["held"]))
    assert sorted(told["row"] + told["held"]) == [float(i) for i in range(101)]
    assert len(told["held"]) == 20 and len(ended.history["val_loss"]) == 2


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("{'a': np.float32(0.5), 'b': [np.arange(2)]}", {"encoding": "json", "value": {"a": 0.5, "b": [[0, 1]]}}),
        ("'text'", {"encoding": "json", "value": "text"}),
        ("x = 1", {"encoding": "none"}),
        ("object", {"encoding": "repr", "value": "<class 'object'>"}),
        ("np.eye(3)", {"encoding": "npy", "artifact": "result.npy"}),
    ],
)
def test_the_last_expression_is_the_result(tmp_path, source, told):
    said = []
    context = SimpleNamespace(
        scratch=str(tmp_path),
        emit=lambda kind, **fields: said.append((kind, fields)),
        send_artifact=lambda name, path: said.append((name, np.load(path, allow_pickle=False).tolist())),
    )
    cell.report_result(cell.execute("import numpy as np\n" + source, {}), context)
    assert said.pop() == ("result", told)
    assert said == ([("result.npy", np.eye(3).tolist())] if told["encoding"] == "npy" else [])


def test_dropout_differs_between_ranks_and_weights_do_not(spark_cluster):
    source = """
import keras, numpy as np
model = keras.Sequential([keras.Input((64,)), keras.layers.Dropout(0.5), keras.layers.Dense(1)])
model.compile("sgd", "mse")
x = np.ones((64, 64), "float32")
model.fit(x, x[:, :1], batch_size=32, epochs=1, verbose=0)
ddl.log(noise=float(np.sum(np.asarray(model.layers[0](x, training=True)) * np.arange(64))))
ddl.log(weights=float(np.sum(model.get_weights()[0])))
"""
    ended = finished(spark_cluster(2), source)
    values = {k: [e["metrics"][k] for e in ended.of_kind("values") if k in e["metrics"]] for k in ("noise", "weights")}
    assert values["noise"][0] != values["noise"][1] and values["weights"][0] == values["weights"][1]


def test_progress_bars_of_other_ranks_are_silent(spark_cluster):
    ended = finished(spark_cluster(2), HEAD + "build().fit(x, y, epochs=2)\nprint('done', ddl.rank)")
    assert "Epoch 2/2" in ended.logs(0) and "Epoch" not in ended.logs(1)
    assert "done 0" in ended.logs(0) and "done 1" in ended.logs(1)
