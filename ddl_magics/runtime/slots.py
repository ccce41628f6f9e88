"""How many ranks a Spark application can run at once, now and at most. Reads Spark's settings, changes nothing."""

import re

from . import gpus

#: What Spark names an application that runs inside one process: local[4], local[*], local-cluster[2,1,1024].
_LOCAL = re.compile(r"local\[(\d+|\*)(?:,\s*\d+)?\]$")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*\d+\s*\]$")


def task_cores(conf):
    return int(conf.get("spark.task.cpus", "1"))


def executor_cores(sc):
    """Cores of one executor."""
    master = sc.master
    local_cluster = _LOCAL_CLUSTER.match(master)
    if local_cluster:
        return int(local_cluster.group(2))
    if master.startswith("local"):
        return sc.defaultParallelism
    return int(sc.getConf().get("spark.executor.cores", "1"))


def _executors(sc):
    """Executors that have registered; the driver's own block manager is not one."""
    return max(0, sc._jsc.sc().getExecutorMemoryStatus().size() - 1)


def ready(sc, gpus_each=None):
    """Slots of the executors that are there now. gpus_each: GPUs that a slot must have, as --gpus says."""
    each = _of_executor(sc, gpus_each)
    if _LOCAL.match(sc.master) or sc.master == "local":
        return each
    return _executors(sc) * each


def total(sc, gpus_each=None):
    """Slots that the application will have when all its executors have come, as far as its settings tell."""
    conf = sc.getConf()
    each = _of_executor(sc, gpus_each)
    local_cluster = _LOCAL_CLUSTER.match(sc.master)
    if local_cluster:
        return int(local_cluster.group(1)) * each
    if sc.master.startswith("local"):
        return each
    promised = int(conf.get("spark.executor.instances", "0")) * each
    if not promised and conf.get("spark.cores.max"):
        promised = int(conf.get("spark.cores.max")) // task_cores(conf)
    return max(promised, ready(sc, gpus_each))


def _of_executor(sc, gpus_each):
    by_cores, by_gpus = executor_cores(sc) // task_cores(sc.getConf()), gpus.tasks(sc, gpus_each)
    return by_cores if by_gpus is None else min(by_cores, by_gpus)


def dynamic_allocation(sc):
    return sc.getConf().get("spark.dynamicAllocation.enabled", "false").lower() == "true"
