"""How many ranks a Spark application can run at once, now and at most. Reads Spark's settings, changes nothing."""

from __future__ import annotations

import re

from . import gpus
from .pyspark_types import SparkConf, SparkContext
from .settings import conf_of

#: The masters of an application on one machine: local[4], local[*], and local-cluster[2,1,1024] with its own executors.
_LOCAL = re.compile(r"local\[(\d+|\*)(?:,\s*\d+)?\]$")
#: The masters whose executors are containers, and how many these start where the settings name no number.
OF_CONTAINERS, INSTANCES = ("yarn", "k8s"), 2
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*\d+\s*\]$")


def task_cores(conf: SparkConf) -> int:
    """Cores of one task."""
    return int(conf.get("spark.task.cpus", "1"))


def executor_cores(sc: SparkContext) -> int:
    """Cores of one executor."""
    local_cluster = _LOCAL_CLUSTER.match(sc.master)
    if local_cluster:
        return int(local_cluster.group(2))
    if sc.master.startswith("local"):
        return int(sc.defaultParallelism)
    return int(conf_of(sc).get("spark.executor.cores", "1"))


def has_executors(sc: SparkContext) -> bool:
    """Whether executors are processes of their own, that can come and go."""
    return not (_LOCAL.match(sc.master) or sc.master == "local")


def executors(sc: SparkContext) -> list[str]:
    """The ids of those that have registered and take tasks; none where Spark has no executors of their own.

    Not those of `getExecutorMemoryStatus`: a block manager may stay there for minutes after its executor has ended. Nor
    those that Spark has asked its cluster manager to end: one whose host does not answer stays listed for two minutes.
    """
    backend = sc._jsc.sc().schedulerBackend()
    return [executor for executor in _listed(sc) if backend.isExecutorActive(executor)]


def lost(sc: SparkContext) -> list[str]:
    """The ids of executors that have ended, of which Spark has not learned why.

    On YARN it asks, and lists them until it is told: for ten minutes where their host is gone. None is started in their
    place before that.
    """
    scheduler = sc._jsc.sc().taskScheduler()
    return [executor for executor in _listed(sc) if not scheduler.isExecutorAlive(executor)]


def is_decommissioned(sc: SparkContext, executor: str) -> bool:
    """Whether an executor gets no more tasks, and ends when those that run there have ended, or sooner."""
    return bool(sc._jsc.sc().taskScheduler().getExecutorDecommissionState(executor).isDefined())


def on_host_of(sc: SparkContext, executor: str) -> list[str]:
    """The ids of the executors on the same host as this one, itself among them."""
    listed = sc._jsc.sc().statusStore().executorList(True)
    summaries = [listed.apply(index) for index in range(listed.size())]
    hosts = {str(summary.id()): str(summary.hostPort()).rpartition(":")[0] for summary in summaries}
    return [one for one in executors(sc) if hosts.get(one) == hosts.get(executor)]


def _listed(sc: SparkContext) -> list[str]:
    ids = sc._jsc.sc().getExecutorIds()
    return [str(ids.apply(index)) for index in range(ids.size())]


def registered(sc: SparkContext) -> int:
    """Executors that have registered and take tasks."""
    return len(executors(sc))


def registered_slots(sc: SparkContext, gpus_each: int | None = None) -> int:
    """Slots of the executors that have registered. gpus_each: GPUs that a slot must have, as --gpus says."""
    per_executor = _slots_per_executor(sc, gpus_each)
    return registered(sc) * per_executor if has_executors(sc) else per_executor


def total(sc: SparkContext, gpus_each: int | None = None, released: int = 0) -> int:
    """Slots that the application will have once all its executors have registered, as far as its settings tell.

    Under dynamic allocation, the most that it can have. released: executors that it has given back, and may ask for.
    """
    conf = conf_of(sc)
    per_executor = _slots_per_executor(sc, gpus_each)
    hosts = _local_cluster_hosts(sc)
    if dynamic_allocation(sc) and has_executors(sc):
        max_executors = max(most_executors(conf), registered(sc))
        return per_executor * (max_executors if hosts is None else min(max_executors, hosts))
    if hosts is not None:
        return hosts * per_executor
    if sc.master.startswith("local"):
        return per_executor
    promised = executors_promised(sc) * per_executor
    if not promised and conf.get("spark.cores.max"):
        promised = int(conf.get("spark.cores.max")) // task_cores(conf)
    return max(promised, registered_slots(sc, gpus_each) + released * per_executor)


def executors_wanted(sc: SparkContext) -> int:
    """Executors that the application has or, as far as its settings tell, waits for."""
    return max(registered(sc), total(sc) // max(1, _slots_per_executor(sc, None)))


def executors_promised(sc: SparkContext) -> int:
    """Executors that the settings name, or Spark starts without; 0 where the application gets what there is."""
    unnamed = INSTANCES if sc.master.startswith(OF_CONTAINERS) else 0
    return _local_cluster_hosts(sc) or int(conf_of(sc).get("spark.executor.instances", str(unnamed)))


def _local_cluster_hosts(sc: SparkContext) -> int | None:
    local_cluster = _LOCAL_CLUSTER.match(sc.master)
    return int(local_cluster.group(1)) if local_cluster else None


def most_executors(conf: SparkConf) -> int:
    """Executors that dynamic allocation starts at most, as the settings say; without a maximum, those at its begin."""
    maximum = conf.get("spark.dynamicAllocation.maxExecutors")
    if maximum is not None:
        return int(maximum)
    names = ("dynamicAllocation.initialExecutors", "dynamicAllocation.minExecutors", "executor.instances")
    return max(1, *(int(conf.get("spark." + name, "0")) for name in names))


def _slots_per_executor(sc: SparkContext, gpus_each: int | None) -> int:
    by_cores, by_gpus = executor_cores(sc) // task_cores(conf_of(sc)), gpus.tasks_per_executor(sc, gpus_each)
    return by_cores if by_gpus is None else min(by_cores, by_gpus)


def dynamic_allocation(sc: SparkContext) -> bool:
    """Whether Spark adds and removes executors by itself."""
    return bool(conf_of(sc).get("spark.dynamicAllocation.enabled", "false").lower() == "true")
