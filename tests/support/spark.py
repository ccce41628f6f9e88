"""The Spark of the tests: `local-cluster[n,1,1024]`, whose executors are processes as on a real cluster."""

import functools
import os
import sys
import tempfile
from pathlib import Path

import pytest

from support import starts
from support.paths import ROOT

MEMORY_MIB = 1024
#: Spark's source for Kafka.
KAFKA_JARS = ROOT / "build" / "kafka" / "spark"


def prepare_environment():
    """Java and the executors' Python, before the first JVM starts: those that a kernel's own Spark has."""
    os.environ.setdefault("JAVA_HOME", str(starts.java_home()))
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable


@functools.cache
def _home():
    """Spark as it is installed, in a folder of this process: executors work in it, in folders named by the second.

    Two sessions of tests at once would meet there.
    """
    import pyspark

    folder = tempfile.TemporaryDirectory(prefix="tests-spark-")
    for entry in Path(pyspark.__file__).parent.iterdir():
        if entry.name != "work":
            (Path(folder.name) / entry.name).symlink_to(entry)
    return folder


def start(builder):
    """The builder's session; its JVM has a Spark home of this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_HOME", _home().name)
        return builder.getOrCreate()


def session(executors, cores=1, **settings):
    """The SparkSession of a cluster with so many executors. settings: of Spark, instead of these or besides them."""
    prepare_environment()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(f"local-cluster[{executors},{cores},{MEMORY_MIB}]").appName(
        "ddl_magics tests"
    )
    defaults = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.executor.extraJavaOptions": starts.JAVA,
        "spark.sql.shuffle.partitions": "4",
        # The first barrier job waits this long for the slots to be counted; 15 s is Spark's own.
        "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",
        "spark.decommission.enabled": "true",
    }
    for name, value in {**defaults, **settings}.items():
        builder = builder.config(name, value)
    started = start(builder)
    started.sparkContext.setLogLevel("ERROR")
    return started


def on_hosts(executors, address, java_home, folder, **settings):
    """The same with executors on hosts (chaos/hosts.py). address: the driver's; folder: for Spark's files."""
    os.environ["SPARK_LOCAL_IP"] = os.environ["SPARK_LOCAL_HOSTNAME"] = address
    of_hosts = {
        "spark.driver.host": address,
        "spark.driver.bindAddress": address,
        "spark.executorEnv.JAVA_HOME": java_home,
        "spark.local.dir": folder,
    }
    return session(executors, **of_hosts, **settings)


def cached(frame):
    """The DataFrame in the executors' memory: rows of Python would take a second Python worker, which loads TensorFlow
    in turn with the first."""
    frame.cache().count()
    return frame


class Clusters:
    """Holds one Spark cluster at a time: a process has one SparkContext, so asking for another size changes it."""

    def __init__(self):
        self._workers = 0
        self._session = None
        self._used = False

    def get(self, workers, python=sys.executable, fresh=False):
        """The SparkSession of a cluster with `workers` executors of one core each, whose tasks run in `python`.

        That has to be of the driver's minor version, and needs no pyspark: Spark brings it. With `fresh`, no test has
        had the cluster before: each executor has no idle Python workers.
        """
        gone = self._session is not None and self._session.sparkContext._jsc is None
        if self._session is not None and (self._workers != workers or gone or (fresh and self._used)):
            self.stop()
        if self._session is None:
            self._session, self._workers = self._start(workers), workers
        self._used = True
        self._session.sparkContext.pythonExec = str(python)  # what PYSPARK_PYTHON was when the context began
        return self._session

    def stop(self):
        if self._session is not None:
            self._session.stop()
        self._session, self._used = None, False

    @staticmethod
    def _start(workers):
        jars = sorted(map(str, KAFKA_JARS.glob("*.jar")))
        return session(workers, **({"spark.jars": ",".join(jars)} if jars else {}))  # `make kafka-env` gets them
