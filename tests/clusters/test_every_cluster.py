"""What a notebook can rely on, on every cluster: one kernel, its session and a few small runs for each kind.

With DDL_TEST_LIVY_URL the Livy is another one than the rig's (`make test-livy`): nothing is assumed of its version, of
what executes its statements, or of its executors, but that two workers fit in. Histories are then compared as numbers
of another machine are.
"""

import json
import re

import numpy as np
import pytest
from livy.endpoint import Endpoint, named
from livy.gateway import gateway
from support import come_and_go, holdings, processes
from support.cluster_notebooks import KINDS, LOOKALIKES, LookAlikeNotebook, Notebook
from support.monitoring_logs import FEATURES, ROWS, lines, requests, write_whole
from support.trainings import cell
from support.until import until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

#: What another machine's processor and TensorFlow may do to a loss.
ELSEWHERE = 1e-4

#: What `%ddl check` says, by kind.
CHECKED = {
    "embedded": [
        r"^cluster +this machine: Spark 3\.\S+ at local\S+, \d+ slots",
        r"^TensorFlow +2\.\d+\.\d+$",
        r"^a worker +Python 3\.\S+ at \S+, this kernel's, TensorFlow 2\.",
    ],
    "ipython": [r"^Livy +0\.\d+\.\S+ at http\S+, with", r"^session +(idle|busy); outlives this kernel"],
    "pyspark": [r"^Livy +0\.\d+\.\S+ at http\S+, with", r"^session +(idle|busy); ends with its kernel"],
    "gateway": [r"^Livy +0\.\d+\.\S+ at https://localhost\S+, with basic credentials$"],
}
CHECKED_ON_LIVY = [
    r"^cluster +Livy session \d+ at [^/]+:\d+$",
    r"^Spark +3\.\d+\.\d+ at \S+, \d+ slots$",
    r"^side channel +answers in \d+ ms$",
    r"^a worker +Python 3\.\S+ at /\S+, .*of the executor.s host or image \(\D+\), TensorFlow 2\.",
    r"^Python +3\.\d+\.\S+ on the cluster, 3\.",
    r"^TensorFlow +2\.\S+, Keras ",
]


#: The training of what is monitored.
MONITORED = """
import keras
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
model.compile("adam", "mse", metrics=["mae"])
model.fit(dataset, validation_data=validation, epochs=1, verbose=0)
"""


def kinds(*slow):
    """Parameters of `notebook`: every kind, those in `slow` and the gateway with `make test-slow`.

    sparkmagic's own kernel and its magics in IPython's do most things alike.
    """
    for kind in KINDS:
        marks = [] if kind == "embedded" else [pytest.mark.livy]
        yield pytest.param(kind, marks=[*marks, pytest.mark.slow] if kind in (*slow, "gateway") else marks)


def and_lookalikes():
    """Parameters of `notebook`: those of all tests, and the stand-ins for services that are like Livy."""
    more = [pytest.param(kind, marks=[pytest.mark.livy, pytest.mark.slow]) for kind in LOOKALIKES]
    return pytest.mark.parametrize("notebook", [*kinds("ipython"), *more], indirect=True)


@pytest.fixture(scope="module")
def livy(request):
    """The Livy of the tests (livy.endpoint.Endpoint)."""
    if (other := named()) is not None:
        return other
    server = request.getfixturevalue("livy_server")
    return Endpoint(server.url, rig=server)


@pytest.fixture(scope="module")
def front(livy):
    if livy.user:
        pytest.skip("the Livy that DDL_TEST_LIVY_URL names wants a password: it is behind a gateway already")
    front = gateway(livy)
    yield front
    front.stop()


@pytest.fixture(scope="module")
def embedded(tmp_path_factory):
    """The notebook that the others are compared with."""
    notebook = Notebook("embedded", tmp_path_factory.mktemp("embedded"))
    yield notebook
    notebook.close()


