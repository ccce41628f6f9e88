"""Runs that version 0.1.0 has stored: listed, read, shown and drawn as their own version did.

data/runs-0.1.0 is what two trainings on an embedded Spark of two workers left: `digits`, an all-reduce that finished,
with labels and a title, and `shared`, against a parameter server, that failed. The names of hosts are masked.
"""

import json
import os

import numpy as np
import pytest
from support.stored import claim, stored_by_0_1_0

from ddl_magics import store
from ddl_magics.__main__ import main
from ddl_magics.dashboard.static import RUN_TYPE
from ddl_magics.notebook.display import bundle as static_bundle
from ddl_magics.runs.run import Run
from ddl_magics.runtime import events as ev
from ddl_magics.runtime.run_spec import RunSpec

jsonschema = pytest.importorskip("jsonschema")


@pytest.fixture(autouse=True)
def runs(data_dir):
    """{name: folder}"""
    return stored_by_0_1_0()


def of(name):
    return Run.stored(store.find_run(name))


def test_the_store_lists_them_newest_first():
    shared, digits = store.list_runs()
    assert (digits.name, digits.state, digits.cluster, digits.notebook, digits.over) == (
        *("digits", ev.FINISHED, "this machine", "quickstart.ipynb"),
        True,
    )
    assert (digits.labels, digits.title) == (("baseline", "good"), "digits, first try")
    assert digits.progress["epoch"] == digits.progress["epochs"] == 5
    assert digits.environment["ddl_magics"] == "0.1.0" and digits.versions["spark"] == "3.5.9"
    assert (shared.name, shared.state, shared.failure["rank"]) == ("shared", ev.FAILED, 1)
    assert "bad share" in shared.failure["message"] and "Traceback" in shared.failure["traceback"]


def test_what_was_asked_for_reads_back():
    digits, shared = (RunSpec.from_record(store.find_run(name).spec) for name in ("digits", "shared"))
    assert (digits.strategy, digits.rule, digits.workers, digits.seed) == ("allreduce", None, 2, 1)
    assert "model.fit(x_train, y_train" in digits.cell and digits.conf == {}
    assert (shared.strategy, shared.rule, shared.window, shared.ps) == ("ps", "adag", 2, 1)


def test_every_event_is_one_of_todays(runs):
    """By the schema that readers of events go by; and numbered without gaps."""
    schema = ev.json_schema()
    validator = jsonschema.validators.validator_for(schema)(schema)
    for folder in runs.values():
        events = list(folder.events())
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
        for event in events:
            validator.validate(event)


def test_the_run_has_history_metrics_workers_logs_and_result():
    digits = of("digits")
    assert digits.state == ev.FINISHED and digits.result == 650
    assert sorted(digits.history) == ["accuracy", "loss", "val_accuracy", "val_loss"]
    assert digits.history["loss"] == pytest.approx([2.396, 2.24, 2.115, 2.003, 1.903], abs=1e-3)
    assert digits.logs(1) == "trained by 1\n" and "0 │ trained by 0" in digits.logs()
    assert list(digits.workers["rank"]) == [0, 1] and set(digits.workers["host"]) == {"worker"}
    assert set(digits.metrics["name"]) >= {"loss", "val_accuracy", "held_out"}
    assert of("shared").history["val_loss"][-1] == pytest.approx(2.409, abs=1e-3)


def test_its_model_and_weights_are_read():
    digits = of("digits")
    kernel, bias = digits.weights()
    assert (kernel.shape, bias.shape) == ((64, 10), (10,))
    model = digits.model()
    np.testing.assert_array_equal(model.get_weights()[0], kernel)
    assert model.count_params() == 650


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("digits", ["digits FINISHED", "allreduce, 2 workers, this machine, seed 1", "epoch 5/5", "accuracy 0.4803"]),
        ("shared", ["shared FAILED", "ps adag, window 2, 2 workers", "1.41 times the learning rate", "bad share"]),
    ],
)
def test_the_command_line_shows_them(capsys, name, says):
    assert main(["show", name]) == 0
    shown = capsys.readouterr().out
    for words in says:
        assert words in shown


def test_the_command_line_lists_them_and_their_logs(capsys):
    assert main(["runs"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in listed[1:]] == [
        ["shared", "FAILED", "ps"],
        ["digits", "FINISHED", "allreduce"],
    ]
    assert main(["logs", "digits", "0"]) == 0
    assert capsys.readouterr().out == "trained by 0\n"
    assert main(["stop", "digits"]) == 1
    assert capsys.readouterr().out == "digits has ended already: FINISHED.\n"


def test_figure_and_static_block_are_drawn():
    assert {trace.name for trace in of("digits").figure().data} >= {"loss", "val_loss"}
    bundle = static_bundle(of("shared"))
    assert bundle[RUN_TYPE]["name"] == "shared"
    html = bundle["text/html"]
    assert "FAILED" in html and "bad share" in html and "parameter server" in html


def test_one_whose_kernel_died_reads_lost(runs):
    folder = runs["shared"]
    record = json.loads((folder.path / "run.json").read_text())
    (folder.path / "run.json").write_text(json.dumps({**record, "state": ev.RUNNING, "ended": None, "failure": None}))
    assert store.find_run("shared").state == ev.LOST
    # The number of its kernel is that of a process that lives, and is another one.
    claim(folder, start="a boot:1")
    assert json.loads((folder.path / "owner.json").read_text())["pid"] == os.getpid()
    assert store.find_run("shared").state == ev.LOST


def test_it_can_be_labelled_and_removed(runs):
    runs["shared"].label(["bad"])
    assert store.find_run("shared").labels == ("bad",)
    runs["shared"].remove()
    assert [record.name for record in store.list_runs()] == ["digits"]
