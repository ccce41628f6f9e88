"""The magics in an IPython shell of this process: what a user types, and what is printed."""

import sys
import types

import pandas as pd
import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell
from support.fake_cluster import FakeCluster
from support.shells import NO_HISTORY, run, session
from support.stored import stored
from support.until import until

from ddl_magics import store
from ddl_magics.clusters.embedded import EmbeddedCluster
from ddl_magics.errors import CellSyntaxError
from ddl_magics.runtime import events as ev


def test_old_runs_are_removed_by_hand_or_at_the_start_of_each_run(shell, capsys, caplog):
    old = [stored(ev.FINISHED, created=1.0) for _ in range(2)]
    text, _ = run(shell, "%ddl clean --keep 30d --dry-run", capsys)
    assert "2 runs with" in text and "would be removed" in text
    assert "say what to keep: %ddl clean [--keep 30d]" in run(shell, "%ddl clean", capsys)[0]
    run(shell, "%config DistributedStore.max_size = 'much'", capsys)
    assert caplog.messages == ["--max-size must be a size such as 500MB, 10GB, not 'much'."]
    run(shell, "%%distributed --name first\nx = 1", capsys)
    assert all(folder.path.exists() for folder in old), "off by default"
    run(shell, "%config DistributedStore.keep = '30d'", capsys)
    run(shell, "%%distributed --name second\nx = 1", capsys)
    until(lambda: not any(folder.path.exists() for folder in old), 10)
    assert {record.name for record in store.list_runs()} == {"first", "second"}


def test_a_cell_waits_in_a_terminal_and_leaves_its_run_in_the_namespace(shell, capsys):
    text, error = run(shell, "%%distributed --name digits\nx = 1\nx", capsys)
    assert error is None
    assert "digits  epoch 2/2  loss 0.5  accuracy 0.6" in text and "0 │ hello 1" in text
    assert shell.user_ns["digits"].result == {"answer": 42}
    assert "x" not in shell.user_ns, "the cell runs elsewhere"


def test_no_wait_returns_at_once(shell, capsys):
    session(shell).cluster.visible = 2
    text, error = run(shell, "%%distributed --name digits --no-wait\nx = 1", capsys)
    assert error is None and text == ""
    assert shell.user_ns["digits"].stop(10).state == ev.STOPPED


def test_the_other_name_of_the_magic(shell, capsys):
    _, error = run(shell, "%%ddl_distributed\nx = 1", capsys)
    assert error is None and shell.user_ns["run_1"].state == ev.FINISHED


@pytest.mark.parametrize(
    ("cell", "says"),
    [
        ("%%distributed --worker 2\nx", "UsageError: no option --worker. Did you mean --workers?"),
        ("%%distributed\n\n \n", "UsageError: the cell is empty: write the training below %%distributed."),
        ("%distributed", "UsageError: %%distributed is a cell magic: write it, with two"),
        ("%%distributed --name shellname\n1", "UsageError: --name shellname would replace your variable"),
        ("%%distributed\n\nx = 1\n%time x", "UsageError: line 4: magics and shell commands do not run on workers"),
        ("%%distributed\n!ls", "UsageError: line 2: magics and shell commands do not run on workers"),
        (
            "%%distributed\nx = 1\ninput('go? ')",
            "UsageError: line 3: input() waits for a person, and a worker has none: ask",
        ),
        (
            "%%distributed\nget_ipython().system('ls')",
            "UsageError: line 2: get_ipython() is the notebook's, and workers",
        ),
        ("%ddl attach nothing", "UsageError: there is no run nothing. %ddl runs lists them."),
        ("%ddl use livy http://u:p@h", "UsageError: the URL holds a password, which would be stored: set it in"),
        ("%ddl use livy host:8998", "UsageError: host:8998 is not the URL of a Livy: write http://HOST:8998, or"),
        ("%ddl use embedded now", "UsageError: write: %ddl use embedded"),
        ("%ddl show", "UsageError: write: %ddl show RUN"),
        ("%ddl serve nothing", "UsageError: there is no run nothing. %ddl runs lists them."),
        ("%ddl stop nothing", "UsageError: there is no run nothing. %ddl runs lists them."),
    ],
)
def test_mistakes_are_one_line_without_a_traceback(shell, capsys, cell, says):
    shell.user_ns["shellname"] = [1]
    text, error = run(shell, cell, capsys)
    assert error is not None, "later cells of Run All must not start"
    assert text.startswith(says) and text.count("\n") == 1
    assert store.list_runs() == []


