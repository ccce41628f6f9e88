"""The same cell on a real Livy, from kernels without TensorFlow and Spark.

They are IPython's, sparkmagic's PySpark, and that behind a gateway as HDInsight's: TLS, a password, X-Requested-By.
"""

import os
import re
import signal
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
LOCAL = {"ipython": "", "pyspark": "%%local\n", "gateway": "%%local\n"}
REMOTE = {"ipython": "%%spark -s ddl\n", "pyspark": "", "gateway": ""}


def cell(options="", epochs=2):
    return f"%%distributed {options}{TRAINING.format(epochs=epochs)}"


class Notebook:
    """A kernel with `ddl_magics`, whose runs go to a Livy."""

    def __init__(self, kind, livy, folder, gateway=None):
        self.kind, self.folder = kind, folder
        environment = sparkmagic_kernels.configuration(folder, livy.url)
        if gateway is not None:
            environment = sparkmagic_kernels.configuration(folder, gateway.url, gateway.user, gateway.password)
            environment["REQUESTS_CA_BUNDLE"] = str(gateway.ca)
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


@pytest.fixture(scope="module", params=["ipython", "pyspark", "gateway"])
def notebook(request, livy_server, livy_gateway, tmp_path_factory):
    gateway = livy_gateway if request.param == "gateway" else None
    notebook = Notebook(request.param, livy_server, tmp_path_factory.mktemp(request.param), gateway)
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
    notebook.run(f"{LOCAL[notebook.kind]}scale, names = 1.5, ('a', 'b')")
    notebook.run("%%distributed --name sent --send scale names --workers 1\n[scale, *names]")
    assert notebook.value("sent.result") == "[1.5, 'a', 'b']"
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
    assert re.search(r"^cluster +Livy session \d+ at [^/]+:\d+$", text, re.MULTILINE)
    how = "with basic" if notebook.kind == "gateway" else "without"
    assert re.search(rf"^Livy +0\.\d+\.\d+-incubating at https?://.*, {how} credentials$", text, re.MULTILINE)
    assert re.search(r"^Spark +3\.\d+\.\d+ at local-cluster\[2,1,1024\], 2 slots$", text, re.MULTILINE)
    assert re.search(r"^side channel +answers in \d+ ms$", text, re.MULTILINE)
    assert re.search(r"^TensorFlow +2\.\d+\.\d+, Keras ", text, re.MULTILINE)
    assert re.search(r"^clock +as here$", text, re.MULTILINE)
    assert "as here" in text and "Traceback" not in text


def test_nothing_secret_is_written_anywhere(notebook, livy_server, livy_gateway, jupyter_data_dir):
    """The last test of a kernel: over all that the others have left."""
    folders = [notebook.folder, jupyter_data_dir, livy_server.state]
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file() and path.name != "config.json"]
    assert any(path.name == "events.jsonl" for path in files) and any("log" in path.name for path in files)
    for path in files:
        assert livy_gateway.password.encode() not in path.read_bytes(), path


def test_a_detached_run_outlives_its_kernel_and_is_attached_again(livy_server, tmp_path, jupyter_data_dir):
    environment = sparkmagic_kernels.configuration(tmp_path, livy_server.url)
    slow = cell("--name far --no-wait --seed 7", epochs=40).replace(
        "verbose=0", "verbose=0, callbacks=[keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: time.sleep(0.3))]"
    )
    first = sparkmagic_kernels.start(sparkmagic_kernels.IPYTHON_KERNEL, environment)
    first.run("%load_ext ddl_magics")
    said = first.run(f"%ddl use livy {livy_server.url} --detached", timeout=200).text
    name = re.search(r"--session (ddl_\w+)", said)[1]
    assert first.run(slow.replace("import keras", "import keras, time")).error == ""
    first.run("import time\nwhile len(far.history.get('loss', [])) < 3: time.sleep(0.1)")
    os.kill(first.manager.provisioner.pid, signal.SIGKILL)
    first.close()

    second = sparkmagic_kernels.start(sparkmagic_kernels.IPYTHON_KERNEL, environment)
    second.run("%load_ext ddl_magics")
    assert "LOST" in second.run("%ddl runs").text
    assert second.run("%ddl attach far").text.startswith("far is RUNNING on Livy session ")
    second.run("import time\nwhile len(far.history['loss']) < 10: time.sleep(0.1)")
    second.close()

    # Another machine: it has no such run, and finds it by the name of its session.
    elsewhere = {**environment, "JUPYTER_DATA_DIR": str(tmp_path / "elsewhere")}
    third = sparkmagic_kernels.start(sparkmagic_kernels.IPYTHON_KERNEL, elsewhere)
    third.run("%load_ext ddl_magics")
    third.run(f"%ddl use livy {livy_server.url} --session {name}")
    third.run("%ddl attach far")
    assert third.run("print(far.wait(100).state, len(far.weights()))").text == "FINISHED 2\n"
    whole = "[e['epoch'] for e in far.events if e['kind'] == 'epoch'] == list(range(40))"
    assert third.run(f"print({whole}, len(far.history['loss']))").text == "True 40\n"
    answer = third.run("%ddl attach far")
    assert answer.text == "UsageError: far has ended: FINISHED. %ddl show far shows it.\n"
    third.close()
