"""A search and a scaling report from sparkmagic's PySpark kernel on a real Livy; the kernel is killed in the middle."""

import re
from pathlib import Path

import pytest
from livy.endpoint import Endpoint
from support.cluster_notebooks import FIRST_SECONDS, Notebook
from support.trainings import source
from support.until import until

pytestmark = [pytest.mark.spark, pytest.mark.livy, pytest.mark.slow, pytest.mark.timeout(500)]

SEARCH = "--trials 5 --objective loss:min --search random --prune no --parallel 2 --seed 7 --name tuned --no-wait"
#: Three epochs of a second: the kernel is killed while two trials train.
CELL = source(epochs=3, pause=1.0).replace('"sgd"', 'keras.optimizers.SGD(ddl.suggest_float("lr", 0.01, 0.1))')


@pytest.fixture(scope="module")
def notebook(livy_server, tmp_path_factory):
    notebook = Notebook("pyspark", tmp_path_factory.mktemp("search"), Endpoint(livy_server.url, rig=livy_server))
    assert notebook.first.error == "", notebook.first.traceback
    yield notebook
    notebook.close()


def told(notebook):
    """Trial -> what Optuna has: its state and the steps that were reported."""
    return notebook.value(
        "{t.number: (t.state.name, sorted(t.intermediate_values)) for t in tuned.study.get_trials(deepcopy=False)}"
    )


def test_a_search_outlives_its_kernel_and_nothing_is_told_twice(notebook):
    notebook.run(f"%%distributed {SEARCH}{CELL}", timeout=FIRST_SECONDS)
    until(lambda: notebook.value("[row.epochs for row in tuned.view.rows if row.number == 2]") == [1], 200)
    before = told(notebook)
    assert [state for state, _ in before.values()].count("COMPLETE") >= 1
    runs = notebook.value("{row.number: row.run for row in tuned.view.rows}")
    journal = notebook.value("str(tuned._folder.journal)")
    notebook.kill()

    notebook.open()
    assert re.search(r"^tuned +LOST ", notebook.run("%ddl runs").text, re.MULTILINE)
    assert "tuned" in notebook.run("%ddl attach tuned", timeout=FIRST_SECONDS).text
    until(lambda: notebook.value("tuned.state") == "FINISHED", 200, lambda: notebook.value("repr(tuned)"))
    assert told(notebook) == {number: ("COMPLETE", [1, 2, 3]) for number in range(5)}
    after = notebook.value("{row.number: row.run for row in tuned.view.rows}")
    assert runs.items() <= after.items(), "the trials that trained were followed, not begun again"
    assert notebook.value("[row.tries for row in tuned.view.rows]") == [1] * 5
    lines = Path(journal).read_text().splitlines()
    assert sum('"intermediate_value"' in line for line in lines) == 15, "each epoch of each trial once"
    assert notebook.value("[len(tuned.run(n).history['loss']) for n in range(5)]") == [3] * 5


def test_a_scaling_report_on_livy(notebook):
    notebook.local("report = get_ipython().run_line_magic('ddl', 'scale digits --workers 1,2 --epochs 2')", timeout=300)
    table = notebook.value("report.table[['workers', 'runs']].values.tolist()")
    assert table == [[1, 1], [2, 1]], notebook.value("repr(report)")
    predicted = notebook.value("str(report.predict(workers=[4]))")
    assert re.search(r"^allreduce +4 ", predicted, re.MULTILINE), predicted
