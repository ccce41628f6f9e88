"""Invented runs in the store, which the panel shows, compares and replays."""

import time
from typing import Any

from support.stored import stored
from support.synthetic import Synthetic

from ddl_magics.runtime import events as ev
from ddl_magics.store import RunFolder

FILES = [
    {"name": "best.keras", "size": 52_300_000, "path": None},
    {"name": "logs/a.csv", "size": 312, "path": "/home/ada/digits/logs/a.csv"},
]
CELL = "model.compile('{}')\nmodel.fit(x, y)\n"


def invented(
    name: str = "digits",
    share: float = 1.0,
    workers: int = 2,
    optimizer: str = "adam",
    steps: int = 100,
    ago: float = 600,
    failed: bool = False,
    **options: Any,
) -> tuple[RunFolder, Synthetic]:
    """A run that has done a share of its training, and what continues it. It lasts 40 seconds, if no rank is slow."""
    run = Synthetic(
        workers, epochs=4, steps=steps, gpus=0, step_seconds=0.1, start=time.time() - ago, seed=len(name), **options
    )
    events = [*run.begin(), *run.train(share)]
    state = ev.RUNNING
    if share == 1.0:
        events += run.fail(1) if failed else run.end()
        state = ev.FAILED if failed else ev.FINISHED
    fields = {"name": name, "created": events[0]["time"], "workers": workers, "cell": CELL.format(optimizer)}
    folder = stored(state, events, **fields)
    if share == 1.0:
        folder.update({"ended": run.time, "failure": events[-1].get("failure"), "cell_files": FILES})
    return folder, run
