"""Tables of Delta and Iceberg as --data, in a Spark with their packages or without.

`python -m stores.table_trial FOLDER JARS`: with JARS, not empty, the tables are written first. Of Delta `plain`, and
`vectors` with deletion vectors; of Iceberg `ice`, `deletes` with files of removed rows, `renamed`, of which a column
was called otherwise, and `cataloged`, which is `ice` as a catalog has it. All have the rows 0 to 199 in version 1, of
which 0 to 99 are removed later. Version 1 of an Iceberg table is its first snapshot. Prints what each name of a table
gave.
"""

import json
import os
import shutil
import sys
from pathlib import Path

from support import spark, starts

from ddl_magics.runtime.data import sources
from ddl_magics.runtime.data.columns import DataError

NAMES = (
    *("plain", "plain@v1", "plain@v9", "vectors", "vectors@v1"),
    *("ice", "ice@v1", "ice@v9", "deletes", "deletes@v1", "renamed", "cataloged"),
)
_EXTENSIONS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,"
    "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "1",
}


_ICEBERG = {
    "spark.sql.catalog.local": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.local.type": "hadoop",
}


def write_delta(session, folder):
    for name in ("plain", "vectors"):
        table = f"delta.`{folder}/{name}`"
        properties = f"'delta.enableDeletionVectors' = '{name == 'vectors'}'"
        columns = "(id bigint, day string, y bigint) using delta partitioned by (day)"
        session.sql(f"create table {table} {columns} tblproperties ({properties})")
        rows(session).write.format("delta").mode("append").save(f"{folder}/{name}")
        session.sql(f"delete from {table} where id < 100")


def write_iceberg(session, folder):
    """{name: its first snapshot}"""
    snapshots = {}
    for name in ("ice", "deletes", "renamed"):
        mode = "merge-on-read" if name == "deletes" else "copy-on-write"
        label = "z" if name == "renamed" else "y"
        columns = f"(id bigint, day string, {label} bigint) using iceberg partitioned by (day)"
        session.sql(f"create table local.{name} {columns} tblproperties ('write.delete.mode' = '{mode}')")
        rows(session).withColumnRenamed("y", label).sortWithinPartitions("day").writeTo(f"local.{name}").append()
        session.sql(f"delete from local.{name} where id < 100")
        first = session.sql(f"select snapshot_id from local.{name}.snapshots order by committed_at").first()
        snapshots[name] = first[0]
    session.sql("alter table local.renamed rename column z to y")
    shutil.copytree(Path(folder, "ice"), Path(folder, "cataloged"))
    metadata = Path(folder, "cataloged", "metadata")
    (metadata / "version-hint.text").unlink()
    for file in metadata.glob("v*.metadata.json"):
        file.rename(metadata / f"{file.name[1:2]:0>5}-0a1b.metadata.json")
    return snapshots


def rows(session):
    return session.range(200).selectExpr("id", "concat('0', id % 2) day", "id % 2 y").repartition(1)


def main():
    folder, jars = sys.argv[1:]
    starts.make_cheap()
    warehouse = {"spark.sql.catalog.local.warehouse": f"file://{folder}"}
    session = spark.session(1, **({"spark.jars": jars, **_EXTENSIONS, **_ICEBERG, **warehouse} if jars else {}))
    kept = Path(folder, "snapshots.json")
    if jars:
        write_delta(session, folder)
        kept.write_text(json.dumps(write_iceberg(session, folder)))
    snapshots, said = json.loads(kept.read_text()), {}
    for name in NAMES:
        table = name.partition("@")[0]
        uri = name.replace("@v1", f"@v{snapshots.get(table, 1)}")
        try:
            source = sources.source(session, f"file://{folder}/{uri}")
        except DataError as error:
            said[name] = str(error)
            continue
        found = sorted(tuple(row) for row in source.frame.select("id", "day", "y").collect())
        said[name] = {"format": source.format, "rows": found, "code": source.code}
    print("\n" + json.dumps(said))
    sys.stdout.flush()
    session.stop()
    os._exit(0)


if __name__ == "__main__":
    main()
