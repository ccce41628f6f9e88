"""What YARN says of an application: why its executors do not come, and why it has ended.

`view` and `why_ended` ask YARN from the driver; `shortage` and `short` are pure.
"""

from __future__ import annotations

import contextlib
import re
from typing import Any, Iterator, NamedTuple, Sequence

from ..wording import counted
from . import slots
from .pyspark_types import SparkConf, SparkContext
from .settings import conf_of

#: How long a ResourceManager that does not answer is tried, in ms.
CONNECT_MS = 5000

#: Spark's defaults: of spark.executor.memory, and the least and the share of it of memoryOverhead.
MEMORY, OVERHEAD_MIB, OVERHEAD_FACTOR = "1g", 384, 0.1
_SHUFFLE = "spark.shuffle.service.enabled"

#: The states of an application that is over.
ENDED = ("FINISHED", "FAILED", "KILLED")
MAX_CHARACTERS = 300
_DATE = re.compile(r"\[[A-Z][a-z]{2} [^\]]* \d{4}\] *")
#: Details behind YARN's reason for waiting and for a failure.
_DETAILS = re.compile(r"  Last Node|  ?Details :|For more detailed output")


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
    """MiB that a queue uses, that are its own, and that it may use while other queues leave them."""

    name: str
    used: int
    capacity: int
    maximum: int


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


def why_ended(sc: SparkContext) -> str | None:
    """In YARN's words, why the application has ended, and where its logs are; None while it runs, and if YARN does not
    answer.
    """
    # Py4J's kinds: the driver may not ask, on clusters with Kerberos
    with contextlib.suppress(Exception), _client(sc) as (_, report):
        if str(report.getYarnApplicationState().toString()) in ENDED:
            return end_words(str(report.getDiagnostics()), sc.applicationId)
    return None


def end_words(diagnostics: str, application: str) -> str:
    """Why an application has ended, in one line. diagnostics: what YARN says of that, if anything."""
    said = short(diagnostics)
    return "%s; %s has its logs" % ("YARN: " + said if said else "it was %s on YARN" % application, logs(application))


def logs(application: str) -> str:
    """The command that shows what the containers of an application have written, in Markdown."""
    return "`yarn logs -applicationId %s`" % application


def short(words: str) -> str:
    """Words of YARN on an application, in one line, without dates and details."""
    return _DATE.sub("", _DETAILS.split(" ".join(map(str.strip, words.splitlines())))[0]).strip(" .")[:MAX_CHARACTERS]


def shortage(size: Container, nodes: Sequence[Node], queue: Queue, application: str, shuffle_service: bool) -> str:
    """Why YARN gives no container of this size. shuffle_service: whether Spark wants one in each NodeManager."""
    mebibytes = size.java + size.overhead
    executor_words = "an executor of %s and %s" % (_size(mebibytes), counted(size.cores, "core"))
    where = "queue %s at %.0f %% of its capacity" % (queue.name, 100.0 * queue.used / max(1, queue.capacity))
    if queue.maximum > queue.capacity:
        where += ", of %s at most" % _size(queue.maximum)
    if not nodes:
        return "YARN has no running NodeManager"
    if not any(node.free >= mebibytes and node.free_cores >= size.cores for node in nodes):
        freest = max(nodes, key=lambda node: node.free)
        room = (_size(freest.free), _size(freest.total), counted(freest.free_cores, "core"))
        has = "the freest of its nodes has %s of %s and %s left" % room
        advice = "wait until other applications end, or ask for less in spark.executor.memory and memoryOverhead"
        return "YARN has no room for %s (%s, %s): %s" % (executor_words, has, where, advice)
    advice = "wait, or choose another with spark.yarn.queue"
    if queue.used + mebibytes > queue.maximum:
        return "YARN has room for %s, but not in this queue (%s): %s" % (executor_words, where, advice)
    if queue.used + mebibytes > queue.capacity:
        limits = "gets only what other queues leave, and each user what its user-limit-factor allows"
        return "YARN has room for %s, but beyond its capacity this queue (%s) %s: %s" % (
            executor_words,
            where,
            limits,
            advice,
        )
    log = "%s says why" % logs(application)
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
    with _client(sc) as (client, report):
        state = sc._jvm.org.apache.hadoop.yarn.api.records.NodeState
        running = sc._gateway.new_array(state, 1)
        running[0] = state.RUNNING
        nodes = [_node(node) for node in client.getNodeReports(running)]
        queue = _queue(client.getQueueInfo(report.getQueue()), sum(node.total for node in nodes))
        return nodes, queue, int(report.getApplicationResourceUsageReport().getNumUsedContainers())


@contextlib.contextmanager
def _client(sc: SparkContext) -> Iterator[tuple[Any, Any]]:
    """A connection to the ResourceManager, and its report on the application."""
    yarn = sc._jvm.org.apache.hadoop.yarn
    conf = yarn.conf.YarnConfiguration(sc._jsc.hadoopConfiguration())
    conf.setInt("yarn.resourcemanager.connect.max-wait.ms", CONNECT_MS)
    client = yarn.client.api.YarnClient.createYarnClient()
    client.init(conf)
    client.start()
    try:
        yield client, client.getApplicationReport(yarn.api.records.ApplicationId.fromString(sc.applicationId))
    finally:
        client.stop()


def _queue(info: Any, total: int) -> Queue:
    """total: the cluster's MiB. Only the CapacityScheduler says what a queue may use at most."""
    used, limits = int(info.getQueueStatistics().getAllocatedMemoryMB()), info.getQueueConfigurations()
    of_all = limits.get("") if limits else None  # of nodes without a label
    share, most = (
        (of_all.getAbsoluteCapacity(), of_all.getAbsoluteMaxCapacity()) if of_all else (info.getCapacity(), 1.0)
    )
    return Queue(str(info.getQueueName()), used, int(share * total), int(most * total))


def _node(report: Any) -> Node:
    total, used = report.getCapability(), report.getUsed()
    memory, cores = (0, 0) if used is None else (used.getMemorySize(), used.getVirtualCores())
    return Node(int(total.getMemorySize() - memory), int(total.getVirtualCores() - cores), int(total.getMemorySize()))


def _size(mebibytes: int) -> str:
    return "%.1f GB" % (mebibytes / 1024)
