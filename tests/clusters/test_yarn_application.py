"""What a Livy session on YARN waits for, and why it has ended. Livy 0.7.1 and Hadoop 3.3.4 have written the lines."""

import pytest
from support import fake_livy
from support.fake_livy import FakeLivy

from ddl_magics.clusters import livy_session, yarn_application
from ddl_magics.clusters.livy_channel import Channel
from ddl_magics.clusters.livy_http import Connection, Gone, LivyHttp
from ddl_magics.clusters.livy_session import NoSession

APPLICATION = "application_1795852296725_0005"
SUBMITTED = [
    f"26/11/28 08:13:28 INFO Client: Application report for {APPLICATION} (state: ACCEPTED)",
    "26/11/28 08:13:28 INFO Client: ",
    "\t diagnostics: N/A",
    "\t queue: default",
]
NO_ROOM = (
    "[Sat Nov 28 08:13:40 +0000 2026] Application is Activated, waiting for resources to be assigned for AM.  Last "
    "Node which was processed for the application : 10.194.128.2:8041 ( Partition : [], Total resource : <memory:5120, "
    "vCores:4>, Available resource : <memory:1024, vCores:2> ). Details : AM Partition = <DEFAULT_PARTITION> ; Queue's "
    "Absolute capacity = 100.0 % ; Queue's Absolute used capacity = 90.0 % ; Queue's Absolute max capacity = 100.0 % ; "
)
LIMIT = (
    "[Sat Nov 28 08:13:29 +0000 2026] Application is added to the scheduler and is not yet activated. Queue's AM "
    "resource limit exceeded.  Details : AM = <DEFAULT_PARTITION>; AM Resource Request = <memory:4864, vCores:1>; "
)
LAUNCHED = "[Sat Nov 28 08:13:29 +0000 2026] AM container is launched, waiting for AM container to Register with RM"
KILLED = f"Application {APPLICATION} was killed by user root"
WAITS = f"{APPLICATION} waits in queue default of YARN"


def log(*told):
    return ["stdout: ", "\nstderr: ", *SUBMITTED, "\nYARN Diagnostics: ", *told]


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (
            log(NO_ROOM),
            f"{WAITS}, 90 % of which is used: Application is Activated, waiting for resources to be ",
        ),
        (
            log(LIMIT),
            f"{WAITS}: Application is added to the scheduler and is not yet activated. Queue's AM resource limit ",
        ),
        (SUBMITTED[:2] + [f"\t diagnostics: {LIMIT}"] + SUBMITTED[3:], f"{WAITS}: Application is added to the sch"),
        (log(LAUNCHED), None),
        (SUBMITTED[:2] + [f"\t diagnostics: {LIMIT}", "\nYARN Diagnostics: "], None),  # it has begun meanwhile
        (log(), None),
        ([line.replace("ACCEPTED", "RUNNING") for line in log(NO_ROOM)], None),
        ([], None),
    ],
)
def test_an_application_that_waits_is_named_with_its_queue_and_the_reason(lines, says):
    said = yarn_application.waiting(lines)
    assert said is None if says is None else said.startswith(says) and "Details" not in said


@pytest.fixture
def livy(monkeypatch):
    monkeypatch.setattr(livy_session, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(yarn_application, "QUEUE_SECONDS", 0.02)
    monkeypatch.setattr(yarn_application, "QUEUE_LOOK_SECONDS", 0.02)
    monkeypatch.setattr(yarn_application, "LOOK_SECONDS", 0.01)
    with FakeLivy() as livy:
        livy.about = {"appId": APPLICATION}
        yield livy


def http_of(livy):
    return LivyHttp(Connection(livy.url))


def test_a_session_that_waits_in_a_queue_says_so_until_its_time_is_over(livy):
    livy.state, livy.log, lines = "starting", log(NO_ROOM), []
    livy.faults = {"POST /sessions": [(201, {"id": 7, "state": "starting", "kind": "pyspark"})]}
    kill = f"`yarn application -kill {APPLICATION}` takes it out"
    with pytest.raises(NoSession, match=rf"is still starting after 1 s: ask for less .* {WAITS}, 90 % .* {kill}"):
        livy_session.create(http_of(livy), {}, seconds=0.6, report=lines.append)
    said = [line for line in lines if "waits in" in line]
    assert len(said) == 1 and said[0].startswith(f"after 0 s, {WAITS}, 90 % of which is used: ")


def test_a_session_that_livy_gives_up_while_it_waits_says_what_it_waited_for(livy):
    livy.state, livy.log = "starting", log(LIMIT)
    session = livy_session.LivySession(http_of(livy), 7)

    def dies(line):
        livy.state, livy.log = "dead", log(KILLED)

    with pytest.raises(NoSession, match=rf"did not start \(it is dead\): {WAITS}: .*, longer than its Livy lets"):
        livy_session.wait_until_idle(session, 20, dies)


def test_a_session_that_dies_as_it_starts_has_yarns_words(livy):
    failed = "Application application_1 failed 1 times due to AM Container exited with  exitCode: 13"
    livy.state, livy.log = (
        "dead",
        log(failed, "Failing this attempt.Diagnostics: [x]", "For more detailed output, check"),
    )
    said = rf"YARN: {failed} Failing this attempt.Diagnostics: \[x\]; `yarn logs -applicationId {APPLICATION}` has"
    with pytest.raises(NoSession, match=said):
        livy_session.wait_until_idle(livy_session.LivySession(http_of(livy), 7))


@pytest.mark.parametrize("knows", [True, False])
def test_an_application_that_is_killed_is_named_by_whom_once_livy_knows_it(livy, tmp_path, knows, monkeypatch):
    monkeypatch.setattr(yarn_application, "NOTICE_SECONDS", 0.1)
    with fake_livy.driver(tmp_path, "def busy(argument): return json.dumps({'busy': 0})\n") as runtime:
        channel = Channel(http_of(livy), 7, runtime)
        channel.open(5)
        dead = {"state": "FAILED", "error": "java.net.ConnectException: Connection refused\n\tat java.base"}
        livy.faults["GET /sessions/7/jobs"] = [(200, dead)]
        livy.faults["GET /sessions/7"] = [(200, {"id": 7, "state": "idle", "appId": APPLICATION})]
        livy.state, livy.log = ("killed", log(KILLED)) if knows else ("idle", log())
        with pytest.raises(Gone) as caught:
            channel.call("busy", "{}")
    reason = f"YARN: {KILLED}" if knows else f"it was {APPLICATION} on YARN"
    logs = f"`yarn logs -applicationId {APPLICATION}` has its logs"
    assert str(caught.value).endswith(f" has ended ({reason}; {logs}): begin a new session")
