"""Services with Livy's interface that are not Livy: by stand-ins that answer as their documents say."""

import importlib.util
import json
import re
import subprocess
import sys
import time
from unittest.mock import Mock

import pytest
from IPython.core.error import UsageError
from support import fake_livy
from support.fake_livy import FakeLivy
from support.livy_lookalikes import EmrServerless, Fabric, Lighter

from ddl_magics.clusters import (
    livy_channel,
    livy_check,
    livy_config,
    livy_description,
    livy_http,
    livy_kerberos,
    livy_session,
)
from ddl_magics.clusters.base import Unreachable
from ddl_magics.clusters.choice import Choice
from ddl_magics.clusters.livy import LivyCluster
from ddl_magics.clusters.livy_channel import StatementFailed
from ddl_magics.clusters.livy_http import Connection, LivyHttp, Rejected, Throttled
from ddl_magics.clusters.livy_session import LivySession, NoSession
from ddl_magics.clusters.livy_token import Token
from ddl_magics.commands.kernel import Kernel
from ddl_magics.commands.table import BY_VERB
from ddl_magics.commands.use import checked_url, lifetime, use

ROLE = {"conf": {EmrServerless.ROLE: "arn:aws:iam::1:role/r"}}
#: What the stand-in of a service is asked with, beyond what Livy needs.
HOW = {
    Fabric: {"auth": Token("livy_tokens:first")},
    EmrServerless: {
        "headers": {"Authorization": "AWS4-HMAC-SHA256 Credential=K/d/r/emr-serverless/aws4_request, Signature=s"}
    },
    Lighter: {},
}

FUNCTIONS = """
def poll(argument, *more): return json.dumps({'got': json.loads(argument), 'names': [sorted(m) for m in more]})
launch = poll
def bad(argument): raise ValueError('no such run')
def busy(argument): return json.dumps({'busy': 0})
"""


