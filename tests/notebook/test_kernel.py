"""The magics in a real kernel on a real Spark: what a notebook shows, waits for, returns and leaves behind."""

import json
import subprocess
import sys
import threading
import time
from functools import partialmethod

import nbformat
import pytest
from jupyter_client.channels import HBChannel
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from support import processes
from support.kernels import Kernel
from support.paths import TESTS
from support.trainings import cell
from support.until import until

from ddl_magics import store
from ddl_magics.runtime import events as ev

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

SESSION = f"""
import sys
sys.path.insert(0, {str(TESTS)!r})
from support import spark as of_tests
clusters = of_tests.Clusters()
spark = clusters.get(2)
%load_ext ddl_magics
"""


@pytest.fixture(scope="module")
def kernel():
    """A kernel whose notebook has a SparkSession of its own."""
    kernel = Kernel()
    assert kernel.run(SESSION).error == ""
    yield kernel
    kernel.run("clusters.stop()")
    kernel.close()


def test_a_cell_that_waits_before_somebody_who_can_click_shows_the_view_and_no_text(kernel):
    answer = kernel.run(cell("--name waited --wait"), clickable=True, timeout=240)  # the first starts slowly
    assert (answer.error, answer.text) == ("", "")
    assert answer.bundle("application/vnd.jupyter.widget-view+json") and "FINISHED" in answer.displays[1]["text/plain"]
    shown = kernel.run("%ddl show waited\n%ddl runs")
    assert "waited  epoch 2/2" in shown.text and "this machine" in shown.text
    assert "FINISHED" in shown.displays[0]["text/plain"]


def test_where_somebody_can_click_a_cell_returns_and_a_second_one_waits_its_turn(kernel):
    first = kernel.run(cell("--name first"), clickable=True)
    second = kernel.run(cell("--name second"), clickable=True)
    assert first.seconds < 10 and second.seconds < 10 and first.text == second.text == ""
    assert "application/vnd.jupyter.widget-view+json" in first.displays[0]
    block = second.displays[1]
    assert "QUEUED" in block["text/plain"]
    assert kernel.value("second.state, first.state in ('FINISHED', 'LOST', 'FAILED')") == ("QUEUED", False)
    assert kernel.value("second.result") == 256.0
    assert kernel.value("first.wait().state, second.state") == ("FINISHED", "FINISHED")
    until(lambda: kernel.run("1") and "FINISHED" in block["text/plain"], 10)
    assert [event["seq"] for event in stored("second")] == list(range(1, len(stored("second")) + 1))


def test_an_interrupt_stops_the_run_and_keeps_the_model(kernel):
    answer = kernel.run(cell("--name slow", epochs=100_000), interrupt_when="epoch 2/")
    assert answer.error == "RunInterrupted", "later cells of Run All must not start"
    assert answer.traceback == "KeyboardInterrupt: slow is STOPPED; its history and model are kept."
    kept = kernel.value("slow.state, len(slow.history['loss']) >= 2, slow.model().count_params()")
    assert kept == ("STOPPED", True, 5)


@pytest.mark.slow
def test_another_process_stops_the_run_of_a_busy_kernel(kernel):
    """As the panel's Stop does: both leave a request in the run's folder."""
    kernel.run(cell("--name long", epochs=100_000), clickable=True)
    until(lambda: store.find_run("long").progress, 120)
    kernel.client.execute("import time; time.sleep(100)", stop_on_error=False)
    command = [sys.executable, "-m", "ddl_magics", "stop", "long"]
    asked = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert asked.returncode == 0 and "stops after its current step" in asked.stdout
    begun = time.monotonic()
    until(lambda: store.find_run("long").state == ev.STOPPED, 30)
    assert time.monotonic() - begun < 10
    model = store.find_run("long").folder / "files" / "model-0.keras"
    until(model.exists, 30)  # it is fetched after the end
    kernel.manager.interrupt_kernel()
    assert kernel.value("long.state") == "STOPPED"


def test_nothing_of_ours_is_left_and_the_users_session_lives(kernel):
    assert processes.wait_until_gone() == {}
    assert kernel.value("spark.range(3).count()") == 3


def stored(name):
    return list(store.RunFolder(store.find_run(name).folder).events())


@pytest.fixture(scope="module")
def executed():
    """A notebook that nbclient has executed, where nobody can click: its code cells.

    On a session that the first cell makes. A run goes on when the cell after it fails, and the last one is not run.
    """
    sources = [
        "%load_ext ddl_magics",
        cell("--name good --timeout 5m", epochs=3),
        cell("--name leaving --workers 1 --no-wait", epochs=100_000),
        "import time\nwhile not leaving.history.get('loss'):\n    time.sleep(0.1)",
        "%%distributed --name bad --workers 1\nraise KeyError('here')",
        "never = 1",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HBChannel, "join", partialmethod(threading.Thread.join, 10))  # now and then it waits for ever
        with pytest.raises(CellExecutionError, match="KeyError"):
            NotebookClient(notebook, timeout=200, kernel_name="python3").execute()
    assert processes.wait_until_gone() == {}
    return notebook


def printed(outputs):
    return "".join(output.text for output in outputs if output.output_type == "stream")


def test_where_nobody_can_click_a_cell_waits_and_prints(executed):
    _, good, *_ = executed.cells
    lines = printed(good.outputs).splitlines()
    epochs = [line for line in lines if line.startswith("good  epoch ")]
    assert [line.split()[2] for line in epochs] == ["1/3", "2/3", "3/3"]
    assert all("samples/s" in line and "loss" in line for line in epochs)
    assert "0 │ trained by 0" in lines and "FINISHED" in lines[-1]
    (block,) = (output.data for output in good.outputs if output.output_type == "display_data")
    assert "FINISHED" in block["text/plain"] and "<img" in block["text/html"]


def test_nbclient_stores_text_and_the_block_and_fails_with_the_run(executed):
    _, good, _, _, bad, never = (c.outputs for c in executed.cells)
    text = printed(good)
    assert "WARN" not in text and "Setting default log level" not in text
    assert len(nbformat.writes(executed)) < 300_000 * 2
    assert next(o for o in bad if o.output_type == "error").ename == "DistributedCellError"
    assert never == []


def test_a_kernel_that_ends_ends_its_runs(executed):
    state = json.loads((store.find_run("leaving").folder / "run.json").read_text())["state"]
    assert state in (ev.STOPPED, ev.LOST), "as there was time"
