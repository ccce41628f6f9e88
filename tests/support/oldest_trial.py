"""Whether cells train with HDInsight's versions: `python3.8 oldest_trial.py RUNTIME`, the zip of a runtime.

The notebook's side needs a newer Python and is not here: this is the session behind Livy, whose driver is asked as
Livy's statements ask it. Prints a JSON object: the versions, and for each run its state, history and result. The syntax
is that of Python 3.8.
"""

import importlib
import json
import os
import platform
import sys
import time
import zipfile
from pathlib import Path

from pyspark.sql import SparkSession

#: In float64, so that a run can be compared with one process.
MODEL = """
import keras, numpy as np, tensorflow as tf
keras.backend.set_floatx("float64")
keras.utils.set_random_seed(7)
model = keras.Sequential([keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
"""
VARIABLES = """
x = np.random.RandomState(1).rand(96, 5)
y = x.sum(axis=1, keepdims=True)
model.fit(x, y, batch_size=16, epochs=3, verbose=0, validation_split=0.25)
"""
FRAME = """
model.fit(dataset.map(lambda x, y: (tf.cast(x, "float64"), tf.cast(y, "float64"))), epochs=3, verbose=0)
"""
STRATEGY = """
x = np.random.RandomState(1).rand(96, 5)
y = x.sum(axis=1, keepdims=True)
with strategy.scope():
    model = keras.Sequential([keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
model.fit(x, y, batch_size=16, epochs=3, verbose=0)
"""
SERVERS = """
def read(context):
    x = np.random.RandomState(1).rand(96, 5)
    return tf.data.Dataset.from_tensor_slices((x, x.sum(axis=1, keepdims=True))).repeat().batch(16)
with strategy.scope():
    model = keras.Sequential([keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
model.fit(keras.utils.experimental.DatasetCreator(read), steps_per_epoch=6, epochs=3, verbose=0)
"""
WEIGHTS = "\n[float(abs(w).sum()) for w in model.get_weights()]"

#: Name of a run -> the cell, and what it asks for besides two workers.
RUNS = {
    "single": (VARIABLES, {"strategy": "single", "workers": 1}),
    "allreduce": (VARIABLES, {"strategy": "allreduce"}),
    "ps": (VARIABLES, {"strategy": "ps", "rule": "adag"}),
    "average": (VARIABLES, {"strategy": "average"}),
    "ensemble": (VARIABLES, {"strategy": "ensemble"}),
    "tf-allreduce": (STRATEGY, {"strategy": "tf-allreduce"}),
    "tf-ps": (SERVERS, {"strategy": "tf-ps"}),
    "data": (FRAME, {"data": "frame", "features": ["a", "b"], "label": "y", "batch_size": 16}),
}
RUN_SECONDS, POLL_SECONDS = 300, 0.2
ENDED = ("FINISHED", "FAILED", "STOPPED", "LOST")


def session():
    """A Spark with two executors."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local-cluster[2,1,1024]").config("spark.ui.enabled", "false")
    for name in ("spark.driver.host", "spark.driver.bindAddress"):
        builder = builder.config(name, "127.0.0.1")
    started = builder.getOrCreate()
    started.sparkContext.setLogLevel("ERROR")
    return started


def driver(runtime):
    """The module `driver.api` of the zip, whose file is named after the package in it."""
    zipfile.ZipFile(runtime).extractall()
    sys.path.insert(0, os.getcwd())
    return importlib.import_module(Path(runtime).stem + ".driver.api")


def run(api, name, namespace):
    """What a run has come to: state, message, history of the epochs, result."""
    cell, options = RUNS[name]
    spec = {
        "strategy": "allreduce",
        "workers": 2,
        "seed": 11,
        "run": "oldest-" + name,
        "name": "oldest",
        "cell": MODEL + cell + WEIGHTS,
    }
    reply = json.loads(api.launch(json.dumps(dict(spec, **options)), namespace))
    assert reply["ok"], reply
    events, state, until = [], "", time.monotonic() + RUN_SECONDS
    while state not in ENDED or reply["more"]:
        assert time.monotonic() < until, (name, events[-3:])
        time.sleep(POLL_SECONDS)
        reply = json.loads(api.poll(json.dumps({"run": spec["run"], "after": len(events)})))
        events, state = events + reply["events"], reply["state"]
    results = [event.get("value") for event in events if event["kind"] == "result"]
    epochs = [event["metrics"] for event in events if event["kind"] == "epoch" and event.get("rank") in (None, 0)]
    message = [event for event in events if event["kind"] == "state"][-1].get("message")
    return {"state": state, "message": message, "epochs": epochs, "result": results[-1] if results else None}


def main(runtime):
    """All runs, one after the other."""
    spark = session()
    rows = [(i / 100, float(i % 2), i / 50 + i % 2) for i in range(100)]
    namespace = {"spark": spark, "frame": spark.createDataFrame(rows, ["a", "b", "y"])}
    api = driver(runtime)
    found = {name: run(api, name, namespace) for name in RUNS}
    import keras
    import tensorflow as tf

    versions = {"python": platform.python_version(), "spark": spark.version, "tensorflow": tf.__version__}
    print("\n" + json.dumps({"versions": dict(versions, keras=keras.__version__), "runs": found}))
    sys.stdout.flush()
    spark.stop()
    os._exit(0)  # threads of Spark would keep an old one alive


if __name__ == "__main__":
    main(sys.argv[1])
