"""What counts as an event, and what another version may have written."""

import re

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
        ev.make("sample", 0, cpu=1.0, memory=2, gpus=[{"index": 0, "name": "a GPU", "slowed_by": None}]),
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


#: The type of a field in Python -> the types that its schema may have. A field of any type is Any.
TYPES = {
    "int": {"integer"},
    "float": {"number"},
    "str": {"string"},
    "bool": {"boolean"},
    "Metrics": {"object"},
    "Dict": {"object"},
    "List": {"array"},
    "None": {"null"},
}


@pytest.mark.parametrize("kind", ev.SCHEMA)
def test_a_kind_has_the_types_of_its_schema(kind):
    event_class = next(event_class for event_class in ev.Event.__subclasses__() if event_class.kind == kind)
    required, optional = ev.SCHEMA[kind].required, ev.SCHEMA[kind].optional
    annotations = vars(event_class)["__annotations__"]
    assert list(annotations) == [*required, *optional], "required fields stand first"
    for name, schema in {**required, **optional}.items():
        if annotations[name] != "Any":
            words = [word.strip().partition("[")[0] for word in re.split(r"\|(?![^\[]*\])", annotations[name])]
            allowed = set().union(*(TYPES[word] for word in words))
            types = schema.get("type", "string" if "enum" in schema else ())
            types = {types} if isinstance(types, str) else set(types)
            default = {"null"} if name in optional and getattr(event_class, name) is None else set()
            assert types | default == allowed, name


def test_an_event_has_its_fields_as_attributes_and_a_missing_one_has_its_default():
    event = ev.parse({**steps(0, 3, rows=8), "seq": 7, "later": 1})
    assert isinstance(event, ev.Steps)
    assert (event.rank, event.seq, event.first_seq, event.rows, event.earlier, event.data) == (0, 7, 7, 8, 0, None)
    assert event.steps_done == event.step + event.count
    assert ev.parse({**event.raw, "first": 2, "earlier": 1}).first_seq == 2


def test_an_event_of_a_later_version_has_what_all_events_have():
    event = ev.parse(ev.make("of a later version", ev.JOB, rows=1))
    assert type(event) is ev.Event and event.kind == "of a later version" and event.attempt is None


def test_events_of_one_kind_are_selected():
    events = [steps(0, 0), epoch(0, loss=1.0), steps(0, 1), epoch(1, loss=0.5)]
    assert [event.metrics["loss"] for event in ev.select(ev.Epoch, events)] == [1.0, 0.5]
