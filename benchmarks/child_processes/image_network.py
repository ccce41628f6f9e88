"""A network of keras.applications that trains on images, and is timed as Horovod's synthetic benchmark times it.

    python -m benchmarks.child_processes.image_network plain | mirrored RANK ADDRESS...

plain: Keras as it is. mirrored: tf_keras under MultiWorkerMirroredStrategy. This file is also the cell that ranks of
the runtime run. A message is a `Training`, the answer the seconds of each iteration.
"""

import json
import sys
import time
from typing import Any, TypedDict

import numpy as np

Keras = Any  # the module keras, or tf_keras; they have no types
Model = Any

#: Name -> its class in keras.applications.
NETWORKS = {"resnet50": "ResNet50", "inception_v3": "InceptionV3", "vgg19": "VGG19", "mobilenet": "MobileNet"}
CLASSES = 1000


class Training(TypedDict):
    """What is trained: warmup batches, then `iterations` of `batches` each, of `batch` rows on each of `workers`.

    image: its height and width. source: "" for images that are made once, or the path of a TFRecord file.
    policy: Keras' dtype policy. overlap: False where the gradients are to be exchanged after the backward pass.
    """

    network: str
    image: int
    batch: int
    workers: int
    warmup: int
    batches: int
    iterations: int
    source: str
    policy: str
    overlap: bool


def build(keras: Keras, training: Training) -> Model:
    """The compiled network with random weights."""
    keras.mixed_precision.set_global_policy(training["policy"])
    made = getattr(keras.applications, NETWORKS[training["network"]])
    model = made(weights=None, input_shape=(training["image"], training["image"], 3), classes=CLASSES)
    model.compile(keras.optimizers.SGD(0.01), "sparse_categorical_crossentropy", jit_compile=False)
    return model


def images(training: Training, spread: bool) -> Any:
    """Batches for all workers together, without end. spread: TensorFlow is to give each worker its part of them."""
    import tensorflow as tf

    rows, shape = training["batch"] * training["workers"], (training["image"], training["image"], 3)
    if training["source"]:
        wanted = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}

        def decoded(record: Any) -> Any:
            found = tf.io.parse_single_example(record, wanted)
            image = tf.ensure_shape(tf.io.decode_jpeg(found["image"], channels=3), shape)
            return tf.cast(image, tf.float32) / 255, found["label"]

        dataset = tf.data.TFRecordDataset(training["source"]).map(decoded)
    else:
        random = np.random.default_rng(0)
        made = random.random((rows, *shape), np.float32), random.integers(0, CLASSES, rows)
        dataset = tf.data.Dataset.from_tensor_slices(made).cache()
    dataset = dataset.repeat().batch(rows, drop_remainder=True).prefetch(2)
    if spread:
        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
        dataset = dataset.with_options(options)
    return dataset


def iteration_timer(keras: Keras) -> Any:
    """A callback with the `seconds` of each epoch, which is an iteration here."""

    class IterationTimer(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
        def on_train_begin(self, logs: Any = None) -> None:
            self.seconds: list[float] = []

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self._began = time.perf_counter()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.seconds.append(time.perf_counter() - self._began)

    return IterationTimer()


def train(keras: Keras, model: Model, dataset: Any, training: Training) -> list[float]:
    """The seconds of each iteration."""
    timer = iteration_timer(keras)
    model.fit(dataset, steps_per_epoch=training["warmup"], verbose=0)
    times = {"epochs": training["iterations"], "steps_per_epoch": training["batches"]}
    model.fit(dataset, **times, verbose=0, callbacks=[timer])
    seconds: list[float] = timer.seconds
    return seconds


def serve(keras: Keras, strategy: Any = None) -> None:
    """Answer messages until standard input ends. strategy: a strategy of tf.distribute."""
    for line in sys.stdin:
        training: Training = json.loads(line)
        if "ddl" in globals():
            _set_overlap(training["overlap"])
        keras.backend.clear_session()
        if strategy is None:
            model = build(keras, training)
        else:
            with strategy.scope():
                model = build(keras, training)
        print(json.dumps(train(keras, model, images(training, strategy is not None), training)), flush=True)


def _set_overlap(on: bool) -> None:
    """Gradients of one bucket are exchanged when the last one is there."""
    from ddl_magics.runtime.collectives import buckets

    buckets.MAX_BUCKETS = 8 if on else 1


def serve_mirrored(rank: str, addresses: list[str]) -> None:
    import os

    cluster = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": int(rank)}}
    os.environ["TF_CONFIG"] = json.dumps(cluster)
    import tensorflow as tf
    import tf_keras

    serve(tf_keras, tf.distribute.MultiWorkerMirroredStrategy())


def main() -> None:
    if "ddl" not in globals() and sys.argv[1] == "mirrored":
        return serve_mirrored(sys.argv[2], sys.argv[3:])
    import keras

    serve(keras)


if __name__ == "__main__":
    main()
