"""The messages to the page: small, complete, and together equal to the whole."""

from itertools import islice

import numpy as np
import pytest
from support.page import FACTS, Page, assert_same
from support.synthetic import Synthetic

from ddl_magics.dashboard.history import History
from ddl_magics.dashboard.messages import Packer, unpack_rows
from ddl_magics.dashboard.workers import COLUMNS

jsonschema = pytest.importorskip("jsonschema")

OPEN_BYTES = 500_000
UPDATE_BYTES = 20_000


@pytest.mark.parametrize(
    ("workers", "epochs", "steps", "bucket", "batch"),
    [(2, 100, 1000, 5, 2000), (64, 4, 250, 10, 300), (256, 1, 40, 5, 1500)],
    ids=["100,000 steps", "64 workers", "256 workers"],
)
def test_updates_are_small_and_add_up_to_the_whole(workers, epochs, steps, bucket, batch):
    run = Synthetic(workers, epochs=epochs, steps=steps, bucket=bucket, slow={1: 1.8})
    history = History(workers)
    packer = Packer(history, dict(FACTS, workers=workers))
    page = Page()
    page.take(packer.full(0.0, None))
    events = (event for part in (run.begin(), run.train(), run.end()) for event in part)
    while part := list(islice(events, batch)):
        history.feed(part)
        packed = packer.update(1.0, 1.0)
        assert packed.size <= UPDATE_BYTES
        page.take(packed)
    while packed.has_more:
        packed = packer.update(1.0, 1.0)
        assert packed.size <= UPDATE_BYTES
        page.take(packed)
    whole = packer.full(1.0, 1.0)
    assert whole.size <= OPEN_BYTES
    fresh = Page()
    fresh.take(whole)
    assert_same(page, fresh)
    assert set(fresh.rows) == set(range(workers))


def test_the_worst_run_keeps_to_the_budget():
    """Many metrics, many ranks with lines, long texts in all alphabets."""
    run = Synthetic(16, epochs=2, steps=400)
    history = History(16)
    packer = Packer(history, dict(FACTS, workers=16))
    names = [f"a_rather_long_name_of_a_metric_{i}" for i in range(60)]
    sizes = [packer.full(0.0, None).size]
    events = (event for part in (run.begin(), run.train()) for event in part)
    while part := list(islice(events, 200)):
        for event in part:
            if "metrics" in event:
                event["metrics"] = dict.fromkeys(names, 1.0) | {f"val_{name}": 2.0 for name in names}
        noise = [run.log(rank, "ありがとう " * 80 + "\n", "stderr") for rank in range(16)] * 10
        history.feed([*part, *noise])
        sizes.append(packer.update(0.0, 0.0).size)
    failure = {"rank": 3, "host": "h" * 60, "kind": "error", "message": "é" * 9000, "traceback": "é\n" * 90_000}
    history.feed([run.state("FAILED", "é" * 9000, failure=failure)])
    sizes += [packer.update(0.0, 0.0).size for _ in range(3)]
    assert max(sizes) <= UPDATE_BYTES
    assert packer.full(0.0, 0.0).size <= OPEN_BYTES - 100_000  # the script opens with it


def test_nothing_new_is_nearly_nothing_to_send():
    run = Synthetic(2, epochs=1, steps=100)
    history = History(2)
    packer = Packer(history, FACTS)
    history.feed([*run.begin(), *run.train()])
    packer.full(0.0, 0.0)
    packed = packer.update(1.0, 0.0)
    assert packed.size < 150 and not packed.has_more


def test_lines_beyond_the_cap_are_counted():
    run = Synthetic(1)
    history = History(1)
    packer = Packer(history, FACTS)
    packer.full(0.0, 0.0)
    history.feed([run.log(0, "x" * 300 + "\n") for _ in range(40)])
    message = packer.update(0.0, 0.0).message
    assert len(message["logs"]) + message["dropped"] == 40
    assert message["dropped"] > 0


def test_a_row_has_a_number_for_each_column():
    run = Synthetic(2, gpus=1, strategy="ps", epochs=1, steps=300)
    history = History(2)
    history.feed([*run.begin(), *run.train()])
    rows = unpack_rows(Packer(history, FACTS).full(0.0, 0.0).buffers[1])
    first, second = (dict(zip(COLUMNS, row.tolist(), strict=True)) for row in rows)
    assert first["gpu"] > 50 and first["gpu_memory_total"] == 16e9
    assert 0 < first["gpu_power"] < first["gpu_power_limit"] == 300
    assert np.isnan(second["gpu"]) and np.isnan(second["gpu_memory"])
    assert first["commits"] > 0 and first["staleness_max"] >= first["staleness"] > 0
