"""Requests with anything in path, query and body, on a store with damaged runs: an answer, never a 500."""

import json
import random
import urllib.parse

import pytest
from hypothesis import strategies as st
from support.bad_input import BROKEN_EVENTS, JSON, NASTY, STRANGE_EVENTS, TEXTS, deep, examples, numbered, tried
from support.fake_cluster import training
from support.stored import finished, stored

from ddl_magics.runtime import events as ev

ANSWERS = (200, 204, 400, 404, 405, 409, 410, 413)
PATHS = (
    "runs",
    "runs/RUN",
    "runs/RUN/events",
    "runs/RUN/view",
    "runs/RUN/replay",
    "runs/RUN/block",
    "runs/RUN/export",
    "runs/RUN/logs/RANK",
)
QUERY = st.dictionaries(
    st.sampled_from(
        ["limit", "since", "cursor", "q", "live", "after", "wait", "page", "n", "offset", "tail", "before", "format"]
    ),
    st.sampled_from(
        ["1", "0", "-1", "true", "false", "1e400~a", "nan~a", "9" * 5000, "²", "١", "json", "html", "csv", "x-1"]
    )
    | TEXTS,
    max_size=3,
)


@pytest.fixture
def knock(http_server_client, jp_base_url, jp_auth_header):
    """`await knock(path, method, body)`: status and body of the answer; the path is sent as it is."""

    async def fetch(path, method="GET", body=None):
        options = {"method": method, "headers": jp_auth_header, "body": body, "allow_nonstandard_methods": True}
        answer = await http_server_client.fetch(
            f"{jp_base_url}ddl_magics/{path}", raise_error=False, request_timeout=30, **options
        )
        return answer.code, answer.body or b""

    return fetch


def quoted(text):
    return urllib.parse.quote(text.encode(errors="surrogatepass"), safe="")


@tried(60, 1500)
async def test_any_path_and_query(knock, count):
    run = finished().path.name
    chance = random.Random(2)
    for query, part in zip(examples(QUERY, count), examples(TEXTS, count), strict=False):
        path = chance.choice(PATHS).replace("RANK", quoted(part[:3000]) if chance.random() < 0.5 else "all")
        path = path.replace("RUN", run if chance.random() < 0.8 else quoted(part[:3000]) or "x")
        query.pop("wait", None)
        words = "&".join(f"{name}={quoted(value[:8000])}" for name, value in query.items())
        code, body = await knock(f"{path}?{words}" if words else path)
        assert code in ANSWERS and b"Traceback" not in body, (path, words[:300], code)
    assert (await knock("runs"))[0] == 200


def bodies(value):
    """A value as the body of a request, in the ways in which it may be wrong."""
    whole = json.dumps(value)
    return [whole.encode(), whole[: len(whole) // 2].encode(), whole.encode("utf-16"), whole.encode() + b"\xff"]


@tried(25, 300)
async def test_any_body(knock, count):
    folder = finished()
    titles = st.fixed_dictionaries(
        {}, optional={"title": JSON, "labels": JSON | st.lists(TEXTS, max_size=3), "id": JSON}
    )
    for value in examples(titles | JSON, count):
        for body in bodies(value):
            code, answer = await knock(f"runs/{folder.path.name}", "PATCH", body)
            assert code in ANSWERS and b"Traceback" not in answer, (code, body[:300])
    for body in (
        b"",
        b"\0",
        b"[" * 10_000,
        deep(10_000).encode(),
        b"{" + b'"a":{' * 3000,
        b'{"title":' + b"9" * 5000 + b"}",
    ):
        assert (await knock(f"runs/{folder.path.name}", "PATCH", body))[0] in (400, 413)
    assert folder.record() is not None and (await knock("runs"))[0] == 200


ROUTES = ("", "/events", "/view", "/replay", "/block", "/logs/all", "/logs/0?tail=true", "/export?format=csv")
LATE = ("/export?format=html", "/export?format=json")


@tried(15, 150)
async def test_a_run_with_any_events_is_answered(knock, count):
    """Of this version with strange values, of another version, and what is no event."""
    finished(name="whole")
    folder = stored(ev.FAILED, training())
    path, base = folder.path / "events.jsonl", (folder.path / "events.jsonl").read_bytes()
    kinds = st.lists(st.one_of(STRANGE_EVENTS, BROKEN_EVENTS), min_size=1, max_size=6)
    for number, events in enumerate(examples(kinds, count)):
        lines = [json.dumps(event).encode() for event in [*numbered(events), *events]]
        path.write_bytes(base + b"\n".join(lines) + b"\n" + (b"\xff\x00" if number % 2 else b""))
        for route in ROUTES + (LATE if number % 5 == 0 else ()):
            code, body = await knock(f"runs/{folder.path.name}{route}")
            assert code == 200, (route, code, ascii(events)[:2000])
            if "csv" not in route and "html" not in route:
                json.loads(body)
        code, body = await knock("runs")
        assert code == 200 and len(json.loads(body)["runs"]) == 2


async def test_records_with_strange_texts_are_listed(knock):
    for number, text in enumerate(NASTY):
        folder = stored(ev.FINISHED, name=text or "x", created=float(number), cell=text)
        folder.update(
            {"cluster": text, "notebook": text, "environment": {text: text}, "progress": {"metrics": {text: 10**400}}}
        )
        assert (await knock(f"runs/{folder.path.name}"))[0] == 200
    code, body = await knock("runs?limit=200")
    assert code == 200 and len(json.loads(body)["runs"]) == len(NASTY)
