"""Who may ask: every method of every route wants a login, the XSRF token and the authorizer's leave."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from jupyter_server.auth import Authorizer, decorator
from jupyter_server.base.handlers import JupyterHandler
from support.invented_search import StoredSearch
from support.stored import finished
from tornado import web
from tornado.routing import PathMatches

from ddl_magics.runtime import events as ev
from ddl_magics.server import handlers

VERBS = ("get", "head", "post", "put", "patch", "delete")


def methods():
    """(path with RUN for the id of a run or a search, verb, function) of all that our handlers answer to."""
    found = []
    for pattern, handler in handlers.ROUTES:
        path = pattern.replace("logs/([^/]+)", "logs/0").replace("([^/]+)", "RUN").replace("\\", "")
        for verb in VERBS:
            function = getattr(handler, verb)
            if function is not getattr(web.RequestHandler, verb):
                found.append(pytest.param(path, verb.upper(), function, id=f"{verb} {path}"))
    return found


def of(path):
    """The folder of a run that has ended, or of a search where the path is of one."""
    if not path.startswith("searches"):
        return finished()
    search = StoredSearch(1)
    search.show(1, state=ev.FINISHED)
    return search.folder


CHANGING = [param for param in methods() if param.values[1] not in ("GET", "HEAD")]


@pytest.fixture
def knock(jp_serverapp, jp_base_url, http_server_client):
    """`await knock(path, method, headers)`: the answer to somebody who has nothing but these headers."""

    async def fetch(path, method="GET", headers=None):
        wish = {"method": method, "headers": headers or {}, "allow_nonstandard_methods": True}
        return await http_server_client.fetch(jp_base_url + path, raise_error=False, follow_redirects=False, **wish)

    return fetch


def cookies(*answers):
    """What a browser keeps of them, as a header."""
    lines = [line for answer in answers for line in answer.headers.get_list("Set-Cookie")]
    kept = dict(line.partition(";")[0].split("=", 1) for line in lines)
    return kept, {"Cookie": "; ".join(f"{name}={value}" for name, value in kept.items())}


def test_the_server_has_no_route_of_ours_that_is_not_walked(jp_serverapp):
    """Whoever adds one elsewhere meets this test."""
    added = [rule for router in _routers(jp_serverapp.web_app) for rule in router.rules]
    paths = {rule.matcher.regex.pattern: rule.target for rule in added if isinstance(rule.matcher, PathMatches)}
    ours = {
        path: handler
        for path, handler in paths.items()
        if "ddl_magics" in path or str(getattr(handler, "__module__", "")).startswith("ddl_magics")
    }
    walked = {f"/a%40b/ddl_magics/{path}$": handler for path, handler in handlers.ROUTES}
    assert ours == walked


def _routers(app):
    yield app.wildcard_router
    for rule in app.default_router.rules:
        if hasattr(rule.target, "rules"):
            yield rule.target


def test_the_walk_finds_the_routes_of_the_document():
    document = yaml.safe_load(handlers.SPECIFICATION.read_text())
    values = {"{run}": "RUN", "{search}": "RUN", "{server}": "RUN", "{file}": "RUN", "{rank}": "0"}
    told = {
        (re.sub("{[a-z]+}", lambda name: values[name[0]], path).removeprefix("/ddl_magics/"), verb.upper())
        for path, verbs in document["paths"].items()
        for verb in verbs
        if verb in VERBS
    }
    assert {param.values[:2] for param in methods()} == told


@pytest.mark.parametrize(("path", "verb", "function"), methods())
async def test_nobody_gets_in_without_a_login(knock, path, verb, function):
    folder = of(path)
    answer = await knock(f"ddl_magics/{path}".replace("RUN", folder.path.name), verb)
    assert answer.code == 403 and folder.path.name.encode() not in answer.body
    assert folder.record() is not None and not folder.requested("stop")


@pytest.mark.parametrize(("path", "verb", "function"), CHANGING)
async def test_an_xsrf_token_is_no_login(knock, path, verb, function):
    """Everybody gets one with the page of the login."""
    folder = of(path)
    page = await knock("login")
    kept, headers = cookies(page)
    where = f"ddl_magics/{path}".replace("RUN", folder.path.name)
    answer = await knock(where, verb, {**headers, "X-XSRFToken": kept["_xsrf"]})
    assert answer.code == 403 and b"_xsrf" not in answer.body
    assert folder.record() is not None and not folder.requested("stop")


@pytest.mark.parametrize(("path", "verb", "function"), methods())
def test_every_method_says_itself_that_it_wants_a_login(path, verb, function):
    """Jupyter Server lets in whoever a handler does not refuse, unless it is configured otherwise."""
    files = set()
    while function is not None:
        assert not hasattr(function, "__allow_unauthenticated")
        files.add(function.__code__.co_filename)
        function = getattr(function, "__wrapped__", None)
    assert {web.__file__, decorator.__file__} <= files, "web.authenticated and authorized wrap it"


def test_the_handlers_are_jupyters():
    assert all(issubclass(handler, JupyterHandler) for _, handler in handlers.ROUTES)
    assert all(handler.auth_resource == "ddl_magics" for _, handler in handlers.ROUTES)
    assert hasattr(decorator.allow_unauthenticated(lambda self: None), "__allow_unauthenticated"), "what is looked for"


@pytest.fixture
def login(knock, jp_serverapp):
    """`await login()`: a browser's cookies after a login, by name and as a header."""

    async def log_in():
        page = await knock("login")
        return cookies(page, await knock(f"api?token={jp_serverapp.identity_provider.token}"))

    return log_in


