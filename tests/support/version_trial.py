"""Whether cells train with the Spark, Keras and Python of an environment: `python -m support.version_trial`.

Two workers of an embedded Spark learn what one process learns, a DataFrame is trained on, the model comes back. Prints
a JSON object: the versions, and what differs, which is empty where all is well. Needs no pytest.
"""

import json
import os
import platform
import tempfile
from importlib.metadata import version
from pathlib import Path

from IPython.core.interactiveshell import InteractiveShell

from support import comparison
from support.shells import NO_HISTORY

#: Python, Spark, TensorFlow, Keras: the oldest and the newest of each, and between them one change at a time.
ROWS = (
    ("3.10", "3.3.1", "2.18.1", "3.7.0"),
    ("3.10", "3.4.4", "2.18.1", "3.7.0"),
    ("3.10", "3.5.9", "2.21.0", "3.12.4"),
    ("3.11", "3.4.4", "2.21.0", "3.15.1"),
    ("3.11", "4.0.5", "2.21.0", "3.15.1"),
    ("3.11", "4.2.1", "2.20.0", "3.10.0"),
    ("3.12", "3.5.9", "2.18.1", "3.7.0"),
    ("3.12", "4.1.4", "2.21.0", "3.15.1"),
    ("3.12", "4.3.0", "2.21.0", "3.15.1"),
    ("3.13", "3.5.9", "2.20.0", "3.10.0"),
    ("3.13", "4.3.0", "2.21.0", "3.15.1"),
)

#: What differs most between versions of Keras: optimizers, metrics, steps of the model's own, XLA, tf.data, loops.
CASES = (
    *("sgd_momentum", "accumulation", "callbacks", "weighted", "embedding", "own_step", "pipeline"),
    *("masked_losses_compiled", "four_steps_and_a_remainder", "metrics_of_all_kinds", "tape_in_a_function"),
)

#: For weights and histories in float64. The suite asks the pinned versions for 1e-9; a validation loss of Keras 3.7
#: differs by 1.6e-9.
BOUND = 1e-8

EQUAL = f"""%%distributed --name equal --seed 11
{comparison.CASES}
run_cases({CASES!r}, "float64", ddl)"""

#: Rows of Spark and of pandas, a parameter server, Python functions of the session, a model that travels back.
FRAME = """%%distributed --name framed --data frame --features a b --label y --batch-size 20 --strategy ps
model = keras.Sequential([keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(dataset, epochs=3, verbose=0)
doubled(4)"""


def trial():
    """{"versions", "differences"}; what the cells and `%ddl check` say is printed."""
    shell = InteractiveShell.instance(config=NO_HISTORY, colors="nocolor")
    _run(shell, "%load_ext ddl_magics")
    with tempfile.TemporaryDirectory() as folder:
        reference = comparison.Reference(Path(folder) / "reference")(CASES, "float64")
        found = _equality(shell, reference) + _frames(shell)
    _run(shell, "%ddl check")
    versions = {name: version(name) for name in ("pyspark", "keras", "tensorflow-cpu", "numpy", "pandas")}
    return {"versions": {"python": platform.python_version(), **versions}, "differences": found}


def _equality(shell, reference):
    _run(shell, EQUAL)
    results = shell.user_ns["equal"].result
    comparison.FLOAT64 = BOUND
    return comparison.differences(results, reference, CASES, "float64")


def _frames(shell):
    import pandas as pd

    found = []
    numbers = pd.DataFrame({"a": [i / 100 for i in range(100)], "b": [1.0, 0.0] * 50})
    numbers["y"] = numbers.a * 2 + numbers.b
    shell.user_ns["doubled"] = lambda x: x * 2
    spark = __import__("pyspark.sql").sql.SparkSession.builder.getOrCreate()
    # Not createDataFrame(numbers): old versions of Spark do not know today's pandas.
    rows = spark.createDataFrame([tuple(map(float, row)) for row in numbers.itertuples(index=False)], ["a", "b", "y"])
    for frame in (numbers, rows):
        shell.user_ns["frame"] = frame
        _run(shell, FRAME)
        run = shell.user_ns["framed"]
        loss = run.history["loss"]
        if len(loss) != 3 or not loss[-1] < loss[0] or run.result != 8:
            found.append(f"{type(frame).__name__}: loss {loss}, result {run.result}")
        if run.model().count_params() != 33:
            found.append(f"{type(frame).__name__}: another model came back")
    return found


def _run(shell, cell):
    result = shell.run_cell(cell)
    result.raise_error()


if __name__ == "__main__":
    os.environ["JUPYTER_DATA_DIR"] = os.environ["IPYTHONDIR"] = tempfile.mkdtemp(prefix="ddl-versions-")
    os.chdir(os.environ["IPYTHONDIR"])  # files of the cells come back to this folder
    outcome = trial()
    print("\n" + json.dumps(outcome))
    os._exit(bool(outcome["differences"]))  # threads of Spark would keep an old one alive
