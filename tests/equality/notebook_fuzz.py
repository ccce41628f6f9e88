"""Notebooks put together by chance: cells that set, define, adapt and augment, a training cell, and cells that use it.

`notebook(number)` makes one. Run as a program, it is a plain process of Keras: it reads the cells of notebooks from its
input, a line of JSON each, runs each notebook in a fork of its own, and prints what its last cell shows.
"""

import json
import os
import random
import sys
import traceback

#: What the last cell shows, as JSON.
SHOWN = "shown"

SETTINGS = {
    "seed": ("keras.utils.set_random_seed({n})", ""),
    "numpy seed": ("random.seed({n}); np.random.seed({n}); tf.random.set_seed({n})", ""),
    "epsilon": ("keras.config.set_epsilon(1e-3)", ""),
    "eager": ("tf.config.run_functions_eagerly(True)", ""),
    "environment": ('os.environ["RATE"] = "0.03"', 'float(os.environ["RATE"])'),
    "module": (
        'os.makedirs("lib", exist_ok=True); open("lib/rates{n}.py", "w").write("RATE = 0.04")\n'
        'sys.path.insert(0, os.path.abspath("lib"))\nimport rates{n}',
        "rates{n}.RATE",
    ),
    "registered": (
        '@keras.saving.register_keras_serializable("mine")\ndef halved(x):\n    return x / 2',
        "",
    ),
}

#: Of each kind of data: the cell that makes it, layers before the first dense one, and what an earlier cell adapts.
NUMBERS = """
rows = {rows}
draw = np.random.default_rng({n})
x = draw.normal(2, 3, (rows, 4))
y = {label}
"""
WORDS = """
rows = {rows}
draw = np.random.default_rng({n})
words = np.array(["red", "green", "blue", "white", "black", "grey"])
picked = draw.integers(0, 6, rows) // draw.integers(1, 4, rows)
x = tf.constant(words[picked][:, None])
y = {label}
"""
SENTENCES = """
rows = {rows}
draw = np.random.default_rng({n})
words = "the a cat dog sat ran on under mat tree and then".split()
x = tf.constant([[" ".join(draw.choice(words, draw.integers(1, 9)))] for _ in range(rows)])
y = {label}
"""
IMAGES = """
rows = {rows}
draw = np.random.default_rng({n})
x = draw.uniform(size=(rows, 6, 6, 1))
y = {label}
"""
LABELS = {
    "mse": "draw.normal(size=(rows, 1))",
    "binary_crossentropy": "(draw.uniform(size=(rows, 1)) > 0.4).astype(float)",
    "sparse_categorical_crossentropy": "draw.integers(0, 3, rows)",
}
METRICS = {"mse": "'mae'", "binary_crossentropy": "'accuracy', 'mae'", "sparse_categorical_crossentropy": "'accuracy'"}
ENDS = {"mse": "1", "binary_crossentropy": "1, 'sigmoid'", "sparse_categorical_crossentropy": "3, 'softmax'"}

CONVOLUTION = "keras.layers.Conv2D(3, 3, activation='tanh'), keras.layers.Flatten(), "
#: (name, earlier cell, layers)
FRONTS = {
    "numbers": (
        NUMBERS,
        "keras.Input((4,))",
        [
            ("plain", "", ""),
            ("normalized", "front = keras.layers.Normalization()\nfront.adapt(x)", "front, "),
            (
                "discretized",
                "front = keras.layers.Discretization(num_bins=4)\nfront.adapt(x)",
                "front, keras.layers.Rescaling(0.25), ",
            ),
            ("function", "def scaled(x):\n    return x * factor\nfactor = 0.1", "keras.layers.Lambda(scaled), "),
        ],
    ),
    "words": (
        WORDS,
        "keras.Input((1,), dtype='string')",
        [
            (
                "looked up",
                "front = keras.layers.StringLookup()\nfront.adapt(x)",
                "front, keras.layers.Embedding(9, 3), keras.layers.Flatten(), ",
            ),
            (
                "hashed",
                "front = keras.layers.Hashing(num_bins=5)",
                "front, keras.layers.Embedding(5, 3), keras.layers.Flatten(), ",
            ),
            (
                "one-hot",
                "front = keras.layers.StringLookup(output_mode='multi_hot')\nfront.adapt(x)",
                "front, ",
            ),
        ],
    ),
    "sentences": (
        SENTENCES,
        "keras.Input((1,), dtype='string')",
        [
            (
                "fixed",
                "front = keras.layers.TextVectorization(20, output_sequence_length=6)\nfront.adapt(x)",
                "front, keras.layers.Embedding(20, 3), keras.layers.GlobalAveragePooling1D(), ",
            ),
            (
                "open, averaged",
                "front = keras.layers.TextVectorization(20)\nfront.adapt(x)",
                "front, keras.layers.Embedding(20, 3), keras.layers.GlobalAveragePooling1D(), ",
            ),
            (
                "open, convolved",
                "front = keras.layers.TextVectorization(20)\nfront.adapt(x)",
                "front, keras.layers.Embedding(20, 3), keras.layers.Conv1D(3, 2, padding='same'), "
                "keras.layers.GlobalMaxPooling1D(), ",
            ),
            (
                "counted",
                "front = keras.layers.TextVectorization(20, output_mode='tf_idf')\nfront.adapt(x)",
                "front, ",
            ),
        ],
    ),
    "images": (
        IMAGES,
        "keras.Input((6, 6, 1))",
        [
            ("plain", "", CONVOLUTION),
            (
                "normalized",
                "front = keras.layers.Normalization(axis=None)\nfront.adapt(x)",
                "front, " + CONVOLUTION,
            ),
        ],
    ),
}