@pytest.fixture(scope="module", params=kinds("ipython"))
def notebook(request, tmp_path_factory):
    kind, given = request.param, request.getfixturevalue
    if kind == "embedded":
        yield given("embedded")
        return
    if kind in LOOKALIKES:
        if named() is not None:
            pytest.skip("the stand-ins are for the rig's Livy")
        notebook = LookAlikeNotebook(kind, tmp_path_factory.mktemp(kind), given("livy"))
        yield notebook
        notebook.close()
        return
    before = given("front") if kind == "gateway" else None
    notebook = Notebook(kind, tmp_path_factory.mktemp(kind), given("livy"), before)
    if re.match("UsageError: .*(slot|dynamicAllocation)", notebook.first.text):
        notebook.close()
        pytest.skip(f"this Livy cannot have a run of two workers: {notebook.first.text}")
    yield notebook
    notebook.close()


def assert_refused(notebook, cell, says):
    """In one line, without a traceback."""
    answer = notebook.kernel.run(cell)
    assert re.match(f"UsageError: {says}", answer.text) and answer.text.count("\n") == 1, answer.text
    assert answer.traceback == ""


@and_lookalikes()
def test_the_first_cell_trains_and_says_how_it_goes(notebook):
    answer = notebook.first
    assert answer.error == "", answer.traceback
    lines = answer.text.splitlines()
    epochs = [line.split()[2] for line in lines if line.startswith("digits  epoch ")]
    assert epochs == ["1/3", "2/3", "3/3"], answer.text
    assert "0 │ trained by 0" in lines
    # With Livy two lines follow: what is in the session now, and what waits for an import of Keras there.
    assert any("FINISHED" in line for line in lines[-3:]), lines[-4:]
    assert notebook.value("digits.state, digits.result") == ("FINISHED", 256.0)
    assert notebook.value("[event['seq'] for event in digits.events] == list(range(1, len(digits.events) + 1))")


@and_lookalikes()
def test_the_history_is_the_embedded_sparks(notebook, embedded):
    """Which is one process': tests/equality."""
    assert len(notebook.history["loss"]) == 3
    if notebook.livy is None or notebook.livy.rig:
        assert notebook.history == embedded.history
    else:
        assert notebook.history["loss"] == pytest.approx(embedded.history["loss"], rel=ELSEWHERE)


@and_lookalikes()
def test_each_rank_has_its_log(notebook):
    assert notebook.value("[digits.logs(rank) for rank in (0, 1)]") == ["trained by 0\n", "trained by 1\n"]
    assert notebook.value("list(digits.workers['rank'])") == [0, 1]


@and_lookalikes()
def test_the_model_comes_back_with_its_weights(notebook, tmp_path):
    from keras.models import load_model

    file, weights = tmp_path / "digits.keras", tmp_path / "weights.npz"
    notebook.local(f"import numpy\nnumpy.savez({str(weights)!r}, *digits.weights())")
    notebook.local(f"saved = digits.save_model({str(file)!r})")
    with np.load(weights, allow_pickle=False) as kept:
        brought = [kept[name] for name in kept.files]
    trained = load_model(file).get_weights()
    assert [array.shape for array in trained] == [(4, 1), (1,)]
    assert all((one == other).all() for one, other in zip(trained, brought, strict=True))


