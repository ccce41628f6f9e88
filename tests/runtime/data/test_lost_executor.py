"""An executor that dies while Spark packs or deals the rows of --data: every row is used once, or one line says why."""

import os
import signal
from pathlib import Path

import pytest
from support import launch
from support.feeds import LOGGED

pytestmark = [pytest.mark.slow, pytest.mark.fresh_cluster, pytest.mark.timeout(300)]

ROWS = 2000


def killing(flag, at):
    """A function for rows that kills its executor's Java once, at a row."""

    def value(row):
        if row == at and not os.path.exists(flag):
            Path(flag).touch()
            daemon = os.getppid()
            java = int(Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1])
            os.kill(java, signal.SIGKILL)
        return float(row)

    return value


@pytest.mark.parametrize("partitions", [4, 100])
def test_every_row_is_used_once(spark_cluster, tmp_path, partitions):
    """Of four partitions, or of one that has all rows and 99 without any."""
    from pyspark.sql import functions as F

    spark, flag = spark_cluster(2), tmp_path / "killed"
    if partitions == 4:
        rows = spark.range(0, ROWS, 1, 4)
    else:
        rows = spark.range(ROWS).selectExpr("id", "0 p").repartition(100, "p").drop("p")
    value = F.udf(killing(str(flag), ROWS * 3 // 4), "double")
    frame = rows.select(value("id").alias("a"), (F.col("id") % 7).alias("y"))
    ended = launch.finished(spark, LOGGED, {"df": frame}, data="df", features=["a"], label="y", batch_size=64)
    assert flag.exists()
    assert sorted(ended.logged("row")) == [float(row) for row in range(ROWS)]