#: How rows come to `fit`: (an earlier cell, lines of the training cell, arguments of fit).
BATCHES = "tf.data.Dataset.from_tensor_slices((x, y))"
NOISE = """
def noisy(rows, labels):
    return rows + tf.random.uniform(tf.shape(rows), maxval=0.1, dtype=rows.dtype), labels
"""
GENERATED = """
def batches():
    for start in range(0, rows, 16):
        noise = np.random.uniform(size=x[start : start + 16].shape)
        yield x[start : start + 16] + noise, y[start : start + 16]
"""
SEQUENCE = """
class Rows(keras.utils.PyDataset):
    def __len__(self):
        return -(-rows // 16)
    def __getitem__(self, number):
        picked = slice(16 * number, 16 * number + 16)
        return x[picked] + 0.1 * number, y[picked]
"""
FEEDS = {
    "arrays": ("", "", "x, y, batch_size=16, shuffle=False"),
    "shuffled arrays": ("", "", "x, y, batch_size=16"),
    "split arrays": ("", "", "x, y, batch_size=20, shuffle=False, validation_split=0.2"),
    "pipeline": ("", f"data = {BATCHES}.batch(16)", "data"),
    "shuffled pipeline": ("", f"data = {BATCHES}.shuffle(64).batch(16)", "data"),
    "pipeline of the notebook": (f"data = {BATCHES}.batch(16).prefetch(2)", "", "data"),
    "sequence": (SEQUENCE, "", "Rows()"),
    # One call at a time: plain Keras itself deals what two draw by chance.
    "drawing pipeline": (NOISE, f"data = {BATCHES}.map(noisy, num_parallel_calls=1).batch(16)", "data"),
    "drawing generator": (GENERATED, "", "batches(), steps_per_epoch=-(-rows // 16)"),
}
ONLY_NUMBERS = ("sequence", "drawing pipeline", "drawing generator")
#: Those that draw nothing by NumPy and TensorFlow.
STEADY = ("arrays", "split arrays", "pipeline", "pipeline of the notebook", "sequence")
#: The one seed of a notebook, and what its training cell draws; so do the first weights, by Keras.
RANDOM_ALONE = ("random.seed({n})\nrandom.random()", "drawn = [random.random(), random.gauss(0, 1)]")

#: What a training cell has beside `fit`: (an earlier cell, lines before, an argument of fit, lines after).
EXTRAS = {
    "nothing": ("", "", "", ""),
    "list of the notebook": ("scores = []", "", "", "scores.append(history.history['loss'][-1])"),
    "callback": (
        "class Noted(keras.callbacks.Callback):\n"
        "    def on_epoch_end(self, epoch, logs=None):\n"
        "        noted.append(round(logs['loss'], 9))\n"
        "noted = []",
        "",
        ", callbacks=[Noted()]",
        "",
    ),
    "evaluated": ("", "", "", "scores = [float(value) for value in np.ravel(model.evaluate(x, y, verbose=0))]"),
    "predicted": ("", "", "", "predicted = model.predict(x[:9], verbose=0)"),
    "dictionary": ("found = {}", "", "", "found['last'] = history.history['loss'][-1]\nfound['rows'] = rows"),
}

WHEN = ("in the cell", "before", "compiled before", "trained before")
AFTER = ("nothing", "predicted", "evaluated", "trained on", "trained again distributed")

SHOWS = """
import json
def plain_value(value):
    if isinstance(value, dict):
        return {str(key): plain_value(value[key]) for key in sorted(value)}
    return np.asarray(value, "float64").tolist()
names = ("scores", "noted", "predicted", "found", "drawn")
shown = {name: plain_value(globals()[name]) for name in names if name in globals()}
shown.update(history=plain_value(history.history), weights=[plain_value(w) for w in model.get_weights()])
shown["optimizer"] = plain_value(model.optimizer.iterations)
"""


