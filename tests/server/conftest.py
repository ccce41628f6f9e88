"""A Jupyter Server in this process, with our extension, on a store of the test's own."""

import json
from urllib.parse import parse_qsl

import pytest
from pytest_jupyter.jupyter_server import *  # noqa: F403  (fixtures and hooks, for this folder alone)
from tornado.httpclient import HTTPClientError


@pytest.fixture
def jp_server_config():
    return {"ServerApp": {"jpserver_extensions": {"ddl_magics.server": True}}}


@pytest.fixture(autouse=True)
def runs_folder(tmp_path, monkeypatch, jp_environ):
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "store"))
    return tmp_path / "store" / "ddl_magics" / "runs"


@pytest.fixture
def ask(jp_fetch):
    """`await ask("path?query", method, body, **query)`: status, the answer's JSON or text, and the response."""

    async def fetch(path, method="GET", body=None, headers=None, **query):
        path, _, words = path.partition("?")
        query |= dict(parse_qsl(words))
        content = {"headers": headers or {}, "allow_nonstandard_methods": True}
        if body is not None:
            content["body"] = body if isinstance(body, str) else json.dumps(body)
        try:
            response = await jp_fetch("ddl_magics", *path.split("/"), method=method, params=query, **content)
        except HTTPClientError as error:
            response = error.response
        text = (response.body or b"").decode()
        kind = response.headers.get("Content-Type", "")
        return response.code, json.loads(text) if "json" in kind and text else text, response

    return fetch
