"""--data of files on a real Livy, in one session: every row once, windows, and the second run from the cache."""

import dataclasses

import pytest
from livy import runs

from ddl_magics.options.parsing import parse
from ddl_magics.session.session import Session

pytestmark = [pytest.mark.livy, pytest.mark.slow, pytest.mark.timeout(500)]

ROWS = 200
#: One column of numbers, or windows of it.
CELL = """
for x, y in [(x.tolist(), float(y)) for xs, ys in dataset.as_numpy_iterator() for x, y in zip(xs, ys)]:
    ddl.log(x=x if isinstance(x, float) else x[0], last=x if isinstance(x, float) else x[-1], y=y)
"""


@pytest.fixture(scope="module")
def session(livy_server):
    cluster = runs.create(livy_server)
    yield Session(cluster)
    cluster.session.delete()


def rows(session, line):
    """(the rows that the cell saw, sorted, as (first, last, label)), notices of a run with these options)."""
    spec = dataclasses.replace(parse(f"--name run --workers 2 --label y --batch-size 16 {line}"), cell=CELL)
    run = session.submit(spec, {}).wait(200)
    assert run.state == "FINISHED", run.events[-1]
    seen = [event["metrics"] for event in run.events if event["kind"] == "values"]
    notices = [event["message"] for event in run.events if event["kind"] == "notice"]
    return sorted((row["x"], row["last"], row["y"]) for row in seen if "y" in row), notices


def test_files_windows_and_the_cache(session, tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import csv, parquet

    numbers = [number / 2 for number in range(ROWS)]
    table = pa.table({"t": list(range(ROWS)), "x": numbers, "y": [number + 1.0 for number in numbers]})
    for part in range(2):
        parquet.write_table(table.slice(part * 120, 120), tmp_path / f"{part}.parquet")
    csv.write_csv(table, tmp_path / "rows.csv")
    expected = [(x, x, x + 1) for x in numbers]
    files = f"file://{tmp_path}/*.parquet"

    found, first = rows(session, f"--data {files} --features x --cache on")
    assert found == expected
    found, second = rows(session, f"--data {files} --features x --cache on")
    assert found == expected
    assert not any("from the cache" in line for line in first) and any("from the cache" in line for line in second)
    assert rows(session, f"--data file://{tmp_path}/rows.csv --features x")[0] == expected
    found, _ = rows(session, f"--data {files} --features x --sequence-length 8 --order-by t")
    assert found == [(numbers[n], numbers[n + 7], numbers[n + 8] + 1) for n in range(ROWS - 8)]
