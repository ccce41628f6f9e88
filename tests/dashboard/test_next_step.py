"""What the views advise once a run has ended."""

from pathlib import Path

import pytest
from support.page import FACTS
from support.synthetic import Synthetic

from ddl_magics.dashboard.history import History
from ddl_magics.dashboard.next_step import Reach, next_step
from ddl_magics.runtime import events as ev


def advice(state: str, model: bool = False, until: float = 1.0, **reach) -> str | None:
    run = Synthetic(2, epochs=2, steps=40)
    history = History(2)
    history.feed([*run.begin(), *run.train(until)])
    if model:
        history.feed([run.make("artifact", 0, name="model-0.keras", size=1, sha256="")])
    history.feed([run.state(state)])
    step = next_step(history, FACTS, Reach(**reach))
    return step and step["code"]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"state": ev.RUNNING, "model": True}, None),
        ({"state": ev.FINISHED}, None),
        ({"state": ev.FINISHED, "model": True}, "model = {name}.model()"),
        ({"state": ev.STOPPED, "model": True}, "model = {name}.model()"),
        ({"state": ev.STOPPED}, "%%distributed --resume {id}"),
        ({"state": ev.FAILED}, "%%distributed --resume {id}"),
        ({"state": ev.FAILED, "until": 0.2}, None),
        ({"state": ev.LOST}, "%%distributed --resume {id}"),
        ({"state": ev.LOST, "attachable": True}, "%ddl attach {id}"),
        (
            {"state": ev.FINISHED, "model": True, "folder": Path("/runs/r")},
            "import keras\nmodel = keras.models.load_model('/runs/r/files/model-0.keras')",
        ),
    ],
)
def test_the_next_step_is_code_that_runs_where_the_view_is(options, code):
    assert advice(**options) == (code and code.format(**FACTS))
