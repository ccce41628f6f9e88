"""Runs the examples of `EXAMPLES`, {name: source}, each as a cell of its own: the end of a cell's text.

An example finds the names of `IMPORTS`, and leaves `model`, or a list of models, and `history`. What it raises is its
result.
"""

import hashlib
import linecache
import traceback
import types

import keras
import numpy as np
import tensorflow as tf
from keras import layers

MOST_CHARACTERS = 2000

IMPORTS = {"keras": keras, "np": np, "tf": tf, "layers": layers}

#: What `ddl` is in one process, where a batch is whole.
ALONE = types.SimpleNamespace(
    all_gather=lambda tensor: tensor,
    distribute=lambda data, **options: data,
    result=lambda metric: metric.result(),
    log=lambda **values: None,
    rank=0,
)


def run_example(name, ddl):
    keras.backend.clear_session()
    keras.utils.set_random_seed(11)
    source, file = EXAMPLES[name], f"<example {name}>"  # noqa: F821  (the text before this)
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    namespace = {"__name__": "__main__", "ddl": ddl or ALONE, **IMPORTS}
    exec(compile(source, file, "exec"), namespace)
    models, history = namespace["model"], namespace["history"]
    models = models if isinstance(models, list) else [models]
    weights = [np.asarray(w, np.float64).ravel() for model in models for w in model.get_weights()]
    history = getattr(history, "history", history)
    history = {key: [float(np.mean(value)) for value in values] for key, values in history.items()}
    return {"history": history, "weights": np.concatenate(weights).tolist()}


def run_cases(names, dtype, ddl=None, label=""):
    """{name: {"history", "weights" (flat list)} or {"refused": what it said, "traceback"}}, as cases.py has it."""
    keras.backend.set_floatx(dtype)
    results = {}
    for name in names:
        try:
            results[name] = run_example(name, ddl)
        except Exception as error:
            said = f"{type(error).__name__}: {error}"[:MOST_CHARACTERS]
            results[name] = {"refused": said, "traceback": traceback.format_exc()[-MOST_CHARACTERS:]}
            continue
        if ddl is not None:
            flat = np.array(results[name]["weights"])
            ddl.log(**{label + name: int(hashlib.sha256(flat.tobytes()).hexdigest()[:12], 16)})
    keras.backend.set_floatx("float32")
    return results
