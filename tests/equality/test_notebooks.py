"""The training cells of the worked examples: two workers learn by all-reduce what one process learns, in float64."""

import re
from dataclasses import replace

import nbformat
import numpy as np
import pytest
from support import launch
from support.comparison import FLOAT64, distance
from support.paths import ROOT

from ddl_magics.options.parsing import parse

pytestmark = pytest.mark.timeout(300)

#: Rows to train on: from 192 on, their order is the same for one and two workers (row_order.py).
ROWS = 200
PRECISE = 'import keras\nkeras.config.set_floatx("float64")\n'


def mnist(spark, random):
    images = [(pixels.tolist(), n % 10) for n, pixels in enumerate(random.integers(0, 256, (ROWS + 32, 784)))]
    parts = images[:ROWS], images[ROWS:]
    train, test = (spark.createDataFrame(part, "pixels array<short>, label byte") for part in parts)
    return {"train": train, "test": test}


def energy(spark, random):
    hours = [(n, *values) for n, values in enumerate(random.random((ROWS + 24, 2)).tolist())]
    train = spark.createDataFrame(hours, "time long, load double, next_temperature double")
    return {"train": train, "recent": random.random((3, 24, 2), "float32")}


def higgs(spark, random):
    events = [(x.tolist(), float(n % 3 == 0), 0.5 + n % 4) for n, x in enumerate(random.normal(size=(ROWS + 32, 30)))]
    return {"train": spark.createDataFrame(events, "features array<double>, label double, weight double")}


#: Notebook -> its data.
EXAMPLES = {"mnist": mnist, "energy": energy, "higgs": higgs}


def training_cell(name):
    """The first %%distributed cell of a notebook: its options, as a spec of two workers, and its source.

    Without dropout, which draws other numbers on each worker.
    """
    cells = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4).cells
    text = next(cell.source for cell in cells if cell.source.startswith("%%distributed"))
    line, _, source = text.removeprefix("%%distributed ").partition("\n")
    return parse(re.sub(r"(?<=--workers )\{.*?\}", "2", line)), PRECISE + source.replace("Dropout(0.3)", "Dropout(0.0)")


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_all_reduce_learns_what_one_process_learns(name, spark_cluster):
    spark = spark_cluster(2)
    names = {"epochs": 2, **EXAMPLES[name](spark, np.random.default_rng(1))}
    spec, source = training_cell(name)
    assert (spec.strategy, spec.workers) == ("allreduce", 2)
    ended = []
    for each in (replace(spec, strategy="single", workers=1), spec):
        record = each.to_record()
        del record["run"], record["cell"]
        ended.append(launch.run_cell(spark, source, names, **record))
        assert ended[-1].state == "FINISHED", (ended[-1].message, ended[-1].failure)
    one, both = ended
    assert set(one.history) == set(both.history) and len(one.history["loss"]) == 2
    for metric, values in one.history.items():
        assert distance(both.history[metric], values) <= FLOAT64, metric
    for ours, theirs in zip(launch.weights(both.run), launch.weights(one.run), strict=True):
        assert ours.dtype == np.float64 and distance(ours, theirs) <= FLOAT64