@pytest.mark.parametrize(("path", "verb", "function"), CHANGING)
async def test_a_foreign_page_cannot_ask_with_the_readers_cookies(knock, login, path, verb, function):
    folder = of(path)
    kept, headers = await login()
    where = f"ddl_magics/{path}".replace("RUN", folder.path.name)
    assert (await knock("ddl_magics/runs", headers=headers)).code == 200, "the cookies are a login"
    answer = await knock(where, verb, headers)
    assert answer.code == 403 and b"_xsrf" in answer.body and folder.record() is not None
    answer = await knock(where, verb, {**headers, "X-XSRFToken": kept["_xsrf"]})
    served = path.startswith("servers")  # there is none of this name
    assert answer.code in ((404,) if served else (200, 204, 400)), "with the token it is the page itself"


@pytest.mark.parametrize(("path", "verb", "function"), methods())
async def test_the_authorizer_is_asked(ask, jp_serverapp, monkeypatch, path, verb, function):
    asked = []

    class Nobody(Authorizer):
        def is_authorized(self, handler, user, action, resource):
            asked.append((action, resource))
            return False

    monkeypatch.setitem(jp_serverapp.web_app.settings, "authorizer", Nobody(parent=jp_serverapp))
    folder = of(path)
    code, _, _ = await ask(path.replace("RUN", folder.path.name), verb)
    assert code == 403 and folder.record() is not None
    assert asked == [("read" if verb == "GET" else "write", "ddl_magics")]


async def test_another_origin_gets_no_answer(knock, login):
    folder = finished()
    _, headers = await login()
    answer = await knock("ddl_magics/runs", headers={**headers, "Origin": "https://elsewhere.example"})
    assert answer.code == 404 and folder.path.name.encode() not in answer.body


def test_importing_it_needs_no_jupyter_server():
    program = "import ddl_magics, ddl_magics.server, sys; print('jupyter_server' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_the_configuration_names_the_extension():
    path = Path(__file__).parents[2] / "jupyter-config" / "jupyter_server_config.d" / "ddl_magics.json"
    (module,) = json.loads(path.read_text())["ServerApp"]["jpserver_extensions"]
    from jupyter_server.extension.manager import ExtensionPackage

    assert ExtensionPackage(name=module, enabled=True).validate()