def test_the_cell_sees_dataframes_and_names_of_the_session_what_is_sent_and_files(notebook, tmp_path):
    """Where the workers do not have the notebook's folder, those of --files are read; what they write comes back."""
    notebook.local(f"import os\nbefore = os.getcwd()\nos.chdir({str(tmp_path)!r})")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/number.txt").write_text("41")
    notebook.remote("offset, seen = 41, []")
    notebook.remote("df = spark.range(100).selectExpr('id * 1.0 as a', 'id % 2 as label')")
    notebook.local("scale, names = 1.5, ('a', 'b')")
    options = "--name share --data df --label label --batch-size 20 --send scale names --files sub"
    source = """
number = int(open("sub/number.txt").read())
open("sub/number.txt", "a").write(f" and {ddl.rank}")
seen.append(number)
os = __import__("os")
os.makedirs("logs")
open("logs/of-the-rank", "w").write(str(ddl.rank) * 600_000)
[offset + len(list(dataset)), scale, *names, number + 1]
"""
    text = notebook.run(f"%%distributed {options}{source}").text
    notebook.local("os.chdir(before)")
    assert notebook.value("share.result") == [46, 1.5, "a", "b", 42]
    assert "[41] 41" in notebook.remote("print(seen, number)").text  # the cell's variables, where it had them from
    assert f"written to {tmp_path}: sub/number.txt, logs/of-the-rank (600 kB)" in text
    assert notebook.value("share.files") == {"logs/of-the-rank": 600_000, "sub/number.txt": 8}
    assert (tmp_path / "sub/number.txt").read_text() == "41 and 0"
    assert (tmp_path / "logs/of-the-rank").read_text() == "0" * 600_000


def models(notebook, embedded, path):
    """The notebook's own run, a run of another kernel, and a path of the model of the first."""
    return ("digits", path) if notebook is embedded else ("digits", embedded.run_id, path)


def of_keras_2(notebook):
    """Whether the session has another generation of Keras than the embedded Spark: LIVY_RIG_CLUSTER."""
    return notebook.remote("print(__import__('keras').__version__)").text.startswith("2.")


def test_workers_come_and_go(notebook):
    if of_keras_2(notebook):
        pytest.skip("with Keras 2 all workers restart")
    text = notebook.run(f"%%distributed --workers 1..2 --name changed{come_and_go.OF_WORKER}", timeout=200).text
    assert "FINISHED" in text and "rank 2 on " in text, text
    come_and_go.assert_changed_in(notebook, "changed")
    assert notebook.value("list(changed.workers['rank'])") == [0, 1, 2]
    assert notebook.value("bool(changed.workers['until'][1] < changed.workers['from'][2])")


def test_a_dataframe_of_the_session_gets_predictions(notebook, embedded, tmp_path):
    """Of a run that the session has trained, of another kernel's and of a file: the model of these two is sent."""
    columns = "'id', 'id * 0.5 as a', 'id * id * 0.1 as b', '1.0 as c', '0.0 as d'"
    notebook.remote(f"rows = spark.range(3).selectExpr({columns})")
    kernel, bias = notebook.value("[array.tolist() for array in digits.weights()]")
    theirs = np.array([[0, 0, 1, 0], [0.5, 0.1, 1, 0], [1, 0.4, 1, 0]]) @ kernel + bias
    file = notebook.value(f"str(digits.save_model({str(tmp_path / 'model.keras')!r}))")
    for model in models(notebook, embedded, file):
        line = f"%ddl predict {model} --data rows --name scored --features a b c d --output p"
        if model == embedded.run_id and of_keras_2(notebook):
            assert_refused(notebook, line, "df cannot be scored: ValueError: Keras 3.* saved the model, and Keras 2")
            continue
        text = notebook.run(line).text
        assert re.search(r"^scored .*is rows with p \(float\); its rows are scored when", text), text
        shown = notebook.remote("print([row['p'] for row in scored.orderBy('id').collect()])").text
        found = [float(number) for number in re.findall(r"-?[0-9]+\.[0-9e-]+", shown)]
        if model != embedded.run_id:
            np.testing.assert_allclose(found, theirs[:, 0], rtol=1e-4, atol=1e-6)
        assert len(found) == 3
    for line, says in [
        ("--data rowss --name new --features a b c d", "rowss"),
        ("--data rows --name new --features a b c e", "e: df has no such column"),
        ("--data rows --name spark --features a b c d", "--name spark: .*another variable of that name"),
        ("--data rows --name new", "digits was trained without --data: name the model's columns"),
    ]:
        assert_refused(notebook, f"%ddl predict digits {line}", f".*{says}")


