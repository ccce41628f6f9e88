"""A notebook's `%ddl use livy` before a real Livy 0.7.1 on a real YARN: HDInsight's cluster mode, and client mode.

A training in cluster mode is not slow; all else in this folder is.

In cluster mode the driver is in a container on a host that has neither the kernel's temporary folders nor Livy's.
"""

import json
import re
import subprocess
import sys
import threading
import time

import pytest
from livy import rig as livy_rig
from livy.endpoint import Endpoint
from support import sparkmagic_kernels
from support.cluster_notebooks import Notebook
from support.paths import environment
from support.until import until
from yarn.session import EPOCHS, MARKS, MODEL, ROWS, Session, alone, assert_equal, packed_environment, trained_rows
from yarn.session import TRAINS as SHORT

from ddl_magics.clusters import livy_session
from ddl_magics.clusters.livy_http import Connection, LivyHttp
from ddl_magics.clusters.livy_session import NoSession
from ddl_magics.runtime.histories import histories

pytestmark = [*MARKS, pytest.mark.livy]

#: Batches are all rows, so that their order makes no difference.
TRAINS = f"{MODEL}\nfit = model.fit(dataset, epochs={EPOCHS}, verbose=0)\n"
#: The rows of HDFS, for plain Keras, as `dataset` has them without an earlier `set_floatx`.
SAME_ROWS = f"""
import numpy as np, tensorflow as tf
a = np.arange({ROWS}) / {ROWS}
b = np.sin(np.arange({ROWS}))
dataset = tf.data.Dataset.from_tensors((np.stack([a, b], 1).astype("float32"), (a - b / 2).astype("float32")))
"""
DATA = f"--label y --features a b --batch-size {ROWS} --seed 7"


@pytest.fixture(scope="module", params=["cluster", pytest.param("client", marks=pytest.mark.slow)])
def notebook(yarn, request, tmp_path_factory):
    folder, mode = tmp_path_factory.mktemp(request.param), request.param
    with yarn.livy(folder / "livy", mode) as server:
        notebook = Notebook("ipython", folder, Endpoint(server.url, rig=server))
        notebook.mode, notebook.uri = mode, f"{yarn.uri}/{mode}"
        notebook.remote(
            f"spark.range({ROWS}).selectExpr('id / {ROWS} as a', 'sin(id) as b', 'id / {ROWS} - sin(id) / 2 as y')"
            f".repartition(3).write.parquet('{notebook.uri}/rows')"
        )
        yield notebook
        notebook.close()


def trained(notebook, name, options, cell=TRAINS):
    """A run on the rows of HDFS."""
    cell = f"%%distributed --name {name} --data {notebook.uri}/rows {DATA} {options}{cell}"
    assert "FINISHED" in notebook.run(cell, timeout=300).text


def shown(notebook, expression):
    """What the session's Python prints of it."""
    return notebook.remote(f"print({expression})").text.strip()


def on_storage(notebook, folder):
    """The names of files and folders there."""
    path = f"sc._jvm.org.apache.hadoop.fs.Path({notebook.uri + folder!r})"
    listed = f"{path}.getFileSystem(sc._jsc.hadoopConfiguration()).listStatus({path})"
    return set(shown(notebook, f"' '.join(s.getPath().getName() for s in {listed})").split())


#: Batches of its own rows, in their order.
OWN_ROWS = f"""{MODEL}
x = np.random.default_rng(0).normal(size=({ROWS}, 2))
fit = model.fit(x, x[:, :1] - np.sin(x[:, 1:]), batch_size=48, shuffle=False, epochs={EPOCHS}, verbose=0)
"""


@pytest.mark.slow
def test_in_client_mode_two_workers_on_two_hosts_learn_what_one_process_learns(yarn):
    """Without Livy. It comes first, as the containers of a Livy session leave no room."""
    session = Session(yarn)
    cell = f"{OWN_ROWS}\n[w.tolist() for w in model.get_weights()]"
    run = session.run(cell, out=f"{yarn.uri}/models/first", checkpoint=f"{yarn.uri}/checkpoints")
    end = run.end()
    session.end()
    assert end == ("FINISHED", "all workers finished")
    assert run.info["master"] == "yarn" and run.info["slots"] == 2
    assert {event["executor"] for event in run.of_kind("worker")} == {"1", "2"}
    (result,) = run.of_kind("result")
    assert_equal(result["value"], histories(run.events)[0]["loss"], alone(OWN_ROWS))
    assert trained_rows(run.events) == [ROWS * EPOCHS / 2] * 2
    written = [event.get("uri") for event in run.of_kind("artifact")]
    assert f"{yarn.uri}/models/first/model-0.keras" in written