@pytest.fixture(autouse=True)
def quick(monkeypatch, tmp_path):
    monkeypatch.setattr(livy_http, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(livy_channel, "PROBE_SECONDS", 0.1)
    monkeypatch.setattr(livy_session, "REACH_SECONDS", 0.1)
    monkeypatch.setattr(livy_session, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(livy_session, "APPEAR_SECONDS", 0.3)
    monkeypatch.setenv("SPARKMAGIC_CONF_DIR", str(tmp_path / "sparkmagic"))
    (tmp_path / "livy_tokens.py").write_text("def first(): return 'first'\ndef two(): return 'two words'\n")
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.fixture(params=[Fabric, EmrServerless, Lighter], ids=lambda kind: kind.__name__)
def service(request):
    with FakeLivy(side_channel=False) as livy, request.param(livy.url) as service:
        service.livy = livy
        yield service


@pytest.fixture
def fabric():
    with FakeLivy(side_channel=False) as livy, Fabric(livy.url) as service:
        service.livy = livy
        yield service


@pytest.fixture
def package(tmp_path):
    (tmp_path / "package").mkdir()
    with fake_livy.driver(tmp_path / "package", FUNCTIONS) as runtime:
        yield runtime


def http_of(service):
    return LivyHttp(Connection(service.url, **HOW[type(service)]))


def created(service, **how):
    return livy_session.create(http_of(service), ROLE if isinstance(service, EmrServerless) else {}, report=str, **how)


def opened(service, package):
    cluster = LivyCluster(created(service), package)
    cluster.channel.open(5)
    return cluster


def test_a_session_is_made_used_found_and_ended(service, package):
    cluster = opened(service, package)
    session, channel = cluster.session, cluster.channel
    assert str(session.id) in service.ids and session.name.startswith("ddl_")
    assert channel.has_side_channel is False, channel.no_side_channel_reason
    assert channel.call("poll", '{"run": "\u00e4"}')["got"] == {"run": "\u00e4"}
    service.livy.names["frame"] = 1
    assert "frame" in channel.call("launch", "{}", namespace=True)["names"][0]
    with pytest.raises(StatementFailed, match=r"^ValueError: no such run$"):
        channel.call("bad", "{}")
    for known in (str(session.id), session.name):
        found = livy_session.find(http_of(service), known)
        assert (found.id, found.name) == (session.id, session.name)
    with pytest.raises(NoSession, match=rf"has no session other; it has {session.id} \({session.name}\)\.$"):
        livy_session.find(http_of(service), "other")
    session.terminate()
    assert service.livy.state == "gone"


def test_a_session_that_has_ended_is_gone_and_a_gateways_404_is_not_its_end(service, package, monkeypatch):
    cluster = opened(service, package)
    service.livy.state = "gone"
    assert not cluster.alive()
    answer = cluster.poll("r", 0)
    assert isinstance(answer, Unreachable) and answer.session_ended
    service.livy.state = "idle"
    monkeypatch.setattr(service, "answer", lambda *asked: (404, {"error": "no route"}))
    assert cluster.alive()
    answer = cluster.poll("r", 0)
    assert isinstance(answer, Unreachable) and not answer.session_ended


def test_a_session_is_made_once_however_often_the_answer_is_lost(service):
    service.lost = 1
    session = created(service)
    assert len(service.livy.created) == 1 and str(session.id) in service.ids
    made = [body for method, path, _, body in service.seen if method == "POST" and path.endswith("/sessions")]
    assert len(made) == 1 and made[0]["name"] == session.name


def test_a_session_that_is_listed_late_is_not_made_twice(service, monkeypatch):
    service.lost, hidden = 1, type(service).shown_list
    late = []

    def shown_list(sessions, headers):
        late.append(sessions)
        return hidden(service, sessions if len(late) > 3 else [], headers)

    monkeypatch.setattr(service, "shown_list", shown_list)
    assert created(service).name == service.livy.created[0]["name"] and len(service.livy.created) == 1
    assert len(late) > 3


def test_a_session_that_never_appears_is_named(service, monkeypatch):
    service.lost = 1
    monkeypatch.setattr(service, "shown_list", lambda sessions, headers: {})
    with pytest.raises(NoSession, match=r"no session could be created: .* if it appears yet, as ddl_\w+, delete it$"):
        created(service)
    assert len(service.livy.created) == 1


def test_its_address_leads_back_to_it(service, package, monkeypatch):
    cluster = opened(service, package)
    address = json.loads(json.dumps(cluster.driver_address))
    choice = Choice(None)
    monkeypatch.setattr(choice, "_connection", lambda url: Connection(url, **HOW[type(service)]))
    again = choice.at(address)
    assert again.session.id == cluster.session.id and again.channel.call("poll", "{}")["got"] == {}
    for damaged in (None, True, "", ["x"]):
        with pytest.raises(NoSession, match="its stored address is damaged"):
            choice.at({**address, "session": damaged})


def test_check_says_what_a_service_does_not_tell(service, package):
    said = dict(opened(service, package).findings())
    assert said["Livy"].startswith(f"no version told at {service.url}, with")
    assert said["CSRF"] == "X-Requested-By is sent; whether Livy requires it could not be found out"


def test_an_id_stays_within_its_path(service):
    assert livy_description.path_of("a/../../b?c") == "/sessions/a%2F..%2F..%2Fb%3Fc"


# Fields and states


@pytest.mark.parametrize(
    ("answer", "state", "cause"),
    [
        ({"id": "u"}, "", ""),
        ({"id": "u", "livyInfo": {"currentState": "Idle"}}, "idle", ""),
        ({"id": "u", "state": None, "livyInfo": None}, "", ""),
        (
            {"id": "u", "state": "starting", "fabricSessionStateInfo": {"state": "error", "errorMessage": "no\ncores"}},
            "error",
            "no cores",
        ),
        ({"id": "u", "result": "Failed", "errorInfo": [{"message": "a library"}]}, "error", "a library"),
        ({"id": "u", "result": "Uncertain", "state": "busy"}, "busy", ""),
    ],
)
def test_fields_come_late_or_never(answer, state, cause):
    described = livy_description.read(answer)
    assert (described.state, described.cause) == (state, cause)


def test_a_session_that_could_not_start_says_why(fabric, monkeypatch):
    failed = {"fabricSessionStateInfo": {"state": "error", "errorMessage": "the environment is not published"}}
    shown = Fabric.shown
    monkeypatch.setattr(fabric, "shown", lambda key, session: {**shown(fabric, key, session), **failed})
    with pytest.raises(NoSession, match=r"did not start \(it is error\): the environment is not published$"):
        created(fabric)
    assert fabric.livy.state == "gone", "it is deleted"


def test_fabric_gets_no_field_that_it_does_not_list_and_its_statements_name_their_kind(fabric, package):
    opened(fabric, package)
    bodies = [body for method, _, _, body in fabric.seen if method == "POST" and body]
    assert list(bodies[0]) == ["name"]
    assert {body["kind"] for body in bodies if "code" in body} == {"pyspark"}


def test_statements_name_their_kind_only_where_the_session_has_none(package):
    with FakeLivy(side_channel=False) as livy, Lighter(livy.url) as lighter:
        opened(lighter, package)
        assert not [body for *_, body in lighter.seen if body and "code" in body and "kind" in body]


def test_the_address_that_fabric_shows_is_taken():
    base = f"https://api.fabric.example{Fabric.prefix}"
    assert checked_url(f"{base}/sessions") == checked_url(f"{base}/sessions/") == checked_url(base) == base


def test_a_session_ends_after_the_time_of_its_service(service):
    session = LivySession(http_of(service), "1-2", detached=True)
    said = {
        Fabric: "Fabric's session timeout (20 min unless set)",
        EmrServerless: "Livy's default (livy.server.session.timeout, 1 h unless set)",
        Lighter: "Lighter's session timeout (1 h 30 min unless set)",
    }[type(service)]
    assert f"is deleted, or after {said} in which" in lifetime(session)
    assert livy_check._idle_timeout(session, {}).startswith(f"{said}, which Livy does not report;")


# Too many requests


def test_what_is_refused_as_too_much_is_asked_again_when_the_service_says(fabric, package):
    cluster = opened(fabric, package)
    fabric.refused, asked = [(429, {"Retry-After": "1"})], len(fabric.seen)
    began = time.monotonic()
    assert cluster.channel.call("poll", "{}")["got"] == {}
    assert time.monotonic() - began >= 1
    assert fabric.seen[asked][:2] == fabric.seen[asked + 1][:2], "the same request, and none between"


def test_nothing_is_sent_before_the_time_that_the_service_names(fabric):
    http = http_of(fabric)
    fabric.refused = [(430, {"Retry-After": "100"})]
    for _ in range(3):
        with pytest.raises(Throttled, match=r"answers 430 \(too much is asked for\)$") as caught:
            http.get("/sessions", seconds=1)
        assert 98 < caught.value.seconds <= 100
    assert len(fabric.seen) == 1


def test_a_session_waits_for_room_and_is_made_once(fabric, monkeypatch):
    monkeypatch.setattr(livy_session, "_reach", lambda http: None)
    fabric.refused = [(430, {"Retry-After": "1"}), (429, {"Retry-After": "0"})]
    session = created(fabric)
    assert session.name == fabric.livy.created[0]["name"] and len(fabric.livy.created) == 1
    fabric.refused = [(430, {})]
    with pytest.raises(NoSession, match=r"no session could be created: \S+ answers 430 \(too much is asked for\)$"):
        created(fabric)
    assert len(fabric.livy.created) == 1


def test_who_waits_for_room_waits_longer_than_for_an_answer(fabric):
    http = http_of(fabric)
    fabric.refused = [(430, {"Retry-After": "1"})]
    with pytest.raises(Throttled):
        http.post("/sessions", {"name": "a"}, seconds=0.5)
    assert http.post("/sessions", {"name": "a"}, seconds=0.5, patience=10)["id"]
    assert len(fabric.livy.created) == 1


def test_the_time_may_be_a_date():
    assert livy_http._seconds("Thu, 01 Jan 2015 00:00:00 GMT") == 0
    assert livy_http._seconds("Fri, 01 Jan 2100 00:00:00 GMT") > 1e9
    assert livy_http._seconds("3") == 3 and livy_http._seconds("soon") is None and livy_http._seconds("-1") == 0


# Tokens


def test_a_token_is_asked_for_once_and_again_when_it_has_expired(fabric, tmp_path):
    asked, current = tmp_path / "asked", tmp_path / "current"
    current.write_text("first")
    source = f"{sys.executable} -c \"open('{asked}', 'a').write('x'); print(open('{current}').read())\""
    http = LivyHttp(Connection(fabric.url, Token(source)))
    for _ in range(2):
        assert http.get("/sessions")["items"] == []
    assert asked.read_text() == "x"
    current.write_text("second")
    fabric.tokens = {"second"}
    assert http.get("/sessions")["items"] == [] and asked.read_text() == "xx"
    fabric.tokens = {"third"}
    with pytest.raises(Rejected, match=r"refuses a new token \(Access token has expired.*: is it for this service"):
        http.get("/sessions")
    assert asked.read_text() == "xxx"
    sent = [headers["Authorization"] for _, _, headers, _ in fabric.seen]
    assert sent == ["Bearer first"] * 3 + ["Bearer second"] * 3
    shown = repr(http.__dict__) + repr(http._connection) + repr(http._connection.auth) + http.authentication
    assert not [word for word in ("first", "second", str(current)) if word in shown] and "token" in http.authentication
    assert not [path for _, path, _, _ in fabric.seen if "second" in path]


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("livy_tokens:two", "gives something else than a token"),
        ("livy_tokens:none", r"livy_tokens:none gives no token \(AttributeError\)"),
        ("no_such_command --x", "no_such_command gives no token: No such file"),
        ("sh -c 'echo hidden; echo please log in >&2; exit 3'", "sh gives no token: please log in$"),
        ("sh -c 'echo hidden; exit 3'", "sh gives no token: exit status 3$"),
        ("sh -c 'echo'", "gives something else than a token"),
        ("az 'account", "close its quotes"),
    ],
)
def test_a_source_that_gives_no_token_says_so_in_one_line(fabric, source, says):
    with pytest.raises(Rejected, match=says) as caught:
        LivyHttp(Connection(fabric.url, Token(source))).get("/sessions")
    assert "hidden" not in str(caught.value) and "\n" not in str(caught.value) and not fabric.seen


