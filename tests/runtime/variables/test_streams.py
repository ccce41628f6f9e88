"""The session draws random numbers from where the cell has stopped, unless a later cell has drawn some."""

import random
import sys
import types

import numpy as np
import pytest

from ddl_magics.runtime import random_streams
from ddl_magics.runtime.random_streams import CellStreams
from ddl_magics.runtime.variables import placing
from ddl_magics.runtime.variables.left import FILE, CellVariables

SEED = "random.seed(1)\nnp.random.seed(1)\n"
DRAW = "random.random(), np.random.normal()\n"


@pytest.fixture(autouse=True)
def process():
    """A process whose random numbers nobody has seeded."""
    streams, generator = random_streams.current(), np.random.get_bit_generator()
    seeds = random.seed, np.random.seed
    random.seed()
    np.random.set_bit_generator(np.random.MT19937())
    yield
    random.seed, np.random.seed = seeds
    np.random.set_bit_generator(generator)
    random_streams.continue_from(streams._replace(python=None))
    random.setstate(streams.python)  # which does not say that it was seeded


class Session:
    """Cells of this process, and runs, whose rank is this process as well, for a while."""

    def __init__(self, folder, monkeypatch):
        self.folder, self._runs = folder, 0
        # TensorFlow and Keras, where earlier tests have imported them
        current = random_streams.current
        monkeypatch.setattr(
            random_streams, "current", lambda: current()._replace(tensorflow=None, keras=None, keras2=None)
        )
        self.cell = lambda source: exec(source, {"random": random, "np": np})

    def start(self, source, continues=True):
        self._runs += 1
        run, path = f"streams-{self._runs}", self.folder / f"{self._runs}-{FILE}"
        placing.awaiting(run, source, {}, {})
        before, continued = random_streams.current(), random_streams.seeded() if continues else None
        seeds = random.seed, np.random.seed
        if continued is None:
            random_streams.continue_from(random_streams.Streams(*_of_a_rank(), None, None))
        left = CellVariables(source, (), {}, CellStreams(continued))
        self.cell(source)
        left.note_streams()
        packed = left.packed({}, (), finished=True)
        random.seed, np.random.seed = seeds
        _as_before(before, continued)
        if packed is not None:
            path.write_bytes(packed)

        def end(mentioned=None):
            return placing.place(run, {}, lambda name: str(path) if packed else None, mentioned)

        return end


def _of_a_rank():
    return random.Random(11).getstate(), random_streams.Streams(*random_streams.current()).numpy


def _as_before(streams, seeded):
    seeded = seeded or random_streams.Streams(None, None, None, None)
    random_streams.continue_from(seeded)
    if seeded.python is None:
        random.setstate(streams.python)
    if seeded.numpy is None:
        generator = np.random.MT19937()
        generator.state = {**generator.state, "state": {"key": np.uint32(streams.numpy[1]), "pos": streams.numpy[2]}}
        np.random.set_bit_generator(generator)


@pytest.fixture
def session(tmp_path, monkeypatch):
    return Session(tmp_path, monkeypatch)


def plain(session, *cells):
    for cell in cells:
        session.cell(cell)
    return random_streams.current()


def test_the_next_cell_goes_on_where_the_run_has_stopped(session):
    expected = plain(session, SEED, DRAW, DRAW)
    session.cell(SEED)
    for _ in range(2):
        assert session.start(DRAW)() == placing.Placed()
    assert random_streams.current() == expected


def test_what_the_cell_seeds_is_seeded(session):
    expected = plain(session, SEED, DRAW)
    random.seed()
    np.random.set_bit_generator(np.random.MT19937())
    assert random_streams.seeded() is None
    session.start(SEED + DRAW)()
    assert random_streams.current() == random_streams.seeded() == expected


@pytest.mark.parametrize(("seed", "library"), [("random.seed(1)", "Python"), ("np.random.seed(1)", "NumPy")])
def test_one_stream_may_be_seeded_alone(session, seed, library):
    session.cell(seed)
    seeded = random_streams.seeded()
    assert [name for name, state in zip(random_streams.LIBRARIES, seeded, strict=False) if state] == [library]
    expected = plain(session, DRAW)[library == "NumPy"]
    session.cell(seed)
    assert random_streams.seeded().digest == seeded.digest
    _, words, *_ = random_streams.current()[library == "Python"]
    assert session.start(DRAW)() == placing.Placed()
    assert random_streams.seeded()[library == "NumPy"] == expected
    assert random_streams.current()[library == "Python"][1] == words and random_streams.seeded().count(None) == 4


@pytest.mark.parametrize("seed", ["random.setstate(random.Random(3).getstate())", "np.random.set_state(legacy)"])
def test_a_seeded_state_is_a_seed(session, seed):
    exec(seed, {"random": random, "np": np, "legacy": np.random.RandomState(3).get_state()})
    assert random_streams.seeded().count(None) == 4


def test_keras_2_goes_on_where_the_session_is(process, monkeypatch):
    generators = types.SimpleNamespace(generator=random.Random(3))
    monkeypatch.setitem(sys.modules, "tf_keras.src.backend", types.SimpleNamespace(_SEED_GENERATOR=generators))
    streams, expected = random_streams.seeded(), generators.generator.random()
    generators.generator = random.Random(4)
    random_streams.continue_from(streams)
    assert generators.generator.random() == expected
    generators.generator = None  # then it draws seeds from Python's stream
    random.seed(1)
    streams = random_streams.seeded()
    generators.generator = random.Random(4)
    random_streams.continue_from(streams)
    assert generators.generator is None


@pytest.mark.parametrize("continues", [True, False], ids=["nothing seeded", "--seed"])
def test_what_nobody_has_seeded_and_what_is_the_runs_own_stays(session, continues):
    if not continues:
        session.cell(SEED)
    before = random_streams.current()
    assert session.start(DRAW, continues)() == placing.Placed()
    assert random_streams.current() == before


@pytest.mark.parametrize("later", ["np.random.rand()", "np.random.seed(3)"])
def test_a_later_cell_wins(session, later):
    session.cell(SEED)
    end = session.start(DRAW)
    session.cell(later)
    expected = random_streams.current().numpy
    assert end().absent == {"random numbers of NumPy": "a later cell has drawn some, or seeded them"}
    assert random_streams.current().numpy == expected
    assert random_streams.current().python == plain(session, SEED, DRAW).python


def test_another_run_is_no_later_cell(session):
    session.cell(SEED)
    first, second = session.start(DRAW), session.start(DRAW + DRAW)
    assert first() == second() == placing.Placed()
    assert random_streams.current() == plain(session, SEED, DRAW, DRAW)


def test_streams_of_keras_wait_until_a_cell_mentions_it(session, monkeypatch):
    monkeypatch.setitem(random_streams._MODULES, "NumPy", "no_module")  # as Keras, where it is not imported
    session.cell(SEED)
    end, before = session.start(DRAW), random_streams.current().numpy
    for mentioned in (["keras"], ["x"]):
        assert end(mentioned).waiting == ["random numbers of NumPy"] and random_streams.current().numpy == before
    monkeypatch.setitem(random_streams._MODULES, "NumPy", "fractions")
    assert end(["keras"]) == placing.Placed()
    assert random_streams.current() == plain(session, SEED, DRAW)
