"""The same cell on a real Livy: IPython's kernel and sparkmagic's PySpark kernel, both without TensorFlow and Spark."""

import re
import time

import pytest
import sparkmagic_kernels
from kernels import Kernel

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

TRAINING = """
import keras
import numpy as np

x = np.random.default_rng(0).normal(size=(256, 4)).astype("float32")
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(x, x.sum(1), epochs={epochs}, batch_size=32, verbose=0)
print("trained")
float(len(x))
"""

#: How a kernel says that Python stays on its own machine.
LOCAL = {"ipython": "", "pyspark": "%%local\n"}
REMOTE = {"ipython": "%%spark -s ddl\n", "pyspark": ""}


def cell(options="", epochs=2):
    return f"%%distributed {options}{TRAINING.format(epochs=epochs)}"


class Notebook:
    """A kernel with `ddl_magics`, whose runs go to a Livy."""

    def __init__(self, kind, livy, folder):
        self.kind = kind
        environment = sparkmagic_kernels.configuration(folder, livy.url)
        module = sparkmagic_kernels.IPYTHON_KERNEL if kind == "ipython" else sparkmagic_kernels.PYSPARK_KERNEL
        self.kernel = sparkmagic_kernels.start(module, environment)
        self.run("%load_ext ddl_magics")
        if kind == "ipython":
            self.run("%load_ext sparkmagic.magics")
            self.said = self.run(f"%ddl use livy {livy.url}").text

    def run(self, code, timeout=300, **how):
        """A cell that must go well."""
        answer = self.kernel.run(code, timeout=timeout, **how)
        assert answer.error == "", answer.traceback
        return answer

    def remote(self, code):
        """A cell of one statement in the session."""
        return self.run(REMOTE[self.kind] + code)

    def value(self, expression):
        """The text of a value in the kernel."""
        return self.run(f"{LOCAL[self.kind]}print(repr(({expression})))").text.strip()

    def close(self):
        self.kernel.close()


@pytest.fixture(scope="module", params=["ipython", "pyspark"])
def notebook(request, livy_server, tmp_path_factory):
    notebook = Notebook(request.param, livy_server, tmp_path_factory.mktemp(request.param))
    yield notebook
    notebook.close()


@pytest.fixture(scope="module")
def embedded_history():
    """What the cell gives on the embedded Spark of a kernel that has everything."""
    kernel = Kernel()
    try:
        kernel.run("%load_ext ddl_magics")
        assert kernel.run(cell("--name here --seed 7 --workers 2", epochs=3)).error == ""
        return kernel.run("print(repr(here.history))").text.strip()
    finally:
        kernel.close()


def test_the_first_cell_trains_and_gives_what_the_embedded_spark_gives(notebook, embedded_history):
    answer = notebook.run(cell("--name digits --seed 7", epochs=3))
    lines = answer.text.splitlines()
    assert [line.split()[2] for line in lines if line.startswith("digits  epoch ")] == ["1/3", "2/3", "3/3"]
    assert "0 │ trained" in lines and "FINISHED" in lines[-1]
    assert notebook.value("digits.history") == embedded_history
    assert notebook.value("digits.result") == "256.0"
    assert notebook.value("[a.shape for a in digits.weights()]") == "[(4, 1), (1,)]"
    assert notebook.value("digits.logs(1)") == r"'trained\n'"
    seqs = "[e['seq'] for e in digits.events] == list(range(1, len(digits.events) + 1))"
    assert notebook.value(seqs) == "True"
    assert notebook.value("digits.save_model('/tmp/' + digits.id + '.keras').stat().st_size > 1000") == "True"


def test_names_and_dataframes_are_the_sessions(notebook):
    notebook.remote("offset = 41")
    notebook.remote("df = spark.range(100).selectExpr('id * 1.0 as a', 'id % 2 as label')")
    notebook.run("%%distributed --name share --data df --label label --batch-size 20\noffset + len(list(dataset))")
    assert notebook.value("share.result") == "46"
    answer = notebook.kernel.run("%%distributed --data dff --label label\n1")
    assert answer.text.startswith("UsageError: --data dff") and answer.text.count("\n") == 1
    answer = notebook.kernel.run("%%distributed --workers 9\n1")
    assert "9 workers do not fit into the 2 slots" in answer.text and answer.text.count("\n") == 1


def test_the_session_is_free_for_other_cells_while_a_run_goes_on(notebook):
    notebook.run(cell("--name long --no-wait", epochs=100_000))
    begun = time.monotonic()
    while notebook.value("len(long.history)") == "0":
        assert time.monotonic() < begun + 100
        time.sleep(0.2)
    assert "7" in notebook.remote("3 + 4").text
    # During a statement of the session, events still come.
    notebook.run(LOCAL[notebook.kind] + "before = len(long.events)")
    notebook.remote("__import__('time').sleep(4)")
    assert notebook.value("len(long.events) > before + 2") == "True"
    begun = time.monotonic()
    assert notebook.value("long.stop().state") == "'STOPPED'"
    assert time.monotonic() - begun < 10
    assert notebook.value("len(long.weights()), len(long.history['loss']) > 1") == "(2, True)"


def test_a_failure_names_its_rank_and_shows_the_remote_traceback(notebook):
    answer = notebook.kernel.run("%%distributed --name bad\nif ddl.rank == 1:\n    raise ValueError('bad share')")
    assert answer.error == "DistributedCellError" and answer.message.startswith("bad, rank 1 on ")
    assert "raise ValueError('bad share')" in answer.traceback and "channel.py" not in answer.traceback


def test_check_says_how_it_is(notebook):
    text = notebook.run("%ddl check").text
    assert re.search(r"^cluster +Livy session \d+ at 127", text, re.MULTILINE)
    assert re.search(r"^Livy +0\.\d+\.\d+-incubating at http://127.*, without credentials$", text, re.MULTILINE)
    assert re.search(r"^Spark +3\.\d+\.\d+ at local-cluster\[2,1,1024\], 2 slots$", text, re.MULTILINE)
    assert re.search(r"^side channel +answers in \d+ ms$", text, re.MULTILINE)
    assert re.search(r"^TensorFlow +2\.\d+\.\d+, Keras ", text, re.MULTILINE)
    assert re.search(r"^clock +as here$", text, re.MULTILINE)
    assert "as here" in text and "Traceback" not in text
