"""The page's side of the live view's messages."""

import functools
import json

import numpy as np
import pytest

from ddl_magics.dashboard.messages import Packed, unpack_rows
from ddl_magics.dashboard.schema import message_schema

jsonschema = pytest.importorskip("jsonschema")

FACTS = {"id": "r", "name": "digits", "strategy": "allreduce", "workers": 2, "cluster": "here", "waiting": False}


@functools.cache
def _schema():
    """Made once: `jsonschema.validate` would check the schema itself for each message."""
    schema = message_schema()
    return jsonschema.validators.validator_for(schema)(schema)


class Page:
    """Does what the page does with messages."""

    def __init__(self):
        self.series, self.rows, self.workers, self.logs, self.parts = {}, {}, {}, [], {}

    def take(self, packed: Packed):
        _schema().validate(packed.message)
        json.dumps(packed.message, allow_nan=False)
        message = packed.message
        if message["full"]:
            self.__init__()
        points = np.frombuffer(packed.buffers[0], "<f4").reshape(-1, 2)
        at = 0
        for key, start, count in message["series"]:
            self.series[key] = self.series.get(key, [])[:start] + points[at : at + count].tolist()
            at += count
        assert at == len(points)
        for row in unpack_rows(packed.buffers[1]):
            self.rows[int(row[0])] = row
        self.workers.update({facts["rank"]: facts for facts in message.get("workers", ())})
        self.logs += message["logs"]
        self.parts.update({name: message[name] for name in ("state", "progress", "latest") if name in message})


def assert_same(page: Page, other: Page):
    assert page.parts == other.parts
    assert page.workers == other.workers
    assert page.series.keys() == other.series.keys()
    for key, points in other.series.items():
        np.testing.assert_array_equal(page.series[key], points)
    for rank, row in other.rows.items():
        np.testing.assert_array_equal(page.rows[rank], row)
