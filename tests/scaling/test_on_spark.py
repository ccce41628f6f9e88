"""`%ddl scale` on a real Spark with two executors: the cell's runs end where --epochs says, and are measured."""

import dataclasses

import pytest

from ddl_magics.clusters.embedded import EmbeddedCluster
from ddl_magics.commands.kernel import Kernel
from ddl_magics.commands.scale import scale
from ddl_magics.commands.table import BY_VERB
from ddl_magics.options.parsing import parse
from ddl_magics.runtime import events as ev
from ddl_magics.session.session import Session

CELL = """
x = np.random.default_rng(0).normal(size=(2048, 32)).astype("float32")
model = keras.Sequential([keras.Input((32,)), keras.layers.Dense(256, "relu"), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(x, x[:, :1], epochs=4, batch_size=64, verbose=0)
"""


@pytest.mark.timeout(240)
def test_a_cell_is_measured_with_one_and_two_workers(spark_cluster, data_dir, capsys):
    names = {"spark": spark_cluster(2)}
    session = Session(EmbeddedCluster(lambda: names))
    first = session.submit(dataclasses.replace(parse("--name line --seed 1"), cell=CELL), names).wait(120)
    assert len(first.history["loss"]) == 4

    words = ["line", "--workers", "1,2,9", "--strategy", "allreduce,average", "--epochs", "2"]
    report = scale(Kernel(session, names), **BY_VERB["scale"].read(words))
    print(report, report.predict(4), sep="\n")
    made = [run for run in session.runs.values() if run.spec.parent == first.id]
    assert len(made) == 4 and {run.state for run in made} == {ev.FINISHED}
    assert {tuple(map(len, run.history.values())) for run in made} == {(2,)}, "--epochs"
    two = next(run for run in made if (run.spec.strategy, run.spec.workers) == ("allreduce", 2))
    assert two.history["loss"] == pytest.approx(first.history["loss"][:2]), "the same training, as far as it goes"
    fits = [event for event in two.events if event["kind"] == "fit"]
    assert {event["epochs"] for event in fits} == {2}

    assert [(row.strategy, row.workers) for row in report.rows] == [
        ("allreduce", 1),
        ("allreduce", 2),
        ("average", 1),
        ("average", 2),
    ]
    trained = report.trained()
    assert list(trained) == [(row.strategy, row.workers) for row in report.rows]
    assert trained["allreduce", 2][0].history == two.history and trained["allreduce", 2][0].id == two.id
    one, both = report.rows[:2]
    assert one.parts["exchange"] == 0 < both.parts["exchange"] and both.parts["compute"] > 0
    for row in report.rows:
        assert sum(row.parts.values()) == pytest.approx(1, abs=0.01) and row.seconds > 0
        assert row.metrics["loss"][0] > 0
    assert {measured.rows for measured in report.runs} == {2048}, "an epoch, whatever the strategy"
    assert all(measured.parameters == 32 * 256 + 256 + 257 and measured.cores for measured in report.runs)
    assert "allreduce with 9 workers left out: 9 workers do not fit into 2 slots" in capsys.readouterr().out
