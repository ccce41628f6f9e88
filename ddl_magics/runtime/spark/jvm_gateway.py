"""A SparkContext over py4j connections of its own, where pyspark would share them with the cells of the session.

Under Livy, Python threads are not pinned to JVM threads (PYSPARK_PIN_THREAD=false): each call takes any idle
connection, and with it a JVM thread that still has the job group of its last user. Our Spark jobs would run in the
group of the user's statement and be cancelled with it, and the statement's jobs would lose their group. A context over
a gateway of its own shares nothing with them but the JVM.
"""

from __future__ import annotations

import contextlib
import uuid
import warnings
from typing import Any, Iterator, Sequence

from .pyspark_types import DataFrame, Rdd, SparkConf, SparkContext

#: What a job group consists of.
_GROUP = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")


def separate_context(sc: SparkContext) -> SparkContext:
    """The SparkContext `sc` over connections of a new gateway; `sc` itself where threads are pinned."""
    import pyspark
    from py4j.java_gateway import JavaGateway

    if has_pinned_threads(sc):
        return sc

    class SeparateContext(pyspark.SparkContext):
        def __init__(self) -> None:
            # Python's state of the context is shared; calls to the JVM go through the new gateway.
            gateway = JavaGateway(gateway_parameters=sc._gateway.gateway_parameters)
            self.__dict__.update(sc.__dict__, _gateway=gateway, _jvm=gateway.jvm)
            self._jsc = gateway.jvm.org.apache.spark.api.java.JavaSparkContext(sc._jsc.sc())
            self._conf = pyspark.SparkConf(_jconf=self._jsc.sc().conf())

        def getConf(self) -> SparkConf:
            return self._conf  # to be read; pyspark's copy is made over the session's connections

    return SeparateContext()


def has_pinned_threads(sc: SparkContext) -> bool:
    """Whether each Python thread has a JVM thread of its own: yes in a notebook, no under Livy."""
    from py4j.clientserver import ClientServer

    return isinstance(sc._gateway, ClientServer)


def collect_until_interrupted(rdd: Rdd, description: str) -> Any:
    """`rdd.collect()` as a Spark job that an interrupt of the kernel cancels."""
    with cancelled_by_interrupt(rdd.context, description):
        return rdd.collect()


@contextlib.contextmanager
def cancelled_by_interrupt(sc: SparkContext, description: str) -> Iterator[None]:
    """An interrupt of the kernel cancels the Spark jobs that this thread starts meanwhile.

    The jobs of a Livy statement stay in the statement's group, which Livy cancels.
    """
    if not has_pinned_threads(sc):
        yield
        return
    group, before = uuid.uuid4().hex, [sc.getLocalProperty(name) for name in _GROUP]
    sc.setJobGroup(group, description)
    try:
        yield
    except KeyboardInterrupt:
        sc.cancelJobGroup(group)
        raise
    finally:
        for name, value in zip(_GROUP, before):
            sc.setLocalProperty(name, value)


def collect(rdd: Rdd, group: str, description: str) -> Any:
    """`rdd.collect()` as a Spark job of the group."""
    # The method that replaces this one needs pinned threads.
    warnings.filterwarnings("ignore", "Deprecated in 3.1, Use pyspark.InheritableThread", FutureWarning)
    return rdd.collectWithJobGroup(group, description)


def strings(jvm: Any, texts: Sequence[str]) -> Any:
    """The String[] of one or more texts, made by one call of the JVM; py4j's own conversion makes one for each text."""
    joined = "".join(texts)
    separator = next(character for character in map(chr, range(0xFFFF, 0xE000, -1)) if character not in joined)
    return jvm.java.util.regex.Pattern.compile(separator).split(separator.join(texts), -1)


def dataframe_rdd(frame: DataFrame, sc: SparkContext, group: str) -> Rdd:
    """The rows of a Spark DataFrame as an RDD of the context `sc`, from `separate_context`.

    With adaptive execution Spark runs all stages before the last shuffle to answer this: as jobs of `group`. No other
    thread may use `sc` meanwhile.
    """
    sc.setJobGroup(group, "rows of --data")
    if sc._gateway is sc.__class__._gateway:
        return frame.rdd
    from pyspark import RDD, serializers

    # The DataFrame's own methods use the session's gateway: this one calls the JVM's method by reflection.
    kind = sc._jvm.java.lang.Class.forName("org.apache.spark.sql.Dataset")
    method = kind.getMethod("javaToPython", sc._gateway.new_array(sc._jvm.java.lang.Class, 0))
    rows = method.invoke(frame._jdf, sc._gateway.new_array(sc._jvm.java.lang.Object, 0))
    pickled = getattr(serializers, "CPickleSerializer", None) or serializers.PickleSerializer
    batched: Any = serializers.BatchedSerializer  # has no types
    return RDD(rows, sc, batched(pickled()))
