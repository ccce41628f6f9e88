"""What counts as an event, and what another version may have written."""

import pytest
from support.fake_cluster import epoch, steps

from ddl_magics.runtime import events as ev


@pytest.mark.parametrize(
    "event",
    [
        epoch(0, loss=None),
        epoch(0, loss=float("nan"), acc=float("inf")),
        {**epoch(0), "later": [1]},
        {**steps(0, 0), "earlier": 3, "seq": 1, "first": 1},
        ev.make("of a later version", 0, anything=[]),
        ev.make("result", 0, encoding="json", value=10**400),
        ev.make("sample", 0, cpu=1.0, memory=2, gpus=None),
        ev.make("state", ev.JOB, state="of a later version", message="", failure=None),
    ],
)
def test_events(event):
    assert ev.is_sound(event)


@pytest.mark.parametrize(
    "event",
    [
        None,
        [],
        "text",
        {},
        {**epoch(0), "kind": ["epoch"]},
        {**epoch(0), "rank": True},
        {**epoch(0), "rank": 10**9},
        {**epoch(0), "time": float("nan")},
        {**epoch(0), "time": 1e300},
        {**epoch(0), "seq": 0},
        {**epoch(0), "seq": 2**60},
        {**epoch(0), "seconds": float("inf")},
        {**epoch(0), "epoch": -1},
        {**epoch(0), "metrics": {"loss": "x"}},
        {**epoch(0), "metrics": {"loss": 10**400}},
        {**epoch(0), "metrics": None},
        {name: value for name, value in epoch(0).items() if name != "metrics"},
        ev.make("sample", 0, cpu=1.0, memory=2, gpus=[{"index": 0}]),
        ev.make("state", ev.JOB, state="FAILED", message="", failure={"rank": 0}),
    ],
)
def test_what_is_no_event(event):
    assert not ev.is_sound(event)


def test_surrogates_are_replaced():
    event = ev.make("notice", 0, level="info", message="caf\udce9 👩")
    assert ev.encodable(event)["message"] == "caf? 👩"