@pytest.mark.slow
def test_the_check_names_the_cluster_and_the_memory_of_its_containers(notebook):
    text = notebook.run("%ddl check").text
    assert re.search(r"^Spark +3\.\d+\.\d+ at yarn, 2 slots$", text, re.MULTILINE), text
    assert "each may use 512 MiB for Java and 1536 MiB for its workers (spark.executor.memoryOverhead)" in text


@pytest.mark.slow
def test_the_driver_is_in_a_container_in_cluster_mode_alone(notebook, yarn):
    host = shown(notebook, "sc.getConf().get('spark.driver.host')")
    nodes = [yarn.hosts.address(node) for node in yarn.nodes]
    assert host in (nodes if notebook.mode == "cluster" else [yarn.head])
    if notebook.mode == "cluster":  # the notebook's folder is not there, and neither is Livy's
        assert shown(notebook, f"__import__('os').path.exists({str(notebook.folder)!r})") == "False"


def test_two_workers_learn_from_hdfs_what_one_process_learns(notebook):
    trained(notebook, "both", "--workers 2")
    trained(notebook, "written", f"--workers 2 --out {notebook.uri}/model --checkpoint {notebook.uri}/checkpoints")
    assert notebook.value("len(both.workers), len(written.workers)") == (2, 2)
    expected = alone(SAME_ROWS + TRAINS)
    assert_equal(*notebook.value("[w.tolist() for w in both.weights()], both.history['loss']"), expected)
    assert notebook.value("written.history['loss']") == pytest.approx(expected[1], rel=1e-9)
    steps = "[{k: e[k] for k in ('kind', 'rank', 'rows')} for e in both.events if e['kind'] == 'steps']"
    assert trained_rows(notebook.value(steps)) == [ROWS * EPOCHS / 2] * 2
    assert on_storage(notebook, "/model") == {"model-0.keras", "weights-0.npz", "reference.json", "history.json"}
    assert on_storage(notebook, "/checkpoints") == {notebook.value("written.id")}


@pytest.mark.slow
def test_rows_of_hdfs_are_scored_and_the_model_is_evaluated_there(notebook):
    notebook.remote(f"rows = spark.read.parquet('{notebook.uri}/rows')")
    notebook.run("%ddl predict both --data rows --name scored --output p", timeout=300)
    notebook.run("%ddl evaluate both --data rows --label y --name found", timeout=300)
    squares = float(shown(notebook, "scored.selectExpr('avg((p - y) * (p - y))').first()[0]"))
    assert notebook.value("float(found['loss'])") == pytest.approx(squares, rel=1e-6)
    assert shown(notebook, "scored.count()") == str(ROWS)


@pytest.mark.slow
def test_a_search_of_two_trials(notebook):
    cell = TRAINS.replace("SGD(0.1,", "SGD(ddl.suggest_float('rate', 0.01, 0.05),")
    trained(notebook, "tuned", "--trials 2 --objective loss:min --parallel 2 --prune no", cell)
    assert notebook.value("list(tuned.trials['epochs'])") == [4, 4]
    assert notebook.value("tuned.state, tuned.best.number in (0, 1)") == ("FINISHED", True)


@pytest.mark.slow
def test_executors_are_given_back_and_asked_for_again(notebook, yarn):
    def containers():
        return [name for node in yarn.nodes for name in yarn.containers(node)]

    assert notebook.run("%ddl release").text.startswith("2 executors given back")
    until(lambda: len(containers()) == 1, 60, containers)  # the ApplicationMaster
    assert notebook.run("%ddl acquire").text.strip() == "asked for 2 executors"
    trained(notebook, "later", "--workers 2 --cache off")
    assert notebook.value("later.state, len(later.workers)") == ("FINISHED", 2)


