"""What predictions on Spark cost: rows per CPU second of `ddl_magics.predict`, row by row, and in one process.

    python -m benchmarks.scoring [--quick] [--rounds N] [--pause SECONDS] [--tables NAME ...]

Two tables: a million rows of 31 numbers with a small dense model, and 100,000 images of 28 x 28 with a small
convolutional one. "ours" scores the DataFrame on a local-cluster of two executors with a core each, and Spark drops the
rows. "predict_batch_udf" is Spark's own function, with rows as Arrow. "row by row" is a stand-in for a predictor that
calls the model for each row, in the same cluster, for fewer rows. "one process" is `model.predict` on an array that is
in its memory. CPU seconds are those of all processes that take part, Spark's Java among them, without what Spark and
the models need to start: each is called once before.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Any

from .harness import command, cpu_time, report
from .harness.rounds import rotated

ROUNDS, QUICK_ROUNDS = 5, 1
#: Of a table: rows, rows that are scored one by one.
TABLES = {"31 numbers": (1_000_000, 500), "28 x 28 images": (100_000, 500)}
QUICK_SHARE = 50
BATCH = 1024
OURS, UDF, ROW_BY_ROW, ONE_PROCESS = "ours", "predict_batch_udf", "row by row", "one process"
GOAL_ROW_BY_ROW, GOAL_UDF, GOAL_ONE_PROCESS = 50.0, 1.2, 0.5

Samples = dict[str, list[float]]


def models() -> dict[str, Any]:
    """By table."""
    import keras

    numbers = keras.Sequential(
        [keras.Input((31,)), keras.layers.Dense(64, "relu"), keras.layers.Dense(64, "relu"), keras.layers.Dense(1)]
    )
    images = keras.Sequential(
        [
            keras.Input((784,)),
            keras.layers.Reshape((28, 28, 1)),
            keras.layers.Conv2D(16, 3, strides=2, activation="relu"),
            keras.layers.Conv2D(32, 3, strides=2, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(10, "softmax"),
        ]
    )
    return {"31 numbers": numbers, "28 x 28 images": images}


def frame(spark: Any, table: str, rows: int) -> Any:
    """The table, cached by the executors; how it is made is not measured."""
    from pyspark.sql import functions as F

    numbers = [F.rand(k).cast("float") for k in range(31 if table == "31 numbers" else 1)]
    made = spark.range(0, rows, 1, 8)
    if table == "31 numbers":
        made = made.select("id", *(number.alias(f"x{k}") for k, number in enumerate(numbers)))
    else:
        pixels = F.expr("transform(sequence(1, 784), k -> cast((id * 31 + k * 17) % 255 as float))")
        made = made.select("id", pixels.alias("pixels"))
    made = made.cache()
    made.count()
    return made


def one_by_one(content: bytes) -> Callable[[Iterator[Any]], Iterator[float]]:
    """A task that calls the model for each row."""

    def score(rows: Iterator[Any]) -> Iterator[float]:
        import tempfile

        import keras
        import numpy as np

        with tempfile.NamedTemporaryFile(suffix=".keras") as file:
            file.write(content)
            file.flush()
            model = keras.models.load_model(file.name, compile=False)
        for row in rows:
            values = row["pixels"] if "pixels" in row else row[1:]
            yield float(model.predict(np.array([values], "float32"), verbose=0)[0, 0])

    return score


def batch_udf(spark: Any, content: bytes, width: int) -> Any:
    """Spark's `predict_batch_udf` of a model that gives one number or a list of them, for a column of arrays."""
    from pyspark.ml.functions import predict_batch_udf
    from pyspark.sql.types import ArrayType, FloatType

    shipped = spark.sparkContext.broadcast(content)

    def make() -> Any:
        import tempfile

        import keras

        with tempfile.NamedTemporaryFile(suffix=".keras") as file:
            file.write(shipped.value)
            file.flush()
            model = keras.models.load_model(file.name, compile=False)
        return lambda inputs: model.predict_on_batch(inputs)

    kind = ArrayType(FloatType())
    return predict_batch_udf(make, return_type=kind, batch_size=BATCH, input_tensor_shapes=[[width]])


