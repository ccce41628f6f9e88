"""What --release and %ddl release do to a Livy session: executors go and come, a session is followed by another."""

import re
import time

import pytest
from livy.client import Client
from support import sparkmagic_kernels, trainings
from support.until import until

pytestmark = [pytest.mark.spark, pytest.mark.livy, pytest.mark.slow, pytest.mark.timeout(600)]

LONG = 300


@pytest.fixture
def kernel(livy_server, tmp_path):
    environment = {**sparkmagic_kernels.configuration(tmp_path, livy_server.url), "JUPYTER_DATA_DIR": str(tmp_path)}
    kernel = sparkmagic_kernels.start(sparkmagic_kernels.IPYTHON_KERNEL, environment)
    try:
        run(kernel, "%load_ext ddl_magics\n%load_ext sparkmagic.magics")
        run(kernel, f"%ddl use livy {livy_server.url}", timeout=LONG)
        yield kernel
    finally:
        kernel.close()


def run(kernel, code, **how):
    answer = kernel.run(code, **how)
    assert answer.error == "", answer.traceback
    return answer.text


def session(kernel):
    return int(re.search(r"Livy session (\d+) at", run(kernel, "%ddl check")).group(1))


def notice(kernel, name):
    return kernel.value(f"[e['message'] for e in {name}.events if e['kind'] == 'notice'][-1]")


def test_a_livy_session_gives_back_what_release_says(kernel, livy_server):
    first = session(kernel)
    run(kernel, trainings.cell("--name one --seed 1 --wait --release executors", epochs=1), timeout=LONG)
    ended = time.time()
    assert notice(kernel, "one").startswith("2 executors given back")
    until(lambda: "0 executors, 2 given back" in run(kernel, "%ddl check"), 60)
    print(f"executors gone {time.time() - ended:.1f} s after the cell")

    assert "asked for 2 executors" in run(kernel, "%ddl acquire")
    until(lambda: "2 slots ready" in run(kernel, "%ddl check"), 60)
    assert "2 executors given back" in run(kernel, "%ddl release")

    run(kernel, trainings.cell("--name two --seed 1 --wait --release session", epochs=1), timeout=LONG)
    ended = time.time()
    assert notice(kernel, "two").endswith("has ended; the next run starts a new one")
    client = Client(livy_server.url)
    until(lambda: first not in [each["id"] for each in client.get("/sessions").json["sessions"]], 60)
    print(f"session gone {time.time() - ended:.1f} s after the cell")
    assert "a new Livy session has not started: the next run starts it" in run(kernel, "%ddl check")

    run(kernel, trainings.cell("--name three --seed 1 --wait", epochs=1), timeout=LONG)
    assert kernel.value("three.history == two.history") is True and session(kernel) != first