@pytest.mark.parametrize(("source", "line"), [("x = 1\nx(", 4), ("y = 2\nreturn y", 4), ("\n\nx = = 1", 5)])
def test_a_syntax_error_shows_as_ipythons_own_at_the_notebooks_line(shell, capsys, source, line):
    text, error = run(shell, f"%%distributed\n\n{source}", capsys)
    assert isinstance(error, CellSyntaxError)
    assert f", line {line}\n" in text and "SyntaxError:" in text
    assert source.splitlines()[-1].strip() in text
    assert "magics.py" not in text and store.list_runs() == []


def test_a_syntax_error_names_the_cell_that_has_it(shell, capsys):
    for cell in ("1", "%%distributed\nx("):
        shell.run_cell(cell, store_history=True)
    assert "Cell In[2], line 2" in capsys.readouterr().out


def test_the_source_keeps_the_notebooks_line_numbers(shell, capsys):
    run(shell, "%%distributed\n\n\nx = 1", capsys)
    (spec,) = session(shell).cluster.launched.values()
    assert spec.cell.splitlines()[3] == "x = 1"


def test_help_prints_and_runs_nothing(shell, capsys):
    for cell in ("%%distributed --help\n", "%distributed --help", "%%ddl_distributed -h\nx = 1"):
        text, error = run(shell, cell, capsys)
        assert error is None and "--batch-size N" in text
    assert "stop RUN" in run(shell, "%ddl", capsys)[0]
    assert run(shell, "%ddl help", capsys) == run(shell, "%ddl --help", capsys)
    assert run(shell, "%ddl help scale", capsys) == run(shell, "%ddl scale --help", capsys)
    assert "has no verb scael" in str(run(shell, "%ddl help scael", capsys)[1])
    assert store.list_runs() == []


def test_verbs(shell, capsys):
    run(shell, "%%distributed --name digits\nx = 1", capsys)
    assert "digits  FINISHED" in run(shell, "%ddl runs", capsys)[0]
    assert "epoch 2/2" in run(shell, "%ddl show digits", capsys)[0]
    assert run(shell, "%ddl logs digits 1", capsys)[0] == "not the chief\nnot the chief\n"
    assert run(shell, "%ddl stop digits", capsys)[0] == "digits has ended already: FINISHED.\n"
    assert run(shell, "%ddl use embedded", capsys)[0] == "runs are executed on fake\n"
    assert "no model is served; %ddl serve RUN serves one" in run(shell, "%ddl serving", capsys)[0]
    assert "2 slots, 2 free" in run(shell, "%ddl check", capsys)[0]
    assert run(shell, "%ddl spark --workers 2", capsys)[0] == "spark is a variable of fake, and needs no start\n"


def test_spark_is_not_started_for_too_many_workers_nor_over_a_variable(shell, capsys, monkeypatch):
    monkeypatch.setattr("ddl_magics.clusters.local_spark.existing_session", lambda namespace: None)  # of other tests
    session(shell).cluster = EmbeddedCluster(lambda: shell.user_ns)
    text, error = run(shell, "%ddl spark --workers 9000", capsys)
    assert "--workers 9000 is too much for this machine" in text + str(error)
    shell.user_ns["spark"] = 1
    text, error = run(shell, "%ddl spark", capsys)
    assert "your variable spark (int) would be replaced: del spark, or rename it." in text + str(error)
    assert shell.user_ns["spark"] == 1


def test_a_resuming_run_gets_the_folder_and_uri_of_the_other_runs_checkpoints(shell, capsys):
    run(shell, "%%distributed --name digits --checkpoint hdfs:///of/all\nx = 1", capsys)
    run(shell, "%%distributed --name more --resume digits\nx = 1", capsys)
    first, second = shell.user_ns["digits"], shell.user_ns["more"].spec
    assert (second.resume, second.resume_uri, second.checkpoint) == (first.id, "hdfs:///of/all", None)
    assert second.checkpoints == str(store.runs_folder() / first.id / "files")


def test_ipythons_configuration_file_and_config_set_defaults(shell, capsys, caplog):
    shell.run_line_magic("unload_ext", "ddl_magics")
    shell.config.Distributed.workers = 1
    shell.run_line_magic("load_ext", "ddl_magics")
    session(shell).cluster = FakeCluster()
    run(shell, "%config Distributed.seed = 5", capsys)
    run(shell, "%%distributed --name one\nx = 1", capsys)
    assert (shell.user_ns["one"].spec.workers, shell.user_ns["one"].spec.seed) == (1, 5)
    run(shell, "%config Distributed.strategy = 'all'", capsys)
    assert "--strategy has no value 'all'" in caplog.text


