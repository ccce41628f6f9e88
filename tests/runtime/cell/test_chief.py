"""Where ranks come and go: a rank that becomes the chief while the cell runs is it for the cell from then on."""

from types import SimpleNamespace

import pytest

from ddl_magics.options.parsing import parse
from ddl_magics.runtime import target
from ddl_magics.runtime.cell import execution
from ddl_magics.runtime.chief import Chief
from ddl_magics.runtime.driver.limits import RunLimits
from ddl_magics.runtime.events import make
from ddl_magics.runtime.events import parse as event_of
from ddl_magics.runtime.histories import histories
from ddl_magics.runtime.rank.config import JobConfig
from ddl_magics.runtime.rank.rank import Rank
from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.runtime.transport.credentials import Credentials


@pytest.fixture
def rank(tmp_path):
    """Rank 1 of two, at position 1."""
    job = JobConfig(parse("--workers 1..2 --seed 7"), Credentials("run", b"secret" * 6), ("host", 80), "3.5", 2)
    rank = Rank(job.of_rank(1, "10.0.0.1", str(tmp_path), []), None)
    rank.peers.regrouping = SimpleNamespace(has_joined=True)
    rank.peers.ring = SimpleNamespace(rank=1, size=2)
    return rank


def lose_rank_0(rank):
    rank.peers.ring = SimpleNamespace(rank=0, size=1)


def test_ddl_says_so_when_it_is_asked(rank):
    ddl = execution.Helper(rank, None)
    assert not ddl.is_chief
    lose_rank_0(rank)
    assert ddl.is_chief and (ddl.rank, ddl.size) == (1, 2), "the number and the size are those of the start"


def test_its_pictures_are_shown(rank, monkeypatch):
    sent = []
    monkeypatch.setattr(rank.reporter, "emit", lambda kind, **fields: sent.append((kind, fields["data"])))
    pictures = execution._pictures(rank)
    table = type("Table", (), {"_repr_html_": lambda self: "<table></table>"})()
    assert not pictures.show(table)
    lose_rank_0(rank)
    pictures.display(table)
    assert sent == [("picture", "<table></table>")]


def test_keras_saves_where_the_cell_says(rank, tmp_path):
    from ddl_magics.runtime.training import files

    saved = []
    model = type("Model", (), {"save": lambda self, filepath: saved.append(filepath)})
    files._Redirect(rank.files.paths).writing(model, "save", 1)
    path = str(tmp_path.parent / "elsewhere.keras")
    for filepath in ("hdfs://host/model.keras", path):
        model().save(filepath)
    lose_rank_0(rank)
    for filepath in ("hdfs://host/model.keras", path):
        model().save(filepath)
    assert saved == [f"{tmp_path}/root{path}", "hdfs://host/model.keras", path]


def values(rank, loss):
    return make("values", rank, metrics={"loss": loss}, step=None)


LOOP = [
    make("group", -1, members=[0, 1]),
    make("fit", 0, fit=0, model="m", epochs=0, steps=None),
    values(1, 0.9),
    values(0, 0.8),
    make("group", -1, members=[1]),
    values(1, 0.7),
    make("group", -1, members=[1, 2]),
    values(2, 0.6),
    values(1, 0.05),
]


def test_its_values_of_ddl_log_are_the_runs():
    assert histories(LOOP) == [{"loss": [0.8, 0.7, 0.05]}]
    said = target.verdict(target.read("loss:0.1"), LOOP)
    assert said == "target loss <= 0.1 reached in call 3 of ddl.log: 0.05"
    epochs = [make("epoch", i, fit=0, epoch=i, metrics={"loss": 0.2 - 0.1 * i}) for i in range(2)]
    assert target.verdict(target.read("loss:0.1"), epochs) == "target loss <= 0.1 reached in epoch 2: 0.1"
    chief = Chief()
    for event in LOOP:
        chief.read(event_of(event))
    assert chief.rank == 1


def test_its_values_of_ddl_log_end_a_run_at_its_target():
    asked = []
    limits = RunLimits(RunSpec(target="loss:0.1"), asked.append)
    for event in LOOP:
        assert not asked
        limits.check_event(event_of(event))
    assert asked == [" at --target"]
