"""The live view's kernel side: the messages that a search's widget gets, and the clicks that come back."""

import json
import math
from dataclasses import replace

import jsonschema
import pytest
from support.invented_search import InventedSearch

from ddl_magics.dashboard.schema import DEFINITIONS, SEARCH_DEFINITIONS, reference
from ddl_magics.runtime import events as ev
from ddl_magics.runtime.cell.suggestions import Choices, FloatRange
from ddl_magics.search.live import LiveSearch
from ddl_magics.search.messages import MAX_POINTS, Packer
from ddl_magics.search.view import SearchView, TrialRow

SPACE = {"lr": FloatRange("lr", 1e-4, 1e-1, log=True), "act": Choices("act", ("relu", None))}
SCHEMA = {**reference("SearchKernelMessage"), "definitions": {**DEFINITIONS, **SEARCH_DEFINITIONS}}


def row(number, state="training", value=0.5, **fields):
    params = {"lr": 0.01, "act": None}
    return TrialRow(number, state, value, params, 2, 3.0, begun=1000.0, curve=((1, 0.25), (2, value)), **fields)


def view(*rows, state=ev.RUNNING):
    return SearchView("s1", "tuned", state, "", "score", "max", 9, 10.0, "tpe", rows, SPACE)


@pytest.fixture
def live(monkeypatch):
    """`live(view)`: a LiveSearch whose messages, which fit the schema, are `sent`."""

    def live(first):
        search = InventedSearch(first)
        sent = []

        def send(_widget, content):
            jsonschema.validate(json.loads(json.dumps(content, allow_nan=False)), SCHEMA)
            sent.append(content["search"])

        monkeypatch.setattr("ddl_magics.search.live.SearchWidget.send", send)
        # The thread would send one more where a check of a message takes seconds, beside other work.
        monkeypatch.setattr("ddl_magics.search.live.start_heartbeats", lambda live, name: None)
        made = LiveSearch(search)
        made.sent, made.search = sent, search
        return made

    return live


def receive(live, **content):
    live._receive(live.widget, content, [])


def test_all_is_sent_until_a_page_asks_and_then_what_changes(live):
    made = live(view(row(0)))
    made.search.show(view(row(0), row(1)))
    assert [message["full"] for message in made.sent] == [True, True]
    receive(made, type="hello")
    made.search.show(view(replace(row(0), seconds=99.0), row(1, value=0.75)))
    full, changed = made.sent[-2:]
    assert full["full"] and [axis["name"] for axis in full["info"]["axes"]] == ["lr", "act"]
    assert not changed["full"] and [trial["number"] for trial in changed["trials"]] == [1]
    assert changed["trials"][0]["curve"] == [[1, 0.25], [2, 0.75]]
    assert [message["n"] for message in made.sent] == [1, 2, 3, 4]


def test_a_large_search_is_not_sent_whole_unasked(live):
    made = live(view(*map(row, range(60))))
    made.search.show(view(*map(row, range(61))))
    assert [(message["full"], len(message["trials"])) for message in made.sent] == [(False, 60), (False, 1)]


def test_numbers_that_json_does_not_know_are_null(live):
    made = live(view(row(0, value=math.nan), row(1, state="finished", value=math.inf)))
    assert [trial["value"] for trial in made.sent[0]["trials"]] == [None, None]


def test_long_curves_are_thinned_and_keep_their_end():
    curve = tuple((epoch, float(epoch)) for epoch in range(1, 1001))
    message = Packer(False).full(view(replace(row(0), curve=curve)), 0.0)
    sent = message["trials"][0]["curve"]
    assert len(sent) <= MAX_POINTS and sent[-1] == [1000, 1000.0]


def test_the_time_of_a_trial_that_runs_is_not_sent_again_and_its_end_is():
    packer = Packer(False)
    packer.full(view(row(0)), 0.0)
    assert packer.update(view(replace(row(0), seconds=50.0)), 1.0)["trials"] == []
    (ended,) = packer.update(view(replace(row(0), state="finished", seconds=50.0)), 2.0)["trials"]
    assert (ended["seconds"], ended["state"]) == (50.0, "finished")


def test_clicks_reach_the_search(live):
    made = live(view(row(0)))
    for content in ({"type": "stop"}, {"type": "stop_trial", "trial": 4}, {"type": "stop_trial", "trial": 99}):
        receive(made, **content)
    made._receive(made.widget, "nonsense", [])
    receive(made, type="stop_trial", trial="x")
    assert made.search.asked == ["stop", 4, 99]


def test_heartbeats_end_with_the_search(live, monkeypatch):
    made = live(view(row(0)))  # whose own thread sleeps meanwhile
    monkeypatch.setattr("ddl_magics.search.live.HEARTBEAT_SECONDS", 0.0)
    assert made.heartbeat() and len(made.sent) == 2
    made.search.show(view(row(0, state="finished"), state=ev.FINISHED))
    assert not made.heartbeat()