@pytest.mark.slow
def test_a_session_that_waits_in_the_queue_says_so(notebook, yarn):
    """In cluster mode its driver's container is as large as the memory that the session asks for."""
    if notebook.mode == "client":
        pytest.skip("the memory of a driver beside Livy is not YARN's")
    lines = []
    told = r"still starting after 60 s: .* application_\S+ waits in queue default .* `yarn application -kill (\S+)`"
    with pytest.raises(NoSession, match=told) as caught:
        livy_session.create(LivyHttp(Connection(notebook.livy.url)), {"driverMemory": "4400m"}, True, 60, lines.append)
    said = [line for line in lines if re.match(r"after \d+ s, application_\S+ waits in queue default of YARN: ", line)]
    assert said and said[0].endswith("is not yet activated. Queue's AM resource limit exceeded")
    yarn.end_application(re.search(told, str(caught.value))[1])  # which Livy does not do


class Command:
    """A process of `ddl-magics run --batch` with a short cell. options: of the cell; properties: of new sessions."""

    def __init__(self, notebook, folder, options, **properties):
        configured = sparkmagic_kernels.configuration(folder, notebook.livy.url, session_configs=properties)
        (folder / "train.py").write_text(f"%%distributed --workers 1 --name far {options}{SHORT}")
        words = ["run", "train.py", "--cluster", notebook.livy.url, "--batch", "--json"]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "ddl_magics", *words],
            cwd=folder,
            env=environment(**configured),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.messages = []
        threading.Thread(target=lambda: self.messages.extend(self._process.stderr), daemon=True).start()

    def says(self, pattern, seconds=300):
        until(lambda: re.search(pattern, "".join(self.messages), re.MULTILINE), seconds, lambda: self.messages)

    def end(self, seconds=400):
        """(exit status, answer)."""
        answer, _ = self._process.communicate(timeout=seconds)
        return self._process.returncode, json.loads(answer)

    def kill(self):
        self._process.kill()
        self._process.wait()


@pytest.fixture
def batch(notebook, tmp_path):
    """`batch(name, options, **properties)`: a Command, which ends with the test."""
    commands = []

    def start(name, options, **properties):
        commands.append(Command(notebook, tmp_path / name, options, **properties))
        return commands[-1]

    yield start
    for command in commands:
        command.kill()


@pytest.fixture
def full(notebook, yarn):
    """`full()`: another application leaves room for a driver of 512 MiB beside that of the notebook, and for none of
    1152; it has ended when `full().end()` returns.
    """
    if notebook.mode == "client":
        pytest.skip("the memory of a driver beside Livy is not YARN's")
    dynamic = {f"spark.dynamicAllocation.{name}": "true" for name in ("enabled", "shuffleTracking.enabled")}
    session = Session(yarn, **dynamic, **{"spark.yarn.am.memory": "2432m", "spark.executor.instances": "0"})
    session.here("answer = spark.sparkContext.applicationId")
    yield session
    session.end()


WAITS = r"^after \d+ s, application_\S+ waits in queue default of YARN: .*AM resource limit exceeded$"


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_batch_that_waits_in_the_queue_says_so_and_runs_once_there_is_room(notebook, yarn, full, batch):
    there = set(yarn.applications())
    large = f"--conf spark.driver.memory=1152m --out {notebook.uri}/batch"
    command = batch("bounded", f"{large} --timeout 30")
    command.says(WAITS)
    status, answer = command.end(60)
    assert (status, answer["state"]) == (1, "FAILED"), answer
    assert "had not begun after the 30 s of --timeout, and was deleted (application_" in answer["error"]
    until(lambda: set(yarn.applications()) == there, 10, yarn.applications)
    command = batch("patient", large)
    command.says(WAITS)
    full.end()
    assert command.end()[0] == 0, command.messages
    assert "model-0.keras" in on_storage(notebook, "/batch")


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_batch_waits_for_room_for_the_session_that_writes_its_files_too(notebook, yarn, full, batch):
    """Livy gives each such session up, and takes it out of the queue: after 90 s unless it is set."""
    there = set(yarn.applications())

    def large(limit):
        return {"driverMemory": "1152m", "conf": {"livy.rsc.server.connect.timeout": limit}}

    status, answer = batch("bounded", f"--out {notebook.uri}/later --timeout 20", **large("30s")).end(120)
    assert status == 1, answer
    assert re.match(r"no batch was created in the 20 s of --timeout: Livy session .* waits in queue", answer["error"])
    until(lambda: set(yarn.applications()) == there, 10, yarn.applications)
    command = batch("patient", f"--out {notebook.uri}/later", **large("60s"))
    command.says(rf"(?s){WAITS[:-1]}.*^Livy session \d+ .* starts at ")
    full.end()
    assert command.end()[0] == 0, command.messages
    assert "model-0.keras" in on_storage(notebook, "/later")


