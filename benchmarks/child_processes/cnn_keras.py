"""A convolutional network in Keras, as a user writes it, that trains one block for each message.

    python -m benchmarks.child_processes.cnn_keras MODE [ARGUMENT ...]

Modes:
    plain: Keras as it is.
    compiled: with the compiled optimizer update of the runtime.
    lockstep RANK SIZE STORE: SIZE processes wait for each other before each update, and exchange nothing. STORE begins
        the names of the files by which they meet.
    mirrored RANK ADDRESS ...: tf_keras under MultiWorkerMirroredStrategy.

This file is also the cell that ranks of the runtime run.

A message is a `Block`, the answer a `Times`.
"""

import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, TypedDict

import numpy as np

Keras = Any  # the module keras, or tf_keras; they have no types
Model = Any
Update = Callable[[Sequence[Any], Sequence[Any]], Any]  # of gradients and variables


class Block(TypedDict, total=False):
    """An epoch.

    batch: rows of a step, of all workers that train together. steps: number of them. telemetry: off or on from now.
    """

    batch: int
    steps: int
    telemetry: bool


class Times(TypedDict):
    """Wall time and CPU time of a block's training in this process, in seconds.

    telemetry: CPU time of what reports, where the block turns it on or off.
    """

    seconds: float
    cpu: float
    telemetry: float


def network(keras: Keras) -> Model:
    """A compiled network of 694 k parameters for images of 28 x 28 x 1 and 10 classes."""
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(419, activation="relu"),
            layers.Dense(10),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-3), loss, jit_compile=False)
    return model


def epoch_timer(keras: Keras) -> Any:
    """A callback with `seconds` and `cpu` of the last epoch. It has no hooks for steps: they would slow steps down."""

    class EpochTimer(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.cpu, self.seconds = -time.process_time(), -time.perf_counter()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.seconds += time.perf_counter()
            self.cpu += time.process_time()

    return EpochTimer()


def serve(keras: Keras, make_network: Callable[[Keras], Model] = network) -> None:
    """Answer messages until standard input ends. A model lasts as long as its batch size comes again."""
    models: dict[int, Model] = {}
    timer = epoch_timer(keras)
    for line in sys.stdin:
        block: Block = json.loads(line)
        reported = 0.0
        if "telemetry" in block:
            from benchmarks.child_processes import telemetry_switch

            telemetry_switch.turn(block["telemetry"])
            telemetry_switch.spent()
        batch, rows = block["batch"], block["batch"] * block["steps"]
        x = np.random.default_rng(batch).random((rows, 28, 28, 1), np.float32)
        y = (x[:, 0, :10, 0]).argmax(1)
        if batch not in models:
            models[batch] = make_network(keras)
        models[batch].fit(x, y, batch_size=batch, epochs=1, verbose=0, callbacks=[timer])
        if "telemetry" in block:
            reported = telemetry_switch.spent()
        answer: Times = {"seconds": timer.seconds, "cpu": timer.cpu, "telemetry": reported}
        print(json.dumps(answer), flush=True)


def serve_mirrored(rank: str, addresses: list[str]) -> None:
    import os

    cluster = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": int(rank)}}
    os.environ["TF_CONFIG"] = json.dumps(cluster)
    import tensorflow as tf
    import tf_keras

    strategy = tf.distribute.MultiWorkerMirroredStrategy()

    def make_network(keras: Keras) -> Model:
        with strategy.scope():
            return network(keras)

    serve(tf_keras, make_network)


def compile_updates() -> None:
    """Have all optimizers of Keras 3 in this process make their updates as ranks do, by XLA."""
    from ddl_magics.runtime.training import compiled_update

    replace_updates(compiled_update.apply)


def wait_before_updates(rank: str, size: str, store: str) -> None:
    """Have `size` processes wait for each other before each update, by the runtime's shared memory."""
    import tensorflow as tf

    from benchmarks.child_processes import allreduce_rank

    nothing = np.zeros(1, np.float32)
    wait = allreduce_rank.ours(allreduce_rank.SHARED_MEMORY, int(rank), int(size), store)(nothing)

    def waited() -> Any:
        wait()
        return nothing

    def lockstep(update: Update, optimizer: Any, gradients: list[Any], variables: Sequence[Any]) -> Any:
        with tf.control_dependencies(gradients), tf.control_dependencies([tf.numpy_function(waited, [], tf.float32)]):
            return update([tf.identity(gradient) for gradient in gradients], variables)

    replace_updates(lockstep)


def replace_updates(replacement: Callable[[Update, Any, list[Any], Sequence[Any]], Any]) -> None:
    """Have updates of Keras 3 made by replacement(the update, optimizer, gradients, variables)."""
    from keras.src.optimizers import base_optimizer

    original = base_optimizer.BaseOptimizer.apply

    def apply(self: Any, grads: Sequence[Any], trainable_variables: Sequence[Any] | None = None) -> Any:
        def update(gradients: Sequence[Any], variables: Sequence[Any]) -> Any:
            return original(self, gradients, variables)

        return replacement(update, self, list(grads), trainable_variables or ())

    base_optimizer.BaseOptimizer.apply = apply


def main() -> None:
    in_a_rank = "ddl" in globals()
    if not in_a_rank and sys.argv[1] == "mirrored":
        return serve_mirrored(sys.argv[2], sys.argv[3:])
    import keras

    if not in_a_rank and sys.argv[1] == "compiled":
        compile_updates()
    if not in_a_rank and sys.argv[1] == "lockstep":
        wait_before_updates(*sys.argv[2:])
    serve(keras)


if __name__ == "__main__":
    main()