@pytest.mark.parametrize(
    ("typed", "where"),
    [
        ("{code} > {1 + 1}", "zip > 2"),
        (r"{code} rlike '^[0-9]{5}(-[0-9]{4,6})?[a-z]{2,}$'", r"zip rlike '^[0-9]{5}(-[0-9]{4,6})?[a-z]{2,}$'"),
        ("z rlike '^[0-9]{5}' and '[{undefined name}]'", "z rlike '^[0-9]{5}' and '[{undefined name}]'"),
    ],
)
def test_variables_expand_in_the_line_and_regular_expressions_stay(shell, capsys, typed, where):
    """A line that cannot be expanded stays as it is."""
    shell.user_ns["code"], shell.user_ns["df"] = "zip", object()
    run(shell, f'%%distributed --data df --label y --where "{typed}" --name one\nx = 1', capsys)
    assert shell.user_ns["one"].spec.where == where


def test_where_the_run_was_made_is_stored(shell, capsys, monkeypatch):
    monkeypatch.setenv("JPY_SESSION_NAME", "/home/me/a.ipynb")
    monkeypatch.setattr(shell, "get_parent", lambda: {"metadata": {"cellId": "1f-2"}}, raising=False)
    run(shell, "%%distributed --name digits\nx = 1", capsys)
    record = store.find_run("digits")
    assert (record.notebook, record.cell_id, record.cluster) == ("/home/me/a.ipynb", "1f-2", "fake")
    monkeypatch.setattr(shell, "get_parent", lambda: {"metadata": {}})
    run(shell, "%%distributed --name other\nx = 1", capsys)
    assert store.find_run("other").cell_id == "", "a front end that does not send it"


@pytest.mark.parametrize(
    ("typed", "offers"),
    [
        ("%%distributed --w", ["--wait", "--warm-start", "--weight", "--where", "--window", "--workers"]),
        ("%%distributed --workers 2 --wa", ["--wait", "--warm-start"]),
        ("%%distributed --strategy ", ["allreduce", "average", "ensemble", "ps", "single", "tf-allreduce", "tf-ps"]),
        ("%%distributed --rule do", ["downpour", "downpour:rate=", "downpour:scale="]),
        ("%%distributed --data tr", ["train_df"]),
        ("%%distributed --data train_df --label la", ["label"]),
        ("%%distributed --data train_df --features x1,x", ["x1", "x2"]),
        ("%%ddl_distributed --se", ["--search", "--seed", "--send", "--sequence-length", "--sequence-stride", "--set"]),
        ("%ddl s", ["scale", "serve", "serving", "show", "spark", "stop"]),
        ("%ddl use ", ["auto", "embedded", "livy"]),
        ("%ddl show di", ["digits"]),
        ("a = 1\n%ddl lo", ["logs"]),
    ],
)
def test_completion(shell, capsys, typed, offers):
    shell.user_ns["train_df"] = pd.DataFrame({"x1": [1.0], "x2": [2.0], "label": [0]})
    run(shell, "%%distributed --name digits\nx = 1", capsys)
    with provisionalcompleter():
        found = sorted(completion.text for completion in shell.Completer.completions(typed, len(typed)))
    assert found == offers


def test_completion_leaves_other_cells_alone(shell):
    with provisionalcompleter():
        assert any(c.text == "print" for c in shell.Completer.completions("x = pri", 7))


def test_replacing_another_extensions_magic_is_printed(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance(config=NO_HISTORY)
    other = types.ModuleType("nbdistributed")
    exec("def distributed(line, cell): pass", other.__dict__)
    monkeypatch.setitem(sys.modules, "nbdistributed", other)
    shell.register_magic_function(other.distributed, "cell")
    shell.run_line_magic("load_ext", "ddl_magics")
    shell.run_line_magic("reload_ext", "ddl_magics")
    InteractiveShell.clear_instance()
    assert "no longer that of nbdistributed;" in capsys.readouterr().out


def test_unloading_takes_the_magics_away(shell, capsys):
    shell.run_line_magic("unload_ext", "ddl_magics")
    assert "not found" in run(shell, "%%distributed\nx", capsys)[0]
    shell.run_line_magic("load_ext", "ddl_magics")
    session(shell).cluster = FakeCluster()
    assert run(shell, "%%distributed\nx", capsys)[1] is None
