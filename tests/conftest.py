"""Fixtures that several test files share."""

import comparison
import processes
import pytest
import spark
from livy.fixtures import livy_faults, livy_gateway, livy_server, mark_livy_tests  # noqa: F401  (fixtures)

processes.start_session()


def pytest_collection_modifyitems(items):
    """What uses a Spark cluster is marked so, that `make test-quick` can leave it out."""
    for item in items:
        if "spark_cluster" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
    mark_livy_tests(items)


@pytest.fixture(scope="session", autouse=True)
def jupyter_data_dir(tmp_path_factory):
    """Runs are stored in a folder of the tests, never in the user's; kernels that tests start inherit it."""
    folder = tmp_path_factory.mktemp("jupyter-data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_DATA_DIR", str(folder))
        yield folder


@pytest.fixture(scope="session")
def spark_cluster():
    """`spark_cluster(n)`: the SparkSession of a cluster of n executors, kept until another size is asked for.

    `spark_cluster(n, python)`: with another Python than this one for what runs on the executors.

    Call it at the start of each test, and do not keep the session between tests: another size replaces it.
    """
    clusters = spark.Clusters()
    yield clusters.get
    clusters.stop()


@pytest.fixture(scope="session")
def reference(tmp_path_factory):
    """`reference(names, dtype)`: what plain Keras learns from the cases of tests/equality."""
    return comparison.Reference(tmp_path_factory.mktemp("reference"))


@pytest.fixture(scope="session")
def digits_reference(tmp_path_factory):
    """`digits_reference(seeds, "float32")`: accuracies of plain Keras on held-out digits, by seed."""
    return comparison.Reference(tmp_path_factory.mktemp("digits"), comparison.DIGITS)


@pytest.fixture(scope="session")
def our_processes():
    """`our_processes()`: pid -> command line of the runtime's processes that this test session has running."""
    return processes.our_processes
