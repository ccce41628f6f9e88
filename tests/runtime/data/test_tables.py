"""--data as a table: the rows that it has today, or in a version, and never those of all its files."""

import json
import subprocess
import sys
import types

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support import paths

from ddl_magics.options.parsing import parse
from ddl_magics.runtime.data import sources, tables
from ddl_magics.runtime.data.columns import DataError

RIG = paths.ROOT / "build" / "tables"
SCHEMA = {
    "type": "struct",
    "fields": [{"name": name, "type": "long", "nullable": True, "metadata": {}} for name in ("id", "y", "later")],
}


@pytest.fixture
def table(tmp_path):
    """A folder with two files of rows and the mark of a table: (folder, function that makes a file)."""
    folder = tmp_path / "t"
    (folder / "_delta_log").mkdir(parents=True)
    for number in (1, 2):
        pq.write_table(pa.table({"id": [number, number + 10], "y": [0, 1]}), folder / f"{number}.parquet")
    return folder


@pytest.fixture
def deltalake(monkeypatch):
    """A stand-in for the package: `active` are the files, `features` what the table needs of its reader."""
    known = types.SimpleNamespace(active=["1.parquet"], features=None, opened=[])

    class DeltaTable:
        def __init__(self, folder, version):
            known.opened.append((folder, version))
            self.table_uri = f"file://{folder}/"

        def protocol(self):
            return types.SimpleNamespace(
                min_reader_version=1 + 2 * bool(known.features), reader_features=known.features
            )

        def schema(self):
            return types.SimpleNamespace(to_json=lambda: json.dumps(SCHEMA))

        def file_uris(self):
            return [self.table_uri + name for name in known.active]

    module = types.ModuleType("deltalake")
    module.DeltaTable = DeltaTable
    monkeypatch.setitem(sys.modules, "deltalake", module)
    return known


def ids(source):
    return sorted(row["id"] for row in source.frame.select("id").collect())


def test_without_its_packages_a_table_is_refused_with_what_to_add(spark, table, monkeypatch):
    monkeypatch.setitem(sys.modules, "deltalake", None)
    monkeypatch.setitem(sys.modules, "pyiceberg", None)
    said = r"have removed rows, too: start Spark with its package \(.*io\.delta:delta-spark\), or install deltalake"
    for name in ("", "@v3", "/"):
        with pytest.raises(DataError, match=said):
            sources.source(spark, f"file://{table}{name}")
    (table / "_delta_log").rename(table / "metadata")
    (table / "metadata" / "v1.metadata.json").touch()
    with pytest.raises(DataError, match=r"of Iceberg have removed rows, too: start Spark .*, or install pyiceberg"):
        sources.source(spark, f"file://{table}")
    (table / "metadata").rename(table / ".hoodie")
    with pytest.raises(DataError, match=r"of Hudi no version can be named: leave out @v3$"):
        sources.source(spark, f"file://{table}@v3")


def test_the_files_that_deltalake_lists_are_read_and_no_others(spark, table, deltalake):
    source = sources.source(spark, f"file://{table}")
    assert source.format == "parquet" and ids(source) == [1, 11]
    assert [uri.rpartition("/")[2] for uri in source.uris()] == ["1.parquet"]
    assert source.frame.columns == ["id", "y", "later"], "a column that the files do not have yet"
    assert source.code == f"spark.read.format('delta').load('file:{table}')"
    sources.source(spark, f"file://{table}@v3")
    assert deltalake.opened == [(str(table), None), (str(table), 3)]
    deltalake.active = []
    assert ids(sources.source(spark, f"file://{table}")) == []


def test_a_table_whose_files_do_not_have_its_rows_is_sparks_alone(spark, table, deltalake):
    deltalake.features = ["deletionVectors"]
    with pytest.raises(DataError, match=r"is of Delta with deletionVectors: start Spark with its package"):
        sources.source(spark, f"file://{table}")


def test_a_name_that_ends_like_a_version_is_a_name(spark, tmp_path):
    pq.write_table(pa.table({"id": [7], "y": [0]}), tmp_path / "rows@v3")
    assert ids(sources.source(spark, f"file://{tmp_path}/rows@v3")) == [7]
    assert tables.without_version("file:///t@v12") == ("file:///t", 12)
    assert parse("--data abfs://files@account.example/sales@v12 --label y").data.endswith("/sales@v12")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_tables_by_their_packages_and_by_what_lists_their_files(tmp_path):
    """Written by Delta and Iceberg themselves. deltalake and pyiceberg list what has no removed rows in its files."""
    every, today = ([[i, f"0{i % 2}", i % 2] for i in range(first, 200)] for first in (0, 100))
    by_package = trial(tmp_path, ",".join(map(str, sorted(RIG.glob("jars/*.jar")))))
    for table, names in {"delta": ("plain", "vectors"), "iceberg": ("ice", "deletes")}.items():
        for name in names:
            assert by_package[name]["format"] == by_package[f"{name}@v1"]["format"] == table
            assert by_package[name]["rows"] == today and by_package[f"{name}@v1"]["rows"] == every, name
    assert by_package["renamed"]["rows"] == today
    assert "plain@v9 cannot be read: " in by_package["plain@v9"] and "ice@v9 cannot be read: " in by_package["ice@v9"]
    by_files = trial(tmp_path, "")
    for name in ("plain", "ice"):
        assert by_files[name]["format"] == by_files[f"{name}@v1"]["format"] == "parquet"
        assert by_files[name]["rows"] == today and by_files[f"{name}@v1"]["rows"] == every, name
    assert by_files["deletes@v1"]["rows"] == every
    assert "plain@v9 cannot be read by deltalake: " in by_files["plain@v9"]
    assert "ice@v9 cannot be read by pyiceberg: " in by_files["ice@v9"]
    assert "is of Delta with deletionVectors" in by_files["vectors"]
    assert "is of Iceberg with removed rows: start Spark with its package" in by_files["deletes"]
    assert "its catalog does: df = spark.read.table(NAME)" in by_files["cataloged"]
    assert by_package["cataloged"] == by_files["cataloged"]
    assert "is of Iceberg with columns that have changed: start Spark" in by_files["renamed"]


def trial(folder, jars):
    """What stores/table_trial.py says."""
    assert (RIG / ".ready").exists(), "make tables-env fetches Delta and Iceberg"
    environment = paths.environment()
    if not jars:
        environment["PYTHONPATH"] += f":{RIG / 'python'}"
    command = [sys.executable, "-m", "stores.table_trial", str(folder), jars]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])
