"""A real Livy that wants Kerberos tickets (SPNEGO), in a realm of Debian's KDC on this machine."""

import time

import pytest
from livy import realm, rig
from livy.faults import faults
from support import sparkmagic_kernels, trainings
from support.until import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

NO_TICKET = "there is no Kerberos ticket for localhost: run kinit in a terminal of this machine"
EXPIRED = "the Kerberos ticket for localhost has expired: run kinit in a terminal of this machine"
SERVICE = f"{realm.SERVICE}@{realm.REALM}"
#: A kernel, and what its config.json has beside the credentials.
IPYTHON = (sparkmagic_kernels.IPYTHON_KERNEL, {})
PYSPARK = (sparkmagic_kernels.PYSPARK_KERNEL, {"session_configs": {"proxyUser": "bob"}})


@pytest.fixture(scope="module")
def town(tmp_path_factory):
    with realm.realm(tmp_path_factory.mktemp("realm")) as town:
        yield town


@pytest.fixture(scope="module")
def livy_with_tickets(town, tmp_path_factory):
    """Users are whom their tickets name, and ann may act for others."""
    conf = {
        "livy.server.auth.type": "kerberos",
        "livy.server.auth.kerberos.principal": SERVICE,
        "livy.server.auth.kerberos.keytab": str(town.keytab),
        "livy.impersonation.enabled": "true",
        "livy.superusers": realm.USER,
    }
    server = rig.start(tmp_path_factory.mktemp("livy"), conf=conf, environment={"JDK_JAVA_OPTIONS": town.java})
    yield server
    rig.delete_sessions(server.url, town.ask)
    assert server.stop() == [], "had to be killed"


@pytest.fixture
def livy_door(livy_with_tickets):
    """Before it, what keeps Livy's cookie to itself: with it, one ticket would do for ten hours."""
    with faults(livy_with_tickets, without="set-cookie") as door:
        yield door.url.replace("127.0.0.1", "localhost")


@pytest.fixture
def kernel(request, town, livy_door, tmp_path, data_dir):
    town.kdestroy()
    environment = sparkmagic_kernels.configuration(tmp_path, livy_door, auth="Kerberos", **request.param[1])
    kernel = sparkmagic_kernels.start(request.param[0], {**environment, **town.environment})
    kernel.run("%load_ext ddl_magics")
    yield kernel
    kernel.close()


def trained(kernel, options, **how):
    answer = kernel.run(trainings.cell(options, **how), timeout=300)
    assert answer.error == "", answer.traceback
    return answer.text


@pytest.mark.parametrize("kernel", [IPYTHON], indirect=True)
def test_a_ticket_that_expires_in_a_run_is_told_and_the_run_goes_on(kernel, town, livy_door):
    use = f"%ddl use livy {livy_door}"
    said = kernel.run(use).text
    assert said == f"UsageError: no session could be created: {NO_TICKET}\n"
    town.kinit()
    assert "runs are executed on Livy session" in kernel.run(use, timeout=300).text
    checked = kernel.run("%ddl check").text
    assert "with kerberos credentials" in checked and "600 s after a crash" in checked
    trained(kernel, "--name first")
    seconds = 20
    town.kinit(seconds)
    begun = time.monotonic()
    trained(kernel, "--name long --no-wait", epochs=50, pause=1)
    notices = "[event['message'] for event in long.events if event['kind'] == 'notice']"
    until(lambda: EXPIRED in str(kernel.value(notices)), seconds + 20)
    assert time.monotonic() - begun > seconds - 2
    assert f"cannot be asked: {EXPIRED}" in kernel.run("%ddl check").text
    assert kernel.value("long.state") == "RUNNING"
    town.kinit()
    kernel.run("long.wait()", timeout=300)
    assert kernel.value("long.state, len(long.history['loss'])") == ("FINISHED", 50)
    said = kernel.value(notices)
    assert said[:2] == [f"{EXPIRED}. The run waits for that, and does not fail meanwhile", "the cluster answers again"]


@pytest.mark.parametrize("kernel", [PYSPARK], indirect=True)
def test_sparkmagics_kernel_and_its_proxy_user(kernel, town):
    said = kernel.run(trainings.cell("--name first")).text
    assert said == f"UsageError: {NO_TICKET}.\n"
    town.kinit()
    text = trained(kernel, "--name second")
    assert "0 │ trained by 0" in text and "FINISHED" in text
    assert "bob" in kernel.run("print(sc.sparkUser())").text