SLOW = """
import keras, numpy as np, time
x = np.random.default_rng(0).normal(size=(256, 4)).astype("float32")
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
callback = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: time.sleep(1))
model.fit(x, x.sum(1), batch_size=64, epochs=60, verbose=0, callbacks=[callback])
"""


@pytest.mark.slow
def test_an_application_that_is_killed_says_by_whom_and_where_its_logs_are(notebook, yarn):
    """The last test of a session. In client mode its driver, which lives on, may say so before Livy ends it."""
    (application,) = until(lambda: len(yarn.applications()) == 1 and yarn.applications(), 60)
    notebook.run(f"%%distributed --name slow --workers 2 --no-wait{SLOW}")
    until(lambda: notebook.value("len([e for e in slow.events if e['kind'] == 'epoch'])") >= 2, 60)
    yarn.end_application(application)
    ends = ("LOST",) if notebook.mode == "cluster" else ("LOST", "FAILED")
    until(lambda: notebook.value("slow.state") in ends, 30)
    message = notebook.value("slow.events[-1]['message']")
    assert f"YARN: Application {application} was killed by user root" in message
    assert f"`yarn logs -applicationId {application}` has its logs" in message


@pytest.fixture(scope="module")
def bringing(notebook, yarn):
    """The notebook with another session, once the application of the first one has ended: it brings its Python along,
    as docs/hdinsight.md says.
    """
    if notebook.mode == "client":
        pytest.skip("the driver is beside Livy")
    archive = yarn.put(packed_environment(livy_rig.CLUSTER / "bin" / "python", notebook.folder), "/training.tar.gz")
    notebook.kernel.close()
    conf = {"spark.archives": f"{archive}#training", "spark.pyspark.python": "./training/bin/python"}
    sparkmagic_kernels.configuration(notebook.folder, notebook.livy.url, session_configs={"conf": conf})
    notebook.open()
    notebook.run("%load_ext sparkmagic.magics")
    notebook.run("%ddl use livy", timeout=300)
    return notebook


@pytest.mark.slow
def test_driver_and_workers_start_from_an_archive_on_hdfs_that_the_session_names(bringing):
    of_archive = r"^a worker +Python 3\S+ at \./training/bin/python, of the archive training\.tar\.gz \(spark\."
    text = bringing.run("%ddl check").text
    assert re.search(of_archive, text, re.MULTILINE), text
    assert "/training/bin/python" in shown(bringing, "__import__('sys').executable")
    cell = f"import sys{SHORT}\nprint('trained by', sys.executable)"
    assert "FINISHED" in bringing.run(f"%%distributed --name brought --workers 2\n{cell}", timeout=300).text
    said = bringing.value("[event['text'] for event in brought.events if event['kind'] == 'log']")
    assert len(said) == 2 and all("/training/bin/python" in text for text in said), said


@pytest.mark.slow
def test_a_host_with_the_driver_that_is_cut_off_loses_the_run(bringing, yarn):
    """YARN itself gives an ApplicationMaster up after ten minutes."""
    notebook = bringing
    address = shown(notebook, "sc.getConf().get('spark.driver.host')")
    host = next(node for node in yarn.nodes if yarn.hosts.address(node) == address)
    notebook.run(f"%%distributed --name cut --workers 2 --no-wait{SLOW}", timeout=300)
    until(lambda: notebook.value("len([e for e in cut.events if e['kind'] == 'epoch'])") >= 2, 60)
    yarn.hosts.cut(host)
    cut_at = time.monotonic()
    try:
        until(lambda: notebook.value("cut.state") == "LOST", 120, lambda: notebook.value("cut.events[-1]"))
        assert time.monotonic() - cut_at < 90
        message = notebook.value("cut.events[-1]['message']")
        told = r"\(its driver has not answered for \d+ s, though Livy calls it idle\): begin a new session$"
        assert re.search(told, message), message
    finally:
        yarn.hosts.kill(host)
        yarn.revive(host)
