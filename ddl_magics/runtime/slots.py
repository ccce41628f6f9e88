"""How many ranks a Spark application can run at once, now and at most. Reads Spark's settings, changes nothing."""

import re

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


def ready(sc):
    """Slots of the executors that are there now."""
    each = executor_cores(sc) // task_cores(sc.getConf())
    if _LOCAL.match(sc.master) or sc.master == "local":
        return each
    return _executors(sc) * each


def total(sc):
    """Slots that the application will have when all its executors have come, as far as its settings tell."""
    conf = sc.getConf()
    each = executor_cores(sc) // task_cores(conf)
    local_cluster = _LOCAL_CLUSTER.match(sc.master)
    if local_cluster:
        return int(local_cluster.group(1)) * each
    if sc.master.startswith("local"):
        return each
    promised = int(conf.get("spark.executor.instances", "0")) * each
    if not promised and conf.get("spark.cores.max"):
        promised = int(conf.get("spark.cores.max")) // task_cores(conf)
    return max(promised, ready(sc))


def dynamic_allocation(sc):
    return sc.getConf().get("spark.dynamicAllocation.enabled", "false").lower() == "true"
