"""A run on a real Spark: what it keeps, what differs later, and the same run again."""

import numpy as np
import pandas as pd
import pytest
from support import shells
from support.until import until

from ddl_magics import store
from ddl_magics.clusters.embedded import EmbeddedCluster
from ddl_magics.history import comparison, provenance
from ddl_magics.runtime import events as ev

CELL = """%%distributed --workers 2 --data df --features a,b --label y --name digits --seed 3
model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1, "sigmoid")])
model.compile(keras.optimizers.SGD(float(rate)), "binary_crossentropy", metrics=["accuracy"])
model.fit(dataset, epochs=3, verbose=0)
"""


@pytest.fixture
def shell(tmp_path, monkeypatch, spark_cluster):
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.chdir(tmp_path)
    with shells.loaded(None) as shell:
        shell.user_ns.update(spark=spark_cluster(2), rate=np.float32(0.5))
        shells.session(shell).cluster = EmbeddedCluster(lambda: shell.user_ns)
        yield shell


def rows(seed=0, count=400):
    values = np.random.default_rng(seed).normal(size=(count, 2)).round(3)
    return pd.DataFrame({"a": values[:, 0], "b": values[:, 1], "y": (values.sum(axis=1) > 0).astype(int)})


@pytest.mark.timeout(240)
def test_a_run_is_reproduced(shell, capsys, tmp_path, monkeypatch):
    def typed(line):
        text, error = shells.run(shell, line, capsys)
        return text + (str(error) if error else "")

    spark, names = shell.user_ns["spark"], shell.user_ns
    spark.createDataFrame(rows()).repartition(3).write.parquet(str(tmp_path / "rows"))
    names["df"] = spark.read.parquet(f"file://{tmp_path}/rows")
    typed(CELL)
    run = names["digits"]
    assert run.state == ev.FINISHED, run.reason

    until(lambda: run.provenance.data.get("rows"), 10)
    kept = run.provenance
    assert kept.packages["keras"] and kept.driver["packages"] == kept.kernel["packages"]
    assert ",".join(group["ranks"] for group in kept.ranks) in ("0-1", "0,1")
    assert all(group["packages"] == {} for group in kept.ranks), "the executors have the same Python"
    assert kept.spark["settings"]["spark.master"] == "local-cluster[2,1,1024]"
    assert kept.sent == {"rate": {**kept.sent["rate"], "type": "numpy.float32", "dtype": "float32"}}
    assert kept.data["columns"] == {"a": "double", "b": "double", "y": "bigint"} and kept.data["rows"] == 400
    assert kept.data["files"] == 3 and all(source["size"] for source in kept.data["sources"])
    print(f"{(run._folder.path / provenance.NAME).stat().st_size} bytes are kept")

    assert "digits: paper, two" in typed("%ddl tag digits paper two")
    assert "digits: paper\n" in typed("%ddl tag digits two --remove") and run.tags == ["paper"]
    assert typed('%ddl note digits "Table 2"') == "digits: Table 2\n" == typed("%ddl note digits")
    assert "digits" in typed("%ddl runs tag:paper accuracy>0.1 package:keras")
    assert "none of 1 runs matches" in typed("%ddl runs -tag:paper")
    assert "has no tag other" in typed("%ddl tag digits other --remove")
    shown = typed("%ddl show digits")
    assert "tags: paper" in shown and "note: Table 2" in shown and "packages; " in shown

    assert "nothing differs in" in typed("%ddl reproduce digits")
    first, _, cell = shell.rl_next_input.partition("\n")
    assert first.startswith("%%distributed --name digits_again ") and "--seed 3" in first and cell == run.spec.cell

    monkeypatch.setitem(names, "rate", np.float32(0.25))
    spark.createDataFrame(rows(1, 300)).repartition(3).write.parquet(str(tmp_path / "others"))
    before, names["df"] = names["df"], spark.read.parquet(f"file://{tmp_path}/others").drop("b")
    others = {**kept.kernel["packages"], "keras": "9.0"}
    del others["numpy"]
    monkeypatch.setattr("ddl_magics.runtime.provenance.packages.installed", lambda: others)
    told = typed("%ddl reproduce digits")
    for line in (
        "keras 9.0, was ",
        "numpy missing, was ",
        "rate has other values",
        "df: column b: missing, was double",
    ):
        assert line in told
    assert "is gone" in told and "is new" in told, "of the files"
    monkeypatch.undo()
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "data"))

    names.update(df=before, rate=np.float32(0.5))
    told = typed("%ddl reproduce digits --run")
    again = names["digits_again"]
    assert again.state == ev.FINISHED and again.spec.seed == 3
    verdict = comparison.compare(run.histories, again.histories, synchronous=True)
    assert verdict.verdict in (comparison.EQUAL, comparison.ROUNDED), verdict
    assert "digits_again, compared with digits: the histories are equal" in told

    assert "digits is in" in typed(f"%ddl export digits {tmp_path}/digits.zip")
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "there"))
    assert "digits is here" in typed(f"%ddl import {tmp_path}/digits.zip")
    assert store.find_run("digits").labels == ("paper",)
    assert "is in the store already" in typed(f"%ddl import {tmp_path}/digits.zip")


def test_what_cannot_be_said_is_one_line(shell, capsys):
    for line, message in (
        ("%ddl reproduce", "write: %ddl reproduce RUN [--run]"),
        ("%ddl reproduce none", "there is no run none."),
        ("%ddl compare a", "write: %ddl compare RUN RUN"),
        ("%ddl export a", "write: %ddl export RUN FILE.zip"),
        ("%ddl import", "write: %ddl import FILE.zip"),
        ("%ddl note", 'write: %ddl note RUN ["TEXT" ...]'),
        ("%ddl tag --x", "%ddl tag has no option --x. Write: %ddl tag RUN [TAG ...] [--remove]"),
        ("%ddl runs stat:failed", "runs have no field 'stat'"),
    ):
        text, error = shells.run(shell, line, capsys)
        assert message in text + str(error), line
