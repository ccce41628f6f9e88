"""What YARN says of an application whose executors do not come: whether it has room, and whose queue is full.

`view` asks YARN from the driver; `shortage` is pure.
"""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple, Sequence

from ..wording import counted
from . import slots
from .pyspark_types import SparkConf, SparkContext
from .settings import conf_of

#: How long a ResourceManager that does not answer is tried, in ms.
CONNECT_MS = 5000

#: Spark's defaults: of spark.executor.memory, and the least and the share of it of memoryOverhead.
MEMORY, OVERHEAD_MIB, OVERHEAD_FACTOR = "1g", 384, 0.1
_SHUFFLE = "spark.shuffle.service.enabled"


class Container(NamedTuple):
    """What YARN gives an executor: MiB for Java and beside it, and cores."""

    java: int
    overhead: int
    cores: int


class Node(NamedTuple):
    """MiB and cores that a node has free, and MiB that it has."""

    free: int
    free_cores: int
    total: int


class Queue(NamedTuple):
    """Its name, and how much of its capacity is used and of the cluster's it may use at most, in percent."""

    name: str
    used: float
    maximum: float


def container(conf: SparkConf, jvm: Any) -> Container:
    """The size of an executor, as the settings ask for it."""

    def mebibytes(value: str) -> int:
        return int(jvm.org.apache.spark.network.util.JavaUtils.byteStringAsMb(value))

    java = mebibytes(conf.get("spark.executor.memory", MEMORY))
    factor = float(conf.get("spark.executor.memoryOverheadFactor", str(OVERHEAD_FACTOR)))
    overhead = conf.get("spark.executor.memoryOverhead")
    overhead_mib = max(OVERHEAD_MIB, int(factor * java)) if overhead is None else mebibytes(overhead)
    overhead_mib += mebibytes(conf.get("spark.executor.pyspark.memory", "0"))
    return Container(java, overhead_mib, int(conf.get("spark.executor.cores", "1")))


def view(sc: SparkContext) -> str | None:
    """Why executors do not come, in one line that ends in what to do; None without an answer of YARN's."""
    if sc.master != "yarn":
        return None
    with contextlib.suppress(Exception):  # Py4J's kinds: the driver may not ask, on clusters with Kerberos
        size = container(conf_of(sc), sc._jvm)
        nodes, queue, containers = _cluster_state(sc)
        starting = containers - 1 - slots.registered(sc)  # one is the ApplicationMaster's
        if starting > 0:
            return "YARN has given %s whose executors have not registered yet" % counted(starting, "container")
        return shortage(size, nodes, queue, sc.applicationId, conf_of(sc).get(_SHUFFLE, "false").lower() == "true")
    return None


def shortage(size: Container, nodes: Sequence[Node], queue: Queue, application: str, shuffle_service: bool) -> str:
    """Why YARN gives no container of this size. shuffle_service: whether Spark wants one in each NodeManager."""
    mebibytes = size.java + size.overhead
    executor_words = "an executor of %s and %s" % (_size(mebibytes), counted(size.cores, "core"))
    where = "queue %s at %.0f %% of its capacity" % (queue.name, queue.used)
    if not nodes:
        return "YARN has no running NodeManager"
    if not any(node.free >= mebibytes and node.free_cores >= size.cores for node in nodes):
        freest = max(nodes, key=lambda node: node.free)
        room = (_size(freest.free), _size(freest.total), counted(freest.free_cores, "core"))
        has = "the freest of its nodes has %s of %s and %s left" % room
        advice = "wait until other applications end, or ask for less in spark.executor.memory and memoryOverhead"
        return "YARN has no room for %s (%s, %s): %s" % (executor_words, has, where, advice)
    if queue.used >= min(100.0, queue.maximum):
        advice = "wait, or choose another with spark.yarn.queue"
        return "YARN has room for %s, but not in this queue (%s): %s" % (executor_words, where, advice)
    log = "`yarn logs -applicationId %s` says why" % application
    if shuffle_service:
        advice = (
            "set %s=false (and spark.dynamicAllocation.shuffleTracking.enabled=true), or install that service"
            % _SHUFFLE
        )
        return "YARN has room (%s), and %s wants Spark's shuffle service in each NodeManager: %s; %s" % (
            where,
            _SHUFFLE,
            advice,
            log,
        )
    return "YARN has room for %s (%s), so they may end as they start: %s" % (executor_words, where, log)


def _cluster_state(sc: SparkContext) -> tuple[list[Node], Queue, int]:
    """The nodes, the application's queue, and how many containers it has."""
    yarn = sc._jvm.org.apache.hadoop.yarn
    conf = yarn.conf.YarnConfiguration(sc._jsc.hadoopConfiguration())
    conf.setInt("yarn.resourcemanager.connect.max-wait.ms", CONNECT_MS)
    client = yarn.client.api.YarnClient.createYarnClient()
    client.init(conf)
    client.start()
    try:
        report = client.getApplicationReport(yarn.api.records.ApplicationId.fromString(sc.applicationId))
        queue = client.getQueueInfo(report.getQueue())
        running = sc._gateway.new_array(yarn.api.records.NodeState, 1)
        running[0] = yarn.api.records.NodeState.RUNNING
        nodes = [_node(node) for node in client.getNodeReports(running)]
        percents = 100.0 * queue.getCurrentCapacity(), 100.0 * queue.getMaximumCapacity()
        containers = report.getApplicationResourceUsageReport().getNumUsedContainers()
        return nodes, Queue(str(report.getQueue()), *percents), int(containers)
    finally:
        client.stop()


def _node(report: Any) -> Node:
    total, used = report.getCapability(), report.getUsed()
    memory, cores = (0, 0) if used is None else (used.getMemorySize(), used.getVirtualCores())
    return Node(int(total.getMemorySize() - memory), int(total.getVirtualCores() - cores), int(total.getMemorySize()))


def _size(mebibytes: int) -> str:
    return "%.1f GB" % (mebibytes / 1024)