def measure(spark: Any, tables: Sequence[str], share: int, rounds: int, pause: float) -> Samples:
    """{"TABLE, WAY": thousands of rows per CPU second, of each round}."""
    import numpy as np
    from pyspark.sql import functions as F

    from ddl_magics.clusters.scoring import model_content, predict

    samples: Samples = {}
    made = models()
    for table in tables:
        model = made[table]
        rows, few = (count // share for count in TABLES[table])
        whole, content = frame(spark, table, rows), model_content(model)
        part = whole.limit(few).repartition(2).cache()
        part.count()
        width = 31 if table == "31 numbers" else 784
        features = [name for name in whole.columns if name != "id"]
        array = np.random.default_rng(0).uniform(size=(rows, width)).astype("float32")

        def ours(whole: Any = whole, model: Any = model, features: Any = features) -> None:
            scored = predict(whole, model, features=features, batch_size=BATCH).select("prediction")
            scored.write.format("noop").mode("overwrite").save()

        given = F.array(*features) if len(features) > 1 else F.col(features[0])
        udf = batch_udf(spark, content, width)

        def by_udf(whole: Any = whole, udf: Any = udf, given: Any = given) -> None:
            whole.select(udf(given)).write.format("noop").mode("overwrite").save()

        def row_by_row(part: Any = part, content: bytes = content) -> None:
            part.rdd.mapPartitions(one_by_one(content)).count()

        def one_process(model: Any = model, array: Any = array) -> None:
            model.predict(array, batch_size=BATCH, verbose=0)

        ways: dict[str, tuple[Callable[[], None], int]] = {
            OURS: (ours, rows),
            UDF: (by_udf, rows),
            ROW_BY_ROW: (row_by_row, few),
            ONE_PROCESS: (one_process, rows),
        }
        for number in range(-1, rounds):  # the first round warms up
            for way in rotated(ways, number):
                run, count = ways[way]
                before, begun = cpu_time.so_far(), time.perf_counter()
                run()
                spent, took = cpu_time.so_far() - before, time.perf_counter() - begun
                time.sleep(pause)
                if number >= 0:
                    samples.setdefault(f"{table}, {way}", []).append(count / spent / 1e3)
                    samples.setdefault(f"{table}, {way}, wall", []).append(count / took / 1e3)
            print(f"{table}: round {number + 1} of {rounds}", file=sys.stderr)
        whole.unpersist()
        part.unpersist()
    return samples


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    from support.spark import Clusters  # type: ignore[import-untyped,unused-ignore]

    parser = command.parser("scoring", __doc__, "few rows, one round")
    command.add_rounds(parser, ROUNDS)
    command.add_pause(parser)
    command.add_tables(parser, TABLES)
    options = parser.parse_args(arguments)
    before = report.machine()
    share = QUICK_SHARE if options.quick else 1
    rounds = command.rounds(options, ROUNDS, QUICK_ROUNDS)
    clusters = Clusters()
    try:
        samples = measure(clusters.get(2), options.tables, share, rounds, options.pause)
    finally:
        clusters.stop()
    per_cpu = {name: values for name, values in samples.items() if not name.endswith(", wall")}
    print(report.spread(per_cpu, "k rows/CPU s"), "\n")
    print(report.spread({name: values for name, values in samples.items() if name not in per_cpu}, "k rows/s"), "\n")
    goals = []
    for table in options.tables:
        others = ((ROW_BY_ROW, GOAL_ROW_BY_ROW), (UDF, GOAL_UDF), (ONE_PROCESS, GOAL_ONE_PROCESS))
        for other, goal in others:
            ratio = median(samples[f"{table}, {OURS}"]) / median(samples[f"{table}, {other}"])
            goals.append(report.at_least(f"{table}: ours over {other}, rows per CPU s", ratio, goal))
    report.finish(samples, goals, machine_before=before)


if __name__ == "__main__":
    main()
