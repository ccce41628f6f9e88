"""What earlier cells have set is so on a rank: a process that takes it over and the one that has set it do the same."""

import json
import sys
from types import ModuleType

import pytest
from support.processes import completed, environment

from ddl_magics.runtime.cell import frameworks, names

pytest.importorskip("pyspark")

#: Earlier cells of a notebook.
EARLIER = """
import os, random, sys, warnings, logging
import numpy as np, pandas as pd, keras, tensorflow as tf
keras.config.set_floatx("float64")
keras.config.set_epsilon(1e-5)
keras.config.set_image_data_format("channels_first")
keras.config.set_dtype_policy("mixed_bfloat16")
tf.config.run_functions_eagerly(True)
tf.config.experimental.enable_op_determinism()
tf.config.experimental.enable_tensor_float_32_execution(False)
np.seterr(divide="raise")
pd.set_option("mode.copy_on_write", True)
os.environ["COLOUR"] = "blue"
sys.path.insert(0, "/srv/helpers")
warnings.filterwarnings("error", "one of mine")
logging.getLogger("mine").setLevel("ERROR")

@keras.saving.register_keras_serializable()
def squared(x):
    return x * x * scale

@keras.saving.register_keras_serializable("mine", "other")
class Layer(keras.layers.Layer):
    pass

keras.saving.get_custom_objects()["plain"] = squared
scale = 2.0
keras.utils.set_random_seed(3)
random.random(), np.random.rand(), tf.random.uniform([])
keras.random.uniform([])
"""

#: What a cell that follows sees.
SEEN = """
import json
def seen():
    squares = keras.saving.get_registered_object("Custom>squared")
    with warnings.catch_warnings(record=True):
        try:
            raised = bool(warnings.warn("one of mine"))
        except UserWarning:
            raised = True
    layer = keras.layers.Dense(2)
    layer.build((None, 2))
    return json.dumps([
        keras.config.floatx(), keras.config.epsilon(), keras.config.image_data_format(),
        keras.config.dtype_policy().name, tf.config.functions_run_eagerly(),
        tf.config.experimental.tensor_float_32_execution_enabled(), np.geterr(), pd.get_option("mode.copy_on_write"),
        os.environ["COLOUR"], sys.path.index("/srv/helpers") < 2, raised, logging.getLogger("mine").level,
        squares(3.0), keras.saving.get_registered_name(squares), str(keras.saving.get_registered_object("mine>other")),
        keras.saving.get_custom_objects()["plain"](1.0),
        random.random(), np.random.rand(), float(tf.random.uniform([])), float(keras.random.uniform([])),
        np.asarray(layer.kernel, "float64").tolist(),
    ])
"""

PACKS = """
from ddl_magics.runtime.cell import names, process_settings
source = "squared, scale"
open(sys.argv[1], "wb").write(names.pack(source, names.captured(source, vars()), vars()))
print(json.dumps(process_settings.of_process().names))
"""

TAKES_OVER = """
import sys
from ddl_magics.runtime.cell import names
names.unpack(open(sys.argv[1], "rb").read(), streams=True)
import keras, os, random, warnings, logging, numpy as np, pandas as pd, tensorflow as tf
"""


def printed(code, *arguments):
    variables = {name: value for name, value in environment().items() if not name.startswith("KMP_")}  # scikit-learn's
    return completed([sys.executable, "-c", code, *map(str, arguments)], env=variables, timeout=100).stdout


def test_a_rank_does_what_the_session_would(tmp_path):
    outputs = [
        printed(code, tmp_path / "names.pkl")
        for code in (EARLIER + SEEN + PACKS + "print(seen())", TAKES_OVER + SEEN + "print(seen())")
    ]
    names, session = outputs[0].splitlines()[-2:]
    assert json.loads(outputs[1].splitlines()[-1]) == json.loads(session)
    *settings, streams = json.loads(names)
    assert streams.startswith("random numbers (state ")
    assert settings == [
        *("floatx", "epsilon", "image_data_format", "dtype policy", "run_functions_eagerly"),
        *("deterministic operations", "TensorFloat-32", "errors of NumPy", "options of pandas"),
        *("COLOUR in the environment", "/srv/helpers on sys.path"),
    ]


#: What the libraries and the tests do themselves is nobody's setting.
FRESH = """
import keras, pandas, pyspark, numpy, sys
sys.path.insert(1, "/tmp/spark-0d/userFiles-0d")  # as each Spark of this process does
from ddl_magics.runtime.cell import process_settings
settings = process_settings.of_process()
assert settings.names == [] and settings.streams is None, settings
"""


def test_a_process_in_which_nothing_was_set_has_nothing_to_take_over():
    printed(FRESH)


SEEDED = """
import random
import keras
from ddl_magics.runtime.cell import process_settings
assert process_settings.seed(1000) is None
random.seed(3)
streams = process_settings.of_process().streams
assert streams.python == random.getstate() and streams[1:] == (None, None, (None, None), None), streams
random.seed()
assert process_settings.seed(1000) is None and process_settings.floatx("x = 1") == "float32"
assert process_settings.floatx("if x: keras.config.set_floatx('float64')") == "float64"
seeds = []
for number in (3, 4, 3):
    keras.utils.set_random_seed(number)
    seeds.append(process_settings.seed(1 << 31))
assert seeds[0] == seeds[2] != seeds[1], seeds
keras.config.set_floatx("float64")
assert process_settings.floatx("x = 1") == "float64" and process_settings.of_process(streams=False).names == ["floatx"]
"""


def test_a_runs_seed_follows_from_that_of_the_session():
    printed(SEEDED)


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("import os\nos.environ['KERAS_BACKEND'] = 'jax'\nimport keras", "line 2: it chooses Keras' backend jax, and"),
        ("import os\nos.environ.setdefault('KERAS_BACKEND', 'torch')", "line 2: it chooses Keras' backend torch, and"),
        ("import keras\nkeras.config.set_backend('jax')", "line 2: it chooses Keras' backend jax, and workers have"),
        (
            "import torch.nn as nn\nnn.Linear(1, 2)",
            "line 1: torch is PyTorch, and %%distributed trains",
        ),
        ("from jax import numpy as jnp", "line 1: jax is JAX, and %%distributed trains models of Keras"),
        ("import keras, torch", None),
        ("import os\nos.environ['KERAS_BACKEND'] = 'tensorflow'", None),
        ("import torch\nmodel = keras.Sequential()", None),
    ],
)
def test_other_frameworks_are_refused_by_name(source, line):
    problem = frameworks.problem(source)
    assert problem is None if line is None else problem.startswith(line) and "\n" not in problem


def test_a_framework_that_an_earlier_cell_has_imported_is_refused_by_name():
    torch = ModuleType("torch.nn")
    with pytest.raises(names.NameProblem, match="line 2: nn is PyTorch, and %%distributed trains"):
        names.captured("x = 1\nnn.Linear(x, 2)", {"nn": torch})
    assert "nn" in names.captured("keras.ops.convert_to_tensor(nn)", {"nn": torch, "keras": ModuleType("keras")})
