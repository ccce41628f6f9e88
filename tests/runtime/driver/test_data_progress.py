"""How far Spark is with the rows of --data: what the view, the terminal and the panel say meanwhile."""

import contextlib

import numpy as np
import pandas as pd
import pytest
from support.feeds import LocalSpark, prepare, spec
from support.until import until

from ddl_magics.runtime import events
from ddl_magics.runtime.data.columns import DataError
from ddl_magics.runtime.driver import data_progress
from ddl_magics.runtime.driver.journal import Journal
from ddl_magics.runtime.driver.rank_rows import RankRows
from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.runtime.spark import jvm_gateway


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ((0, 4, 0, 0, 1.0), "preparing df: 0 of 4 parts"),
        ((4, 4, 0, 0, 1.0), "preparing df: 4 of 4 parts"),
        (
            (1, 4, 30_000_000, 250_000, 20.0),
            "preparing df: 1 of 4 parts, 250,000 rows, 12,500 rows/s, 30 MB, 1.5 MB/s, about 1:00 left",
        ),
    ],
)
def test_the_message_says_what_is_known(numbers, expected):
    assert data_progress.message("preparing df", *numbers) == expected


def reading(**fields):
    return events.parse(events.make("reading", 0, **fields))


def test_the_message_of_ranks_that_read_files():
    expected = "reading t.parquet: 500,000 of 2,000,000 rows, 50,000 rows/s, 6.4 MB/s, about 0:30 left"
    event = reading(rows=250_000, of=1_000_000, row_bytes=128, seconds=10.0)
    assert data_progress.of_reading("reading t.parquet", event, 2) == expected
    first = reading(rows=0, of=1_000_000, row_bytes=128, seconds=0.0)
    assert data_progress.of_reading("reading t", first, 1) == "reading t: 0 of 1,000,000 rows, 0 rows/s, 0.0 MB/s"


def test_the_rows_that_spark_has_read_are_counted_but_for_those_of_a_cached_frame(spark_cluster, tmp_path):
    session = spark_cluster(2)
    session.range(0, 20_000, 1, 4).write.parquet(str(tmp_path / "rows"))
    frame = session.read.parquet(str(tmp_path / "rows"))

    def look(frame, group):
        counted = jvm_gateway.dataframe_rdd(frame, session.sparkContext, group).map(lambda row: row.id % 7)
        assert len(jvm_gateway.collect(counted, group, "rows")) == 20_000

    def stages(group):
        return data_progress.stages_of(session.sparkContext, group)

    def rows_read(group):
        return data_progress.rows_read(session.sparkContext, stages(group), group)

    assert rows_read("of files") == 0
    look(frame, "of files")
    until(lambda: rows_read("of files") == 20_000, 30)
    cached = frame.filter("id >= 0").cache()
    assert cached.count() == 20_000
    look(cached, "of blocks")
    assert stages("of blocks") and rows_read("of blocks") == 0
    cached.unpersist()


def test_reading_is_a_state_of_the_run_until_all_is_read():
    journal = Journal("r")
    journal.enter(events.RUNNING, "training")
    rows = RankRows(None, RunSpec(data="t.parquet"), "group", None, journal)
    for count in (400, 1000):
        rows.note_reading(reading(rows=count, of=1000, row_bytes=8, seconds=2.0))
    journal.enter(events.STOPPING, "stopping")
    rows.note_reading(reading(rows=600, of=1000, row_bytes=8, seconds=2.0))
    states = [
        (state["state"], state["message"].partition(":")[0], state.get("ready"), state.get("needed"))
        for state in journal.log.all_events()
    ]
    assert states[1:] == [
        (events.WAITING, "reading t.parquet", 400, 1000),
        (events.RUNNING, "running on 2 workers", None, None),
        (events.STOPPING, "stopping", None, None),
    ]


@pytest.mark.parametrize(
    ("floatx", "rounded", "too_large"),
    [
        ("float32", "float32 rounds numbers of 'code': call keras.backend.set_floatx('float64') in a cell", True),
        ("float64", None, False),
    ],
)
def test_what_floatx_loses_is_said_before_training(monkeypatch, floatx, rounded, too_large):
    """Here the cell sets it, which the driver reads."""
    monkeypatch.setattr(data_progress, "watch", lambda *arguments, **options: contextlib.nullcontext())
    options = spec(workers=1, cell=f"keras.backend.set_floatx('{floatx}')")
    frame = pd.DataFrame({"code": [1, 2**24 + 1], "x": np.array([0.5, 2.5]), "y": [0, 1]})

    def distributed(table):
        journal = Journal("r")
        make = lambda sc, group, workers: prepare(LocalSpark(), table, options, {"df": table})  # noqa: E731
        RankRows(None, options, "group", make, journal).distribute(1)
        return [event["message"] for event in journal.log.all_events() if event["kind"] == "notice"]

    said = [message.partition("--data df: ")[2] for message in distributed(frame)]
    assert len(said) == (rounded is not None) and all(message.startswith(rounded) for message in said)
    large = frame.assign(code=0, x=[1e39, np.inf])
    if too_large:
        with pytest.raises(DataError, match=r"df, column 'x': it has a number beyond 3\.4e38, infinite as"):
            distributed(large)
    else:
        assert [message.partition("holds ")[2][:8] for message in distributed(large)] == ["infinite"]