def test_a_dataframe_is_written_as_tfrecord_where_it_is(notebook, tmp_path):
    """And read again, by TensorFlow alone and as --data."""
    notebook.remote("numbers = spark.range(7).selectExpr('id', 'id * 0.5 as half').repartition(2)")
    folder = tmp_path / "numbers.tfrecord"
    line = f"%ddl tfrecord numbers file://{folder} --compression gzip"
    said = notebook.run(line).text
    assert re.search(r"numbers\.tfrecord has numbers: 7 rows in 2 files, [0-9.]+ kB; _index\.json tells", said), said
    index = json.loads((folder / "_index.json").read_text())
    assert index["columns"] == {"id": "int64", "half": "float"} and index["compression"] == "gzip"
    assert sum(file["records"] for file in index["files"]) == 7
    assert {file["name"]: file["bytes"] for file in index["files"]} == {
        path.name: path.stat().st_size for path in folder.glob("part-*.tfrecord.gz")
    }
    for line, says in [
        (f"numbers file://{folder}", "numbers.tfrecord exists, and is not written over"),
        (f"numberss file://{folder}2", "there is no.* DataFrame"),
        (f"numbers nosuch://host{folder}2", "nosuch"),
    ]:
        assert_refused(notebook, f"%ddl tfrecord {line}", f".*{says}")


def test_a_model_is_evaluated_where_the_dataframe_is(notebook, embedded, tmp_path):
    notebook.remote("known = spark.range(3).selectExpr('id as a', 'id * 0.5 as b', '1.0 as c', '0.0 as d', 'id as y')")
    kernel, bias = notebook.value("[array.tolist() for array in digits.weights()]")
    theirs = np.array([[0, 0, 1, 0], [1, 0.5, 1, 0], [2, 1, 1, 0]]) @ kernel + bias
    folder = notebook.value(f"str(digits.export({str(tmp_path / 'model')!r}, 'keras'))")
    for model in models(notebook, embedded, folder):
        line = f"%ddl evaluate {model} --data known --label y --features a b c d --name found"
        if model == embedded.run_id and of_keras_2(notebook):
            assert_refused(notebook, line, "df cannot be evaluated: ValueError: Keras 3.* saved the model, and Keras 2")
            continue
        assert re.search(r"^found: <Evaluation of 3 rows: .*loss [0-9.]+", notebook.run(line).text)
        if model != embedded.run_id:
            error = np.abs(theirs[:, 0] - [0, 1, 2]).mean()
            np.testing.assert_allclose(notebook.value("found.errors()['mae']"), error, rtol=1e-5)
    for line, says in [
        ("--data knowns --label y --features a b c d", "knowns"),
        ("--data known --label z --features a b c d", "label z: df has no such column"),
        ("--data known --features a b c d", "name the column of the labels: --label y"),
        ("--data known --label y --features a b c d --name numpy", "your variable numpy would be replaced"),
    ]:
        notebook.local("import numpy")
        assert_refused(notebook, f"%ddl evaluate digits {line}", f".*{says}")
    sleeping = "__import__('time').sleep(60), row"
    notebook.remote(f"slow = spark.createDataFrame(known.rdd.map(lambda row: ({sleeping})[1]), known.schema)")
    line = "%ddl evaluate digits --data slow --label y --features a b c d"
    answer = notebook.kernel.run(line, interrupt_after=3)
    assert "KeyboardInterrupt: the evaluation has been stopped" in answer.traceback and answer.seconds < 30
    active = "list(spark.sparkContext.statusTracker().getActiveJobsIds())"
    until(lambda: notebook.remote(f"print({active})").text.strip() == "[]", 20)


