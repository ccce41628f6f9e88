"""A monitor in the live view's messages, the static block and the text."""

import json

import jsonschema
import pytest
from support.monitored import events, watch

from ddl_magics.dashboard import monitor, schema
from ddl_magics.dashboard.history import History
from ddl_magics.dashboard.messages import Packer
from ddl_magics.dashboard.static import static_bundle
from ddl_magics.dashboard.text import TextProgress
from ddl_magics.runtime import events as ev


def test_the_events_are_sound():
    assert all(ev.is_sound(event) for event in events())


def test_a_message_has_what_the_monitor_counted_once():
    history = History(0)
    packer = Packer(
        history, {"id": "m", "name": "watch", "strategy": "monitor", "workers": 0, "cluster": "", "waiting": False}
    )
    history.feed(events())
    message = packer.full(0.0, None).message
    jsonschema.validate(message, schema.message_schema())
    assert [thing["name"] for thing in message["monitor"]["things"]][:2] == ["temperature", "output"]
    assert message["monitor"]["reasons"][1] == "the error rose from 3.4 to 4.9 (MAPE, %)"
    assert sum(message["monitor"]["things"][0]["now"]) == pytest.approx(1)
    assert "monitor" not in packer.update(1.0, None).message


def test_many_inputs_are_sent_in_bounded_size():
    event = watch()
    event["things"] = event["things"] * 8
    shown = monitor.monitor_view(ev.parse(event))
    assert len(shown["things"]) == monitor.MAX_COLUMNS
    assert shown["hidden"] == 20 + 40 - monitor.MAX_COLUMNS
    assert len(json.dumps(shown)) < 16_000


@pytest.mark.parametrize(
    ("trained", "came", "says"),
    [
        (178, 300, "No PSI and KS: they need 200 rows of the training, and its reference has 178."),
        (5000, 12, "No PSI and KS yet: they need 200 rows of requests, and 12 have come."),
    ],
)
def test_a_monitor_says_why_there_is_no_psi(trained, came, says):
    event = watch()
    assert monitor.monitor_view(ev.parse(event))["note"] == "Inputs without PSI and KS have fewer than 200 rows."
    event["things"] = [{**thing, "psi": None, "before": [trained], "now": [came]} for thing in event["things"]]
    shown = monitor.monitor_view(ev.parse(event))
    assert shown["note"] == says and says in monitor.html(shown)


def test_a_damaged_event_is_shown_as_far_as_it_goes():
    event = {**watch(), "lines": {"rate": "x"}, "things": [{"name": "a", "now": "?"}, {}], "error": {}, "advice": {}}
    shown = monitor.monitor_view(ev.parse(event))
    assert (shown["rate"], [thing["name"] for thing in shown["things"]]) == ([], ["a"])


def test_the_static_block_and_the_text_say_what_has_moved():
    html = static_bundle({"id": "m", "name": "watch", "strategy": "monitor", "workers": 0}, events())["text/html"]
    assert "temperature" in html and "TRAIN AGAIN" in html and "&lt;b&gt;holiday" in html
    lines = TextProgress("watch").feed(events())
    assert any("temperature has moved" in line for line in lines)
