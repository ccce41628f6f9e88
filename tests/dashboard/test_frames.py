"""The table of the workers over time: bounded in moments and rows, and from the begin of a run to its end."""

import base64

import numpy as np
import pytest
from support.synthetic import Synthetic

from ddl_magics.dashboard.frames import MAX_ROWS, Frames
from ddl_magics.dashboard.history import History
from ddl_magics.dashboard.workers import COLUMNS, Worker


def rows(frame):
    return np.frombuffer(base64.b64decode(frame.rows), dtype="<f4").reshape(-1, len(COLUMNS))


@pytest.mark.parametrize(("ranks", "seconds"), [(1, 10_000), (64, 500), (256, 3000), (2000, 40)])
def test_a_longer_run_has_moments_further_apart_and_no_more_of_them(ranks, seconds):
    frames = Frames(ranks)
    workers = [Worker(rank) for rank in range(ranks)]
    for second in range(seconds):
        frames.add(float(second), workers)
    kept = list(frames)
    apart = np.diff([frame.seconds for frame in kept])
    assert frames.limit / 2 <= len(kept) <= frames.limit
    assert len(kept) * ranks <= max(MAX_ROWS, 8 * ranks)
    assert kept[0].seconds == 0 and seconds - kept[-1].seconds <= apart.max()
    assert apart.max() <= 2 * apart.min() + 1, "evenly"


def test_a_history_keeps_what_its_workers_were_at_each_moment():
    run = Synthetic(2, epochs=4, steps=100, gpus=0, step_seconds=0.1, slow={1: 2.0})
    history = History(2)
    history.feed([*run.begin(), *run.train(), *run.end()])
    compute = {frame.seconds: rows(frame)[:, COLUMNS.index("compute")] for frame in history.frames}
    early = [values for seconds, values in compute.items() if 10 < seconds < 20]
    late = list(compute.values())[-1]
    assert len(early) >= 5 and all(values.max() < 1.2 * values.min() for values in early)
    assert late[1] > 1.5 * late[0], "the slow one"
    assert len(rows(list(history.frames)[-1])) == 2