@pytest.mark.parametrize("notebook", [*kinds("ipython", "pyspark")], indirect=True)
def test_requests_are_watched_while_they_come(notebook, tmp_path):
    """The requests drift, the error rises: the live view, an alert, and the cell that trains again."""
    assert notebook.first.error == ""  # the embedded Spark starts with the first run
    columns = "'randn(1) as load', 'randn(2) as heat', 'randn(3) as wind'"
    notebook.remote(f"weather = spark.range(4000).selectExpr({columns}).selectExpr('*', 'load + heat as demand')")
    how = "--data weather --features load heat wind --label demand --batch-size 200 --validation 0.2"
    trained = notebook.run(f"%%distributed --name energy {how}{MONITORED}").text
    assert "FINISHED" in trained, trained
    log, labels, random = tmp_path / "log", tmp_path / "labels", np.random.default_rng(1)
    log.mkdir()
    labels.mkdir()
    write_whole(log / "a.jsonl", lines(requests(300, random)))
    watch = f"%ddl monitor energy --log file://{log} --labels file://{labels} --every 1s --name watch"
    shown = notebook.run(watch, clickable=True)
    assert shown.displays and "application/vnd.jupyter.widget-view+json" in shown.displays[0], shown.text
    newest = "next((e for e in reversed(watch.events) if e['kind'] == 'watch'), {'totals': {'requests': 0}})"

    def state():
        return notebook.value("[(event['kind'], event.get('message')) for event in watch.events]")

    until(lambda: notebook.value(f"({newest})['totals']['requests']") == 300, 100, state)
    levels = notebook.value(f"{{thing['name']: thing['level'] for thing in ({newest})['things']}}")
    assert [levels[name] for name in FEATURES] == ["none"] * 3, levels

    records = list(requests(300, random, shift=2.0, first=900))
    true = [{"id": r["id"], "label": [100.0] * ROWS, "time": r["time"]} for r in records]
    write_whole(labels / "a.jsonl", lines(true))
    write_whole(log / "b.jsonl", lines(records))
    until(lambda: notebook.value(f"(({newest})['error'] or {{}}).get('rows')") == 3000, 100, state)
    told = "[e['message'] for e in watch.events if e['kind'] == 'notice']"
    for text in ("heat has moved: PSI ", "the error rose"):
        until(lambda text=text: any(text in message for message in notebook.value(told)), 30, state)
    assert notebook.value(f"({newest})['totals']")["requests"] == 600
    advice = notebook.value(f"({newest})['advice']")
    assert any("heat has drifted from the training data" in text for text in advice["reasons"])
    assert advice["cell"].startswith("%%distributed --name energy") and "model.fit(dataset" in advice["cell"]
    assert "watches the log" not in shown.text
    assert re.search(r"^watch +RUNNING ", notebook.run("%ddl runs").text, re.MULTILINE)
    assert "watch" in notebook.run("%ddl stop watch").text
    assert notebook.value("watch.wait(60).state") == "STOPPED"
    until(lambda: "TRAIN AGAIN" in shown.displays[1]["text/html"], 20, lambda: notebook.run("1") and shown.displays[1])
    mistakes = [("digits --log /log", "digits has no reference of its data")]
    if notebook.kind == "embedded":  # the variables of another session are looked up when the stream starts
        mistakes.append((f"energy --log file://{log} --labels lables", "lables"))
    for line, says in mistakes:
        assert_refused(notebook, f"%ddl monitor {line}", f".*{says}")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--data dff --label label", r"--data.* no (such )?DataFrame\b"),
        ("--workers 999", r"(--workers )?999 (workers do not fit into|is too much for) .*(with|use) --workers \d+"),
        ("--send scael", r"--send scael: this notebook has no variable scael\."),
    ],
)
def test_a_mistake_is_one_line(notebook, line, says):
    assert_refused(notebook, f"%%distributed {line}\n1", says)


