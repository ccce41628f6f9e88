"""Bad input: strategies for texts, JSON values and events that nobody should send, and the loop that tries them.

A test tries a few examples, the same every time; marked `slow` it tries thousands.
"""

import functools
import json

import hypothesis
import pytest
from hypothesis import strategies as st

from ddl_magics.runtime import events as ev
from ddl_magics.runtime import schema_check

#: What a message must never show, wherever it was typed.
SECRET = "hunter2pass"

CHARACTERS = st.characters(exclude_categories=())
NASTY = (
    "\0",
    "\x1b[31mred",
    "\x1b]0;title\x07",
    "\x9b31m",
    "\ud800",
    "\udcff",
    "\u202eabc",
    "\u2028",
    "\x85",
    "\r\n",
    "a\rb",
    "\t",
    "²",
    "١٢",
    "１",
    "é",
    "名前",
    "👩‍🔬",
    "<script>alert(1)</script>",
    "'\"",
    "{0}%s",
    "../../etc/passwd",
    "nan",
    "-inf",
    "1e999",
    "9" * 5000,
    "x" * 20_000,
)
TEXTS = st.one_of(
    st.text(CHARACTERS, max_size=30),
    st.sampled_from(NASTY),
    st.lists(st.one_of(st.sampled_from(NASTY), st.text(CHARACTERS, max_size=5)), max_size=4).map("".join),
)
NUMBERS = st.one_of(
    st.integers(-3, 40),
    st.sampled_from([2**31, 2**53, 2**63, -(2**63), 10**299, 10**400, -0.0, 1e-320, 1e38, 1e300, 1.8e308]),
    st.floats(),
)
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=5
)


def deep(levels):
    """JSON nested so deeply that a parser may give up."""
    return "[" * levels + "]" * levels


def _of(schema):
    """Values that fit one of the schemas of `events.SCHEMA`, also at its bounds."""
    if "enum" in schema:
        return st.sampled_from([*schema["enum"], "of a later version"])
    kinds = schema.get("type", ())
    kinds = [kinds] if isinstance(kinds, str) else kinds
    found = []
    for kind in kinds:
        if kind == "string":
            found.append(TEXTS)
        elif kind == "integer":
            least = schema.get("minimum", -1)
            found += [st.integers(least, 5), st.sampled_from([least, 1000, schema_check.MAX_COUNT])]
        elif kind == "number":
            bounded = "minimum" in schema
            found.append(st.floats(0, 1e6) if bounded else st.floats() | st.sampled_from([0, 10**299, 1.7e308, 5e-324]))
        elif kind == "boolean":
            found.append(st.booleans())
        elif kind == "null":
            found.append(st.none())
        elif kind == "array":
            found.append(st.lists(_of(schema["items"]), max_size=3))
        elif "additionalProperties" in schema:
            found.append(st.dictionaries(TEXTS | st.just("loss"), _of(schema["additionalProperties"]), max_size=3))
        else:
            found.append(_object(schema["properties"], schema["required"]))
    return st.one_of(found) if found else JSON


def _object(properties, required):
    must = {name: _of(schema) for name, schema in properties.items() if name in required}
    may = {name: _of(schema) for name, schema in properties.items() if name not in required}
    return st.fixed_dictionaries(must, optional=may)


def _kind(name):
    kind = ev.SCHEMA[name]
    envelope = {
        "v": st.just(1),
        "kind": st.just(name),
        "rank": st.integers(-1, 3) | st.just(ev.MAX_RANK),
        "time": st.floats(1.7e9, 1.7e9 + 100) | st.sampled_from([0, ev.MAX_TIME - 1]),
        "attempt": st.integers(0, 2),
    }
    return _object({**kind.required, **kind.optional}, kind.required).flatmap(
        lambda fields: st.fixed_dictionaries(envelope).map(lambda head: {**fields, **head})
    )


#: Events whose fields have the types of their kind, and strange values.
STRANGE_EVENTS = st.one_of([_kind(name) for name in ev.SCHEMA])


@st.composite
def _broken(draw):
    event = dict(draw(STRANGE_EVENTS))
    for name in draw(st.lists(st.sampled_from(sorted(event)), min_size=1, max_size=3)):
        if draw(st.booleans()):
            event.pop(name, None)
        else:
            event[name] = draw(JSON)
    if draw(st.booleans()):
        event["kind"] = draw(st.sampled_from(["later", "state", "steps", "__init__", "feed"]) | JSON)
    return event


#: Events of another version, and what is none: of other types, without fields, with further ones.
BROKEN_EVENTS = st.one_of(_broken(), JSON)


def numbered(events):
    """Events with their numbers in a run."""
    return [{**event, "seq": number} for number, event in enumerate(events, 1) if isinstance(event, dict)]


def tried(few, many):
    """The numbers of examples of a test: a few, and in the slow one many."""
    return pytest.mark.parametrize(
        "count", [few, pytest.param(many, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])]
    )


def each(strategy, count, check):
    """Call `check` with so many examples; one that fails is printed."""

    @hypothesis.settings(
        max_examples=count,
        database=None,
        derandomize=True,
        deadline=None,
        phases=[hypothesis.Phase.generate],  # to shrink long texts takes minutes
        report_multiple_bugs=False,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(strategy)
    def run(value):
        try:
            check(value)
        except Exception:
            print(f"with {ascii(value)[:1000]}")
            raise

    run()


def examples(strategy, count):
    """So many examples as a list, for a test that awaits."""
    found = []
    each(strategy, count, found.append)
    return found


def one_line(message):
    """Whether a message is one line that a terminal shows as it is, of bounded length, without the secret."""
    plain = all(character.isprintable() for character in message)
    return plain and 0 < len(message) <= 700 and SECRET not in message


@functools.cache
def schema():
    import jsonschema

    return jsonschema.Draft202012Validator(json.loads(json.dumps(ev.json_schema())))
