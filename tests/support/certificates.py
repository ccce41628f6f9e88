"""Certificates as a run has one, made by a JVM without Spark."""

import functools
import os
import unittest.mock
from types import SimpleNamespace

from ddl_magics.clusters.local_spark import java_environment
from ddl_magics.runtime.spark import certificates


@functools.lru_cache
def certificate(run="run-of-the-tests"):
    from pyspark.java_gateway import launch_gateway

    with unittest.mock.patch.dict(os.environ, java_environment()):
        gateway = launch_gateway()
    try:
        return certificates.make(SimpleNamespace(_jvm=gateway.jvm), run)
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()  # on which the JVM ends
        gateway.proc.wait()