@and_lookalikes()
def test_a_failure_names_its_rank_and_shows_the_remote_traceback(notebook):
    answer = notebook.kernel.run("%%distributed --name bad\nif ddl.rank == 1:\n    raise ValueError('bad share')")
    assert answer.error == "DistributedCellError" and answer.message.startswith("bad, rank 1 on ")
    assert "ValueError: bad share" in answer.message and notebook.value("bad.state") == "FAILED"
    assert "line 3" in answer.traceback and "raise ValueError('bad share')" in answer.traceback
    assert not re.search(r"(channel|follower|waiting)\.py", answer.traceback)


def test_other_cells_run_meanwhile_and_a_stop_keeps_the_model(notebook):
    notebook.run(cell("--name long --no-wait", epochs=100_000))
    until(lambda: notebook.value("len(long.history.get('loss', []))"), 100)
    assert "7" in notebook.remote("print(3 + 4)").text
    # While the session works on a statement, events still come.
    notebook.local("before = len(long.events)")
    notebook.remote("__import__('time').sleep(4)")
    assert notebook.value("len(long.events) > before + 2")
    assert notebook.value("long.stop().state") == "STOPPED"
    assert notebook.value("len(long.weights()), len(long.history['loss']) > 1") == (2, True)


def test_check_says_how_it_is(notebook):
    assert notebook.first.error == ""  # the embedded Spark starts with the first run
    text = notebook.run("%ddl check").text
    for pattern in CHECKED[notebook.kind] + (CHECKED_ON_LIVY if notebook.livy else []):
        assert re.search(pattern, text, re.MULTILINE), pattern
    assert "Traceback" not in text and "cannot be" not in text


def test_a_run_and_its_history_outlive_the_kernel_where_they_can(notebook, tmp_path):
    """The last test of a kind: its kernel is killed."""
    session = notebook.session
    notebook.run(cell("--name far --no-wait --seed 7", epochs=100_000, pause=0.25))
    until(lambda: notebook.value("len(far.history.get('loss', []))") >= 3, 100, lambda: notebook.value("far.events"))
    shared, family = processes.shared_files(), holdings.family(notebook.kernel.pid)
    notebook.kill()
    if notebook.kind == "embedded":
        holdings.assert_swept(notebook.temporary, family, shared)
    notebook.open()
    assert re.search(r"^far +LOST ", notebook.run("%ddl runs").text, re.MULTILINE)

    if notebook.kind == "embedded":
        # Its Spark has died with the kernel; what it had told is stored.
        answer = notebook.kernel.run("%ddl attach far")
        gone = "far cannot be attached: it ran on this machine, which ended with its kernel"
        assert re.fullmatch(f"UsageError: {gone}.*\n", answer.text)
        shown = notebook.run("%ddl show far").text
        assert re.findall(r"epoch (\d+)/100000", shown)[:3] == ["1", "2", "3"]
        return

    assert notebook.run("%ddl attach far").text.startswith(f"far is RUNNING on Livy session {session} at ")
    so_far = notebook.value("len(far.history['loss'])")
    until(lambda: notebook.value("len(far.history['loss'])") > so_far, 100)
    notebook.kill()

    # Another machine: it has no such run, and finds it in the session.
    notebook.open(JUPYTER_DATA_DIR=str(tmp_path / "elsewhere"))
    notebook.use_session()
    assert "on Livy session" in notebook.run("%ddl attach far").text
    assert notebook.value("far.stop().state, len(far.weights())") == ("STOPPED", 2)
    epochs = notebook.value("[event['epoch'] for event in far.events if event['kind'] == 'epoch']")
    assert epochs == list(range(len(epochs))) and len(epochs) > so_far
    assert notebook.value("len(far.history['loss'])") == len(epochs)
    answer = notebook.kernel.run("%ddl attach far")
    assert answer.text.startswith("UsageError: far has ended: STOPPED. %ddl show far shows what is stored. Its trained")
