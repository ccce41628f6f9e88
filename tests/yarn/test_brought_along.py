"""What sessions on a real YARN bring along or leave to Spark: a packed Python, modules, and dynamic allocation."""

import sys
import zipfile

import pytest
from yarn.session import MARKS, SEARCHES, TRAINS, Session, changes_and_gives_back, packed_environment

from ddl_magics.runtime.histories import histories

pytestmark = [*MARKS, pytest.mark.slow]

TELLS_ORIGIN = (
    TRAINS
    + """
import sys, brought_in_zip, brought_module
print("trained by", sys.executable, brought_module.FACTOR * brought_in_zip.FACTOR)
"""
)
#: Predicts and evaluates by a function that only executors with what was brought can carry out.
SCORES = """
import keras
from ddl_magics.clusters.scoring import evaluate, predict
model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
def known(features):
    import sys, brought_in_zip, brought_module
    assert "/training/bin/python" in sys.executable, sys.executable
    return features * brought_module.FACTOR * brought_in_zip.FACTOR
frame = spark.range(8).selectExpr("id / 8 as a", "id / 2 as b", "double(id) as y").repartition(2)
how = {"features": ["a", "b"], "transform": known, "transform_batches": True}
scored = predict(frame, model, **how).collect()
loss = evaluate(frame, model, label="y", **how)["loss"]
answer = [len(scored), sum((row.prediction - row.y) ** 2 for row in scored) / 8, float(loss)]
"""
CHOSEN = {"strategy": "single", "workers": 1}


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    return packed_environment(sys.executable, tmp_path_factory.mktemp("packed"))


@pytest.fixture(scope="module")
def session(yarn, packed, tmp_path_factory):
    """It brings a Python, and a module and a zip of modules for it, as `--py-files` does."""
    folder = tmp_path_factory.mktemp("modules")
    (folder / "brought_module.py").write_text("FACTOR = 2.0\n")
    with zipfile.ZipFile(folder / "brought.zip", "w") as modules:
        modules.writestr("brought_in_zip.py", "FACTOR = 3.0\n")
    session = Session(
        yarn,
        **{
            "spark.yarn.dist.archives": f"{packed}#training",
            "spark.pyspark.python": "./training/bin/python",
            "spark.submit.pyFiles": f"{folder}/brought_module.py,{folder}/brought.zip",
        },
    )
    yield session
    session.end()


def test_workers_and_prewarmed_processes_start_from_what_the_session_brings(session):
    for _ in range(2):  # the second one takes the prewarmed processes
        run = session.run(TELLS_ORIGIN)
        assert run.end() == ("FINISHED", "all workers finished")
        said = [event["text"] for event in run.of_kind("log")]
        assert len(said) == 2 and all("/training/bin/python 6.0" in text and "container_" in text for text in said)


def test_rows_are_scored_by_what_the_session_brings(session):
    rows, mean, loss = session.here(SCORES)
    assert rows == 8 and loss == pytest.approx(mean, rel=1e-4)


def test_the_check_names_the_python_that_the_session_brings(session):
    found = session.here("import json; answer = json.loads(driver.python_of_worker())")
    assert (found["archive"], found["setting"]) == ("training.tar.gz", "spark.yarn.dist.archives")
    assert found["path"] == f"{found['folder']}/training/bin/python" and "container_" in found["folder"]
    assert found["environment"] == "a virtualenv" and found["packages"]["tensorflow"].startswith("2.")


@pytest.fixture(scope="module")
def elastic(yarn):
    """Dynamic allocation as it is without a shuffle service in the nodes."""
    names = {"enabled": "true", "shuffleTracking.enabled": "true", "minExecutors": "0", "maxExecutors": "2"}
    names["executorIdleTimeout"] = "10s"
    settings = {f"spark.dynamicAllocation.{name}": value for name, value in names.items()}
    session = Session(yarn, **settings)
    yield session
    session.end()


def test_with_dynamic_allocation_all_reduce_says_what_to_set(elastic):
    state, message = elastic.run(TRAINS).end()
    assert state == "REFUSED" and "spark.dynamicAllocation.enabled=false, or use --strategy ps" in message


@pytest.mark.parametrize("spec", [{"strategy": "ps"}, CHOSEN, {"strategy": "ensemble"}], ids=lambda s: s["strategy"])
def test_with_dynamic_allocation_strategies_run_whose_workers_may_come_one_by_one(elastic, spec):
    run = elastic.run(TRAINS, **spec)
    assert run.end() == ("FINISHED", "all workers finished")
    assert len(histories(run.events)[0]["loss"]) == 2


def test_with_dynamic_allocation_workers_come_and_go_and_all_executors_are_given_back(elastic):
    changes_and_gives_back(elastic)


def test_with_dynamic_allocation_a_search_ends_with_all_its_trials(elastic):
    state, trials, executors = elastic.here(SEARCHES)
    assert (state, trials) == ("FINISHED", ["finished"] * 3) and executors
