"""Partitions with preferred hosts."""

from __future__ import annotations

from typing import Sequence

from .pyspark_types import Rdd, SparkContext


def hosts(sc: SparkContext) -> list[str]:
    """The hosts of the executors that have registered, as Spark names them, sorted."""
    of_driver = sc._jsc.sc().env().blockManager().blockManagerId().hostPort()
    managers = set(sc._jsc.sc().getExecutorMemoryStatus().keySet().mkString("\n").split("\n"))
    return sorted({manager.rpartition(":")[0] for manager in (managers - {of_driver}) or managers})


def partitions(sc: SparkContext, preferred: Sequence[Sequence[str]]) -> Rdd:
    """An RDD with an empty partition for each list of hosts. Spark prefers these, if they are free within seconds.

    Where there is one host, none is preferred: Spark's older versions refuse a barrier stage that would wait for one.
    """
    if len({host for hosts in preferred for host in hosts}) < 2:
        return sc.parallelize([], len(preferred))
    from pyspark import RDD, serializers

    jvm = sc._jvm
    scala = jvm.org.apache.spark.api.python.PythonUtils.toSeq
    rows = jvm.java.util.ArrayList()
    for wanted in preferred:
        names = jvm.java.util.ArrayList()
        for host in wanted:
            names.add(host)
        rows.add(jvm.scala.Tuple2(bytearray(), scala(names)))
    of_bytes = sc.parallelize([], 1)._jrdd.classTag()
    java_rdd = sc._jsc.sc().makeRDD(scala(rows), of_bytes).toJavaRDD()
    return RDD(java_rdd, sc, serializers.NoOpSerializer()).mapPartitions(lambda _: iter(()))