def test_a_token_goes_to_its_own_service_only_and_never_unencrypted(tmp_path):
    configure(tmp_path, url="https://fabric.example/livyApi/versions/1", auth="Bearer", token_from="az token")
    assert isinstance(livy_config.connection().auth, Token)
    assert isinstance(livy_config.connection("https://fabric.example/livyapi/versions/1/").auth, Token)
    assert livy_config.connection("https://other.example").auth is None
    with pytest.raises(NoSession, match=r"http://livy\.example is not encrypted"):
        livy_config.connection("http://livy.example", "az token")


def test_the_option_needs_its_url():
    with pytest.raises(UsageError, match="--token-from needs the URL"):
        use(Kernel(Mock(), choice=Mock()), **BY_VERB["use"].read(["livy", "--token-from", "az token"]))


# sparkmagic's configuration, without sparkmagic


def configure(folder, custom_headers=None, **credentials):
    (folder / "sparkmagic").mkdir(exist_ok=True)
    values = {"kernel_python_credentials": credentials, "custom_headers": custom_headers or {}}
    (folder / "sparkmagic" / "config.json").write_text(json.dumps(values))


def test_credentials_and_headers_are_read_from_its_file(tmp_path):
    configure(
        tmp_path, {"X-Requested-By": "me"}, url="https://c.example/livy", username="ann", base64_password="c2VjcmV0"
    )
    connection = livy_config.connection()
    assert (connection.url, connection.auth) == ("https://c.example/livy", ("ann", "secret"))
    assert connection.headers == {"X-Requested-By": "me"} and connection.verify
    assert "secret" not in repr(connection)
    assert LivyHttp(connection).authentication == "with basic credentials"
    assert livy_config.connection("http://other:8998").auth is None
    assert livy_config.session_properties() == {} and livy_config.startup_seconds() == 60


