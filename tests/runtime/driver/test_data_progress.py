"""How far Spark is with the rows of --data: what the view, the terminal and the panel say meanwhile."""

import pytest
from support.until import until

from ddl_magics.runtime.driver import data_progress
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


def test_the_rows_that_spark_has_read_are_counted(spark_cluster, tmp_path):
    session, group = spark_cluster(2), "progress of a test"
    session.range(0, 20_000, 1, 4).write.parquet(str(tmp_path / "rows"))
    frame = session.read.parquet(str(tmp_path / "rows"))

    def rows_read():
        return data_progress.rows_read(session.sparkContext, data_progress.stages_of(session.sparkContext, group))

    assert rows_read() == 0
    counted = jvm_gateway.dataframe_rdd(frame, session.sparkContext, group).map(lambda row: row.id % 7)
    assert len(jvm_gateway.collect(counted, group, "rows")) == 20_000
    until(lambda: rows_read() == 20_000, 30)
