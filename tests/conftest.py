"""Fixtures that several test files share."""

import gc
import os
import signal
import sys

import pytest
from livy.fixtures import livy_faults, livy_gateway, livy_server, mark_livy_tests  # noqa: F401  (fixtures)
from support import comparison, executors, flaky, launch, parallel, paths, processes, spark, starts, times

processes.start_session()
starts.make_cheap()
# A shell ignores interrupts for what it starts in the background, and kernels and ranks would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser):
    flaky.add_option(parser)


def pytest_configure(config):
    flaky.configure(config)
    if not hasattr(config, "workerinput"):  # of pytest -n, whose own process is told what each test took
        config.pluginmanager.register(times.Times())


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Collecting tests makes next to no garbage, and what it makes stays: none is looked for in it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config, items):
    """What uses a Spark cluster is marked so, that `make test-quick` can leave it out; and a size starts once."""
    for item in items:
        if "spark_cluster" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
        if "rank_pool" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.ranks)
    mark_livy_tests(items)
    items.sort(key=_cluster)
    if hasattr(config, "workerinput"):  # of pytest -n
        items.sort(key=parallel.priority)


def _cluster(item):
    """(how many executors the test's Spark cluster has, whether somebody may have had it before); without one first."""
    if "spark_cluster" not in getattr(item, "fixturenames", ()):
        return 0, False
    executors, parameters = item.get_closest_marker("executors"), getattr(item, "callspec", None)
    number = executors.args[0] if executors else parameters and parameters.params.get("workers")
    return number or 2, item.get_closest_marker("fresh_cluster") is None


def pytest_xdist_make_scheduler(config, log):
    return parallel.Rooms(config, log)


@pytest.fixture(scope="session", autouse=True)
def jupyter_data_dir(tmp_path_factory):
    """Runs are stored in a folder of the tests, never in the user's; kernels that tests start inherit it."""
    folder = tmp_path_factory.mktemp("jupyter-data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_DATA_DIR", str(folder))
        yield folder


@pytest.fixture
def data_dir(tmp_path_factory, monkeypatch):
    """A test that has this fixture stores its runs in this folder of its own, which is empty at first."""
    folder = tmp_path_factory.mktemp("data")
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(folder))
    return folder


@pytest.fixture(autouse=True)
def no_run_is_left():
    yield
    launch.stop_all()


@pytest.fixture(autouse=True)
def floatx_is_kept():
    """A test that leaves Keras' floatx changed fails, and not those after it, whose runs would take it over."""
    yield
    backend = getattr(sys.modules.get("keras"), "backend", None)
    if hasattr(backend, "set_floatx"):
        floatx = backend.floatx()
        backend.set_floatx("float32")
        assert floatx == "float32", "the test leaves Keras' floatx changed"


@pytest.fixture(scope="session")
def spark_cluster():
    """`spark_cluster(n)`: the SparkSession of a cluster of n executors, kept until another size is asked for.

    `spark_cluster(n, python)`: with another Python than this one for what runs on the executors.

    Call it at the start of each test, and do not keep the session between tests: another size replaces it. A test of
    another size than 2 says so: by a parameter called `workers`, or @pytest.mark.executors(n).
    """
    clusters = spark.Clusters()
    yield clusters.get
    clusters.stop()


@pytest.fixture(scope="session")
def rank_pool(tmp_path_factory):
    """`rank_pool(n)`: a session whose runs have n workers without Spark, on processes that stay between tests.

    For what ranks learn, exchange and report. What Spark does in a run, --data among it, needs `spark_cluster`.
    """
    pool = executors.Executors(tmp_path_factory.mktemp("executors"))
    yield pool.get
    pool.stop()


@pytest.fixture(scope="session")
def session_folder(tmp_path_factory):
    """A folder that all processes of `pytest -n` have in common."""
    folder = tmp_path_factory.getbasetemp()
    return folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder


@pytest.fixture(scope="session")
def reference(session_folder):
    """`reference(names, dtype)`: what plain Keras learns from the cases of tests/equality."""
    return comparison.Reference(session_folder / "reference")


@pytest.fixture(scope="session")
def keras2_reference(session_folder):
    """The same of Keras 2."""
    return comparison.Reference(session_folder / "keras2-reference", python=paths.KERAS2_PYTHON)


@pytest.fixture(scope="session")
def digits_reference(session_folder):
    """`digits_reference(seeds, "float32")`: accuracies of plain Keras on held-out digits, by seed."""
    return comparison.Reference(session_folder / "digits-reference", comparison.DIGITS)


@pytest.fixture(scope="session")
def our_processes():
    """`our_processes()`: pid -> command line of the runtime's processes that this test session has running."""
    return processes.our_processes
