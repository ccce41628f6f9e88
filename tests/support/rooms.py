"""The rooms of the code and the imports between them, read from the code.

A room is a folder of the package or of its runtime, or a file beside these folders. A test holds imports to one
direction; scripts/rooms_picture.py draws them.
"""

import functools

from support.paths import ROOT, script

counts = script("counts")

PACKAGE = "ddl_magics"
RUNTIME = f"{PACKAGE}.runtime"

#: The rooms from top to bottom, each with its purpose in a few words. A room may import those below it.
FLOORS = {
    "__main__": "the command line: runs, show, logs, stop",
    "__init__": "%load_ext, the public names",
    "notebook": "what is IPython's: magics, completion, display",
    "commands": "the verbs of %ddl and of ddl-magics",
    "unattended": "a notebook run from a terminal or by a scheduler",
    "session": "what keeps the runs of a kernel",
    "server": "the REST routes of the panel, for Jupyter Server",
    "scaling": "scaling reports: speed-up, and what if",
    "search": "hyperparameter search: trials, and Optuna",
    "runs": "Run, and the thread that follows a run",
    "history": "what runs ran with, queries, reproduction, bundles",
    "serving": "a trained model behind an HTTP and gRPC server",
    "models": "a trained model exported, registered, in a pipeline",
    "clusters": "embedded Spark and Livy sessions",
    "store": "runs on disk",
    "dashboard": "live view, figures and text, made from events",
    "options": "the table of options, parsing, help",
    "errors": "the exceptions a user sees",
    "wording": "words of several messages",
    "_version": "the version",
    "runtime": "what is sent to the cluster",
}
RUNTIME_FLOORS = {
    "driver": "jobs, attempts and results, in the Spark driver",
    "executor": "a Spark task's supervisor and the rank's process",
    "cell": "runs the user's cell and collects its result",
    "variables": "the cell's variables, back in the notebook",
    "tf_distribute": "clusters for tf.distribute strategies",
    "training": "hooks Keras: fit, step, epoch, checkpoint",
    "gradients": "sums gradients over the ranks",
    "trial": "tries what losses and steps do to rows",
    "monitoring": "a model in use, compared with its training data",
    "rank": "a rank's configuration, state and reports",
    "checkpoints": "checkpoint files, on the driver or in storage",
    "files": "the cell's working folder, and what it writes there",
    "scoring": "a trained model scores the rows of a DataFrame",
    "data": "--data: a DataFrame becomes each rank's dataset",
    "provenance": "fingerprints of packages, values and DataFrames",
    "spark": "slots, GPUs and storage of the Spark session",
    "collectives": "all-reduce: shared memory, ring, hierarchy",
    "parameter_server": "server, client, shards and update rules",
    "transport": "authenticated connections, frames, shared memory",
    "histories": "Keras histories from events",
    "bounded_log": "a long run's events in bounded memory",
    "merging": "two events as one",
    "target": "--target: when training ends",
    "chief": "which rank speaks for a run",
    "events": "the kinds of events, their fields and schema",
    "schema_check": "checks of JSON values by a schema",
    "package": "the runtime as a zip",
    "scratch": "temporary folders",
    "native_chatter": "what TensorFlow prints on its own",
    "stopping": "stop requests and NaN",
    "run_spec": "what a cell asks for: options, cell, identity",
    "strategies": "how strategies differ",
    "redaction": "what looks like a secret",
    "rank_end": "how a rank ended",
    "parent_death": "a process that ends with its parent",
    "keras_types": "types of Keras",
    "lambda_layers": "models whose Lambda layers have code",
    "random_streams": "where random numbers are, in a process",
    "mersenne_twister": "whether a generator was seeded",
    "assert_never": "exhaustive branches",
    "wording": "words of several messages",
    "__init__": "empty",
}


MODULES = {".".join(path.relative_to(ROOT).with_suffix("").parts) for path in (ROOT / PACKAGE).rglob("*.py")}


@functools.cache
def trees():
    """{path: its parsed file} of the package."""
    return counts.read(ROOT)


@functools.cache
def imports(packages):
    """{module: modules of this package that it imports}, also inside functions and for type checkers alone.

    packages: with the `__init__` of a folder, where something is imported from the folder.
    """
    return counts.imports(trees(), typing=True, functions=True, packages=packages)


def in_runtime(module):
    return module.startswith(f"{RUNTIME}.")


def room(module, inside_runtime):
    """The room of a module: one of the runtime, or one of the package, of which the runtime is one."""
    return module.split(".")[2 if inside_runtime else 1]


def rooms(inside_runtime):
    """The rooms that the code has, of the runtime or of the package."""
    return {room(module, inside_runtime) for module in MODULES if not inside_runtime or in_runtime(module)}


def arrows(inside_runtime):
    """(room, room that it imports, "module imports module") for each import between two rooms."""
    for module, targets in imports(packages=True).items():
        for target in sorted(targets):
            if (in_runtime(module) and in_runtime(target)) == inside_runtime:
                above, below = (room(name, inside_runtime) for name in (module, target))
                if above != below and target != f"{PACKAGE}.__init__":  # `from ddl_magics import x` loads x alone
                    yield above, below, f"{module} imports {target}"
