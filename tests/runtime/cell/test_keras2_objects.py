"""Objects of Keras 2 arrive on a rank as they are, or one line says which cannot, before training."""

import json
from pathlib import Path

import pytest
from support.paths import KERAS2_PYTHON
from support.processes import completed, environment

from ddl_magics import runtime

py4j, pyspark = pytest.importorskip("py4j"), pytest.importorskip("pyspark")
pytestmark = [pytest.mark.keras2, pytest.mark.timeout(240)]

SESSION = """
import json, sys
import keras, numpy as np, tensorflow as tf
from sent_runtime.cell import names
x = np.linspace(-1, 1, 32).reshape(8, 4)
words = np.array([["blue"], ["red"], ["green"]])
results = {}

def trained(*layers, loss="mse"):
    model = keras.Sequential([keras.Input((4,)), *layers, keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.01), loss)
    model.fit(x, x[:, :1], verbose=0)
    return model

def adapted(layer, data):
    layer.adapt(data)
    return layer

def used(model):
    if model.input.dtype == tf.string:
        return model.predict(words, verbose=0).tolist()
    losses = model.fit(x, x[:, :1], epochs=2, shuffle=False, verbose=0).history["loss"]
    return [losses, int(model.optimizer.iterations), model.predict(x, verbose=0).tolist()]
"""

PACKS = """
scale = 2.0
def close(truth, prediction):
    return tf.reduce_mean((truth - prediction) ** 2) * scale
norm = adapted(keras.layers.Normalization(), x)
text = adapted(keras.layers.TextVectorization(output_mode="multi_hot", max_tokens=6), ["red blue", "blue"])
encoder = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
values = dict(
    normalized=trained(norm), vectorized=keras.Sequential([keras.Input((1,), dtype="string"), text]),
    deep=trained(encoder), own_loss=trained(loss=close), own_layer=trained(keras.layers.Lambda(lambda t: t * scale)),
    norm=norm, optimizer=keras.optimizers.Adam(),
)
for name, value in values.items():
    try:
        sent = names.pack(name, {name: value}, {})
        open(f"{sys.argv[1]}/{name}.pkl", "wb").write(sent)
        results[name] = used(value) if not name.startswith("own") else None
    except names.NameProblem as problem:
        results[name] = str(problem)
for name, shares in {"both": {"deep": values["deep"], "encoder": encoder},
                     "with layer": {"layer": encoder.layers[0], "deep": values["deep"]}}.items():
    try:
        results[name] = names.pack("1", shares, {}) and "packed"
    except names.NameProblem as problem:
        results[name] = str(problem)
print(json.dumps(results))
"""

UNPACKS = """
import pathlib
for path in pathlib.Path(sys.argv[1]).glob("*.pkl"):
    try:
        names.unpack(path.read_bytes())
        results[path.stem] = used(globals()[path.stem])
    except names.NameProblem as problem:
        results[path.stem] = str(problem)
print(json.dumps(results))
"""


def test_what_arrives_and_what_is_refused(tmp_path):
    """Its environment has no pyspark of its own, as the executors' get it from Spark."""
    assert KERAS2_PYTHON.exists(), "make keras2-env builds what this test needs"
    packages = tmp_path / "packages"
    packages.mkdir()
    for name, package in (("sent_runtime", runtime), ("pyspark", pyspark), ("py4j", py4j)):
        (packages / name).symlink_to(Path(package.__file__).parent)
    there, here = (
        json.loads(
            completed(
                [str(KERAS2_PYTHON), "-c", SESSION + code, str(tmp_path)],
                env={**environment(), "PYTHONPATH": str(packages)},
                timeout=110,
            ).stdout.splitlines()[-1]
        )
        for code in (PACKS, UNPACKS)
    )
    for name in ("normalized", "vectorized", "deep"):
        assert here.pop(name) == there[name]
    for name in ("norm", "optimizer"):
        assert there[name].startswith(f"'{name}' (") and "cannot travel to the workers" in there[name]
    assert there["both"].startswith("'encoder' (Sequential) cannot travel to the workers (the cell uses another model")
    assert there["with layer"].startswith(
        "'deep' (Sequential) cannot travel to the workers (the cell uses another model"
    )
    assert here.pop("own_loss").startswith("'own_loss' cannot be restored on the worker (Could not locate function")
    assert here.pop("own_layer").endswith(
        "name 'scale' is not defined): make it in the cell, or install the same packages there"
    )
    assert not here and not any("\n" in line for line in there.values() if isinstance(line, str))