def notebook(number):
    """(choices, cells) of the notebook: what it has, and (kind, source) of each cell; kind is "plain" or "train"."""
    chance = random.Random(number)
    kind = chance.choice(list(FRONTS))
    data, entry, fronts = FRONTS[kind]
    front, prepare, layers = chance.choice(fronts)
    loss = chance.choice(list(LABELS))
    feed = chance.choice([name for name in FEEDS if kind in ("numbers", "images") or name not in ONLY_NUMBERS])
    extra, when, after = chance.choice(list(EXTRAS)), chance.choice(WHEN), chance.choice(AFTER)
    settings = chance.sample(list(SETTINGS), chance.randint(0, 3))
    if "seed" not in settings and "numpy seed" not in settings:
        settings.insert(0, chance.choice(["seed", "numpy seed"]))
    filled = {"n": number, "rows": chance.randint(41, 90), "label": LABELS[loss]}
    rates = [SETTINGS[name][1].format(**filled) for name in settings if SETTINGS[name][1]]
    activation = "keras.saving.get_registered_object('mine>halved')" if "registered" in settings else "'tanh'"
    optimizer = chance.choice(["SGD({}, momentum=0.9)", "RMSprop({})", "Adagrad({})"]).format((rates or ["0.02"])[0])
    epochs = chance.randint(1, 3)
    random_alone = chance.random() < 0.5 and "seed" not in settings and feed in STEADY
    seeds, draws = RANDOM_ALONE if random_alone else (SETTINGS["numpy seed"][0], "")
    set_by = {name: seeds if name == "numpy seed" else source for name, (source, _) in SETTINGS.items()}

    earlier_feed, feed_lines, arguments = FEEDS[feed]
    earlier_extra, before, argument, later = EXTRAS[extra]
    build = (
        f"model = keras.Sequential([{entry}, {layers}keras.layers.Dense(5, activation={activation}), "
        f"keras.layers.Dense({ENDS[loss]})])"
    )
    compiles = f"model.compile(keras.optimizers.{optimizer}, {loss!r}, metrics=[{METRICS[loss]}])"
    trains = "model.fit(x, y, batch_size=16, shuffle=False, verbose=0)"
    own = {
        "in the cell": ("", [build, compiles]),
        "before": (build, [compiles]),
        "compiled before": (f"{build}\n{compiles}", []),
        "trained before": (f"{build}\n{compiles}\n{trains}", []),
    }[when]
    fit = f"history = model.fit({arguments}, epochs={epochs}, verbose=0{argument})"
    train = "\n".join(filter(None, [feed_lines, *own[1], before, fit, later, draws]))
    again = {
        "nothing": [],
        "predicted": [("plain", "predicted = model.predict(x[:7], verbose=0)")],
        "evaluated": [("plain", "scores = np.ravel(model.evaluate(x, y, verbose=0))")],
        "trained on": [("plain", "history = " + trains)],
        "trained again distributed": [("train", "history = " + trains)],
    }[after]
    imports = 'import os, sys, random\nimport keras, numpy as np, tensorflow as tf\nkeras.config.set_floatx("float64")'
    cells = [
        imports,
        *(set_by[name].format(**filled) for name in settings),
        data.format(**filled),
        prepare,
        earlier_feed,
        earlier_extra,
        own[0],
    ]
    seeded = ["random alone" if random_alone and name == "numpy seed" else name for name in settings]
    choices = [f"{kind}, {front}", loss, feed, extra, when, f"then {after}", *seeded]
    cells = [("plain", cell) for cell in cells if cell]
    return "; ".join(choices), [*cells, ("train", train), *again, ("plain", SHOWS)]


def _in_this_process(cells, folder):
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    os.chdir(folder)
    shell = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
    for _, source in cells:
        result = shell.run_cell(source)
        error = result.error_before_exec or result.error_in_exec
        if error is not None:
            return {"error": f"{type(error).__name__}: {error}", "cell": source}
    return shell.user_ns[SHOWN]


def main():
    """Lines {"cells", "folder", "result"}: the result is a file's path."""
    import keras  # noqa: F401 - before the forks
    import tensorflow  # noqa: F401

    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            try:
                shown = _in_this_process(request["cells"], request["folder"])
            except BaseException:
                shown = {"error": traceback.format_exc()}
            with open(request["result"], "w") as file:
                json.dump(shown, file)
            os._exit(0)
        os.waitpid(child, 0)
        print("done", file=sys.__stdout__, flush=True)


if __name__ == "__main__":
    main()
