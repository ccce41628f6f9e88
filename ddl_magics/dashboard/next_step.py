"""What to do once a run has ended: the line of code that gives its model, continues it or follows it again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..runtime import events as ev
from .history import MODEL, History


@dataclass(frozen=True)
class Reach:
    """How a run can be reached from where its view is.

    Attributes:
        attachable: its driver may outlive its kernel.
        folder: where its files are; None in its kernel, where its name is a variable.
    """

    attachable: bool = False
    folder: Path | None = None


def next_step(history: History, info: dict[str, Any], reach: Reach) -> dict[str, str] | None:
    """`NextStep` of `schema.py`; None while the run goes on, and where there is nothing to do.

    Args:
        history: of the run.
        info: `RunInfo` of `schema.py`; and the state, where it is not that of the events.
        reach: see there.
    """
    state = info.get("state") or history.state["state"]
    if state in (ev.FINISHED, ev.STOPPED) and history.has_model:
        file = "" if reach.folder is None else str(reach.folder / "files" / MODEL)
        load = f"import keras\nmodel = keras.models.load_model({file!r})" if file else f"model = {info['name']}.model()"
        return {"text": "The trained model:", "code": load}
    if state == ev.LOST and reach.attachable:
        return {"text": "It may still train there. To follow it again:", "code": f"%ddl attach {info['id']}"}
    if state in (ev.FAILED, ev.LOST, ev.STOPPED) and history.epochs_done and info["strategy"] != "monitor":
        text = "To continue from its last checkpoint, begin the cell with"
        return {"text": text, "code": f"%%distributed --resume {info['id']}"}
    return None