def test_without_its_file_a_livy_is_asked_without_credentials():
    connection = livy_config.connection()
    assert (connection.url, connection.auth, dict(connection.headers)) == ("http://localhost:8998", None, {})


@pytest.mark.parametrize(
    ("credentials", "says"),
    [
        ({"auth": "Basic_Access"}, "Basic_Access needs username and base64_password"),
        ({"username": "a", "base64_password": "\u00e4"}, "base64_password is not base64"),
        ({"auth": "Own"}, "authenticators has no Own"),
        ({"auth": "Bearer"}, r'"Bearer" needs "token_from"'),
    ],
)
def test_a_wrong_configuration_is_one_line(tmp_path, credentials, says):
    configure(tmp_path, **credentials)
    with pytest.raises(NoSession, match=f"config.json is wrong: .*{says}"):
        livy_config.connection()
    (tmp_path / "sparkmagic" / "config.json").write_text("{")
    with pytest.raises(NoSession, match=r"config\.json is not JSON"):
        livy_config.connection()


WITHOUT = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] in ('sparkmagic', 'gssapi', 'krb5', 'requests_kerberos', 'hdijupyterutils'):
            raise ImportError(name, name=name)
sys.meta_path.insert(0, Missing())
from IPython.core.interactiveshell import InteractiveShell
from ddl_magics.clusters import livy_session
shell = InteractiveShell.instance()
shell.run_line_magic('load_ext', 'ddl_magics')
for line in sys.argv[1:]:
    shell.run_line_magic('ddl', 'use livy ' + line)
