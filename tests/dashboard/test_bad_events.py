"""Events with strange values, and what is no event at all: whatever a view is fed, it is drawn."""

import json
import unicodedata
import warnings

import numpy as np
import pytest
from hypothesis import strategies as st
from support.bad_input import BROKEN_EVENTS, NASTY, STRANGE_EVENTS, TEXTS, each, numbered, schema, tried

from ddl_magics.dashboard.history import History
from ddl_magics.dashboard.loglines import LogTail
from ddl_magics.dashboard.messages import Packer
from ddl_magics.dashboard.pictures import bundle, pictures
from ddl_magics.dashboard.snapshot import Snapshot, dump, load
from ddl_magics.dashboard.static import MAX_BYTES, static_bundle
from ddl_magics.dashboard.text import TextProgress
from ddl_magics.runs import tables
from ddl_magics.runs.timeline import Timeline
from ddl_magics.runtime import events as ev
from ddl_magics.runtime.bounded_log import may_merge
from ddl_magics.runtime.merging import merge
from ddl_magics.store.run_folder import parse_event

INFO = {"id": "a", "name": "run", "strategy": "ps", "workers": 2, "cluster": "c", "waiting": False}
RUNS = st.lists(STRANGE_EVENTS, max_size=12)


def printable(line):
    """Whether a line has no control characters, line ends and surrogates."""
    return not any(unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") for c in line.replace("\t", ""))


def draw(events):
    """All that is drawn of a run in the kernel."""
    lines = [json.dumps(event).encode() for event in numbered(events)]
    timeline = Timeline(event for event in map(parse_event, lines) if event)
    events = timeline.events()
    history = History(2)
    packer = Packer(history, INFO)
    packer.full(0.0, None)
    for event in events:
        history.feed([event])
        packed = packer.update(1.0, 1.0)
        assert packed.size < 40_000, "an update is bounded"
        json.dumps(packed.message, ensure_ascii=False).encode()
    assert packer.full(1.0, None).message["full"]
    assert dump(load(dump(Snapshot(history, 1, 1.0)))) == dump(Snapshot(history, 1, 1.0))
    drawn = static_bundle({"id": "a"}, events)
    assert len(json.dumps(drawn)) < 2 * MAX_BYTES
    for line in TextProgress("run").feed(events):
        assert printable(line), line
    tables.last_history(events), tables.metrics(events), tables.workers(events), tables.logs(events).encode()
    bundle(pictures(events), "run")


@pytest.fixture(autouse=True)
def warnings_are_errors():
    with warnings.catch_warnings(), np.errstate(all="warn"):
        warnings.simplefilter("error", RuntimeWarning)
        yield


@tried(25, 600)
def test_strange_values_are_drawn(count):
    each(RUNS, count, draw)


@tried(200, 5000)
def test_what_is_no_event_is_found_out(count):
    """Nothing is raised, and what passes can be added to a history, merged and stored."""

    def check(value):
        event = parse_event(json.dumps({**value, "seq": 1} if isinstance(value, dict) else value).encode())
        if event is not None:
            History(2).feed([event])
            json.dumps(event, ensure_ascii=False).encode()
            if may_merge({"attempt": 1, **event}):
                merge(event, event)

    each(BROKEN_EVENTS, count, check)


@tried(100, 1000)
def test_what_is_sound_fits_the_schema(count):
    def check(event):
        assert ev.is_sound(event), event
        stored = {**event, "run": "a", "seq": 1}
        if json.dumps(stored).isascii() and "later" not in json.dumps(stored):
            schema().validate(stored)

    each(STRANGE_EVENTS, count, check)


@tried(25, 600)
def test_a_run_with_events_of_a_later_version_is_drawn(count):
    each(st.lists(BROKEN_EVENTS, max_size=8).map(lambda found: list(filter(ev.is_sound, found))), count, draw)


@tried(200, 5000)
def test_a_line_of_the_log_is_printable(count):
    def check(text):
        tail = LogTail(2)
        for line in tail.add(0, "out", text):
            assert printable(line.text), line
            assert len(line.text) <= 400

    each(TEXTS, count, check)


def test_every_text_with_each_nasty_one():
    """Metrics' names, hosts, devices, messages."""
    draw([event for text in NASTY for event in _with(text)])


def _with(text):
    failure = {"rank": 0, "host": text, "kind": "error", "message": text, "traceback": text * 3}
    return [
        ev.make("worker", 0, host=text, pid=1, device=text, state=text, message=text),
        ev.make("fit", 0, fit=0, model=text, epochs=1, steps=None),
        ev.make("epoch", 0, fit=0, epoch=0, metrics={text: 1.0, text + "2": None}, seconds=1.0),
        ev.make("values", 1, metrics={text: 2.0}, step=None),
        ev.make("log", 0, stream="stdout", text=text),
        ev.make("notice", 0, level="warning", message=text),
        ev.make("artifact", 0, name=text, size=1, sha256=text, uri=text),
        ev.make("file", 0, name=text, size=1, sha256=text),
        ev.make("picture", 0, mime="text/html", data=text),
        ev.make("state", -1, state="FAILED", message=text, failure=failure),
    ]
