"""Tables of Delta as --data, in a Spark with its package or without: `python -m stores.table_trial FOLDER JARS`.

With JARS, not empty, the tables are written first: `plain`, and `vectors` with deletion vectors. Both have the rows 0
to 199 in version 1, of which 0 to 99 are removed later. Prints what each name of a table gave.
"""

import json
import os
import sys

from support import spark, starts

from ddl_magics.runtime.data import sources
from ddl_magics.runtime.data.columns import DataError

NAMES = ("plain", "plain@v1", "plain@v9", "vectors", "vectors@v1")
_EXTENSIONS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "1",
}


def write(session, folder):
    for name in ("plain", "vectors"):
        table = f"delta.`{folder}/{name}`"
        properties = f"'delta.enableDeletionVectors' = '{name == 'vectors'}'"
        columns = "(id bigint, day string, y bigint) using delta partitioned by (day)"
        session.sql(f"create table {table} {columns} tblproperties ({properties})")
        rows = session.range(200).selectExpr("id", "concat('0', id % 2) day", "id % 2 y")
        rows.repartition(1).write.format("delta").mode("append").save(f"{folder}/{name}")
        session.sql(f"delete from {table} where id < 100")


def main():
    folder, jars = sys.argv[1:]
    starts.make_cheap()
    session = spark.session(1, **({"spark.jars": jars, **_EXTENSIONS} if jars else {}))
    if jars:
        write(session, folder)
    said = {}
    for name in NAMES:
        try:
            source = sources.source(session, f"file://{folder}/{name}")
        except DataError as error:
            said[name] = str(error)
            continue
        rows = sorted(tuple(row) for row in source.frame.select("id", "day", "y").collect())
        said[name] = {"format": source.format, "rows": rows, "code": source.code}
    print("\n" + json.dumps(said))
    sys.stdout.flush()
    session.stop()
    os._exit(0)


if __name__ == "__main__":
    main()