print(sorted({'sparkmagic', 'gssapi', 'krb5', 'requests_kerberos'} & set(sys.modules)), 'requests' in sys.modules)
"""


def test_a_livy_is_used_without_sparkmagic_and_kerberos(tmp_path, data_dir, fabric):
    """By a process that cannot import them: one Livy with a password, another service with tokens."""
    with FakeLivy(side_channel=False) as livy:
        configure(tmp_path, url=livy.url, username="ann", base64_password="c2VjcmV0")
        lines = [livy.url, f"{fabric.url} --token-from livy_tokens:first"]
        command = [sys.executable, "-c", WITHOUT, *lines]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=tmp_path)
        assert ended.returncode == 0, ended.stderr
        used = re.findall(r"runs are executed on Livy session (\S+) at 127.0.0.1:\d+", ended.stdout)
        assert used == ["7", *fabric.ids] and ended.stdout.endswith("[] True\n"), ended.stdout
        for service, credentials in ((livy, "Basic YW5uOnNlY3JldA=="), (fabric, "Bearer first")):
            assert {headers.get("Authorization") for _, _, headers, _ in service.seen} == {credentials}


def test_kerberos_says_what_it_needs(tmp_path, monkeypatch):
    configure(tmp_path, auth="Kerberos")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(NoSession, match=r"^Kerberos needs its library: pip install requests-kerberos \("):
        livy_config.connection()


def test_a_livy_that_wants_a_ticket_says_so(monkeypatch):
    with FakeLivy() as livy:
        monkeypatch.setattr(livy_http, "_asks_for_ticket", lambda headers: True)
        livy.faults["GET /sessions"] = [(401, b"<html>Authentication required</html>")]
        with pytest.raises(
            Rejected, match=r'wants a Kerberos ticket: set "auth": "Kerberos" for http\S+ in sparkmagic'
        ):
            LivyHttp(Connection(livy.url)).get("/sessions")


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        (
            "Major (458752): No credentials were supplied, Minor (2529639053): No Kerberos credentials available "
            "(default cache: FILE:/tmp/x), Context: Processing security token",
            "there is no Kerberos ticket for h: run kinit in a terminal of this machine",
        ),
        (
            "Major (720896): The referenced credential has expired, Minor (100001): Success",
            "the Kerberos ticket for h has expired: run kinit in a terminal of this machine",
        ),
        (
            "Major (851968): Unspecified, Minor (1): Server HTTP/h@R not found in Kerberos database, Context: a",
            "Kerberos gives no ticket for h (Server HTTP/h@R not found in Kerberos database): klist shows yours",
        ),
        (
            "authGSSClientStep() failed",
            "Kerberos gives no ticket for h (authGSSClientStep() failed): klist shows yours",
        ),
    ],
)
def test_what_kerberos_says_is_one_line(said, problem):
    assert livy_kerberos._problem("h", said) == problem
