"""What a saved notebook says of runs, searches, monitors and served models wherever it is shown."""

import re
from types import SimpleNamespace

import nbformat
import pytest
from support.invented_search import InventedSearch, search_view
from support.invented_server import InventedServer
from support.monitored import events as events_of_a_monitor
from support.stored import stored
from support.strippers import STRIPPERS, nbconvert_sanitized
from support.synthetic import Synthetic

from ddl_magics import Run
from ddl_magics.notebook import display
from ddl_magics.runtime import events as ev
from ddl_magics.serving.servers import describe, find_served


class Notebook:
    """The outputs of a cell, as a front end keeps them."""

    def __init__(self, monkeypatch):
        self.outputs = []
        monkeypatch.setattr("IPython.display.display", self._display)

    def _display(self, data, raw=False, display_id=None, **_):
        assert raw
        output = nbformat.v4.new_output("display_data", data=dict(data))
        self.outputs.append(output)
        return SimpleNamespace(update=lambda data, raw: output.update(data=nbformat.from_dict(data)))

    def print(self, text):
        self.outputs.append(nbformat.v4.new_output("stream", text=text + "\n"))


@pytest.fixture
def notebook(monkeypatch):
    return Notebook(monkeypatch)


def run(state, events, **spec):
    return Run.stored(stored(state, events, **spec).record())


def running(notebook):
    invented = Synthetic(2, epochs=3, steps=100)
    display.show_live(run(ev.RUNNING, [*invented.begin(), *invented.train(0.7)]), waiting=False)
    return ["RUNNING", "digits", "after 2 epochs", "%ddl show digits"]


def starting(notebook):
    display.show_live(run(ev.PREFLIGHT, [ev.make("state", ev.JOB, state=ev.PREFLIGHT)]), waiting=False)
    return ["STARTING", "digits", "%ddl show digits"]


def finished(notebook):
    invented = Synthetic(2, epochs=3, steps=100)
    artifact = ev.make("artifact", 0, name="model-0.keras", size=1, sha256="")
    events = [*invented.begin(), *invented.train(), artifact, *invented.end()]
    display.show_live(run(ev.FINISHED, events), waiting=False)
    return ["FINISHED", "digits", "after 3 epochs", "0.1341", "0.2041", "model = keras.models.load_model("]


def failed(notebook):
    invented = Synthetic(2, epochs=3, steps=100)
    ended = run(ev.FAILED, [*invented.begin(), *invented.train(0.7), *invented.fail(1)])
    display.show_live(ended, waiting=False)
    return ["FAILED", "digits", "Rank 1 on wn4-hdi failed", f"%%distributed --resume {ended.id}", "after 2 epochs"]


def search(notebook):
    display._show_search(InventedSearch(search_view(20, state=ev.FINISHED)), False)
    return ["tuned FINISHED", "20 of 40 trials", "best val_accuracy 0.9", "model = tuned.best.run.model()"]


def running_search(notebook):
    display._show_search(InventedSearch(search_view(3, training=2)), False)
    return ["tuned RUNNING", "3 of 40 trials", "best val_accuracy 0.9", "%ddl show tuned"]


def monitor(notebook):
    display.show_live(run(ev.RUNNING, events_of_a_monitor(), name="watch", strategy="monitor"), waiting=False)
    return [
        "RUNNING",
        "watch",
        "0.41",
        "48,200 requests",
        "TRAIN AGAIN",
        "%%distributed --name energy",
        "%ddl show watch",
    ]


def serving(notebook):
    server = InventedServer()
    try:
        server.count(rate=2.5, requests=7, errors=1)
        notebook.print(describe(find_served("digits")))
    finally:
        server.end()
    return ["digits version 1", "http://127.0.0.1:18080", "2.5 requests/s, 7 in all", "1 error"]


KINDS = [starting, running, finished, failed, search, running_search, monitor, serving]


@pytest.mark.parametrize("strip", STRIPPERS, ids=lambda strip: strip.__name__)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_state_numbers_and_next_step_are_read_wherever_a_notebook_is_shown(kind, strip, notebook):
    expected = kind(notebook)
    text = strip(notebook.outputs)
    for words in expected:
        assert words in text, words
    assert len(re.findall(rf"\b{expected[0]}\b", text)) == 1, "nothing is doubled"
    assert not re.findall(r"object at 0x|PREFLIGHT|SUBMITTED|\bWAITING\b", text)
    if strip is not nbconvert_sanitized:  # which shows tags as text
        assert not re.findall(r"border-collapse|svg|style=|{\w", text), "styles leave no text behind"
        assert "seconds" not in text, "the axes of pictures leave no text behind"
