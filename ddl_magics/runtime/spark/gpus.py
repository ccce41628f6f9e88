"""--gpus: the GPUs that Spark manages in a session, how a stage requests them, and how a rank keeps to its own."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

from .pyspark_types import Rdd, SparkContext, TaskContext
from .settings import conf_of

#: For a session without GPUs: how to start one that has them, or do without.
ADVICE = (
    "start it with spark.executor.resource.gpu.amount, spark.task.resource.gpu.amount and a discovery script, or "
    "leave --gpus out: a worker then uses the GPUs that it finds on its host"
)


def per_executor(sc: SparkContext) -> int:
    """GPUs that Spark manages for each executor."""
    if sc.master.startswith("local") and not sc.master.startswith("local-cluster"):
        return 0  # there Spark manages nothing, whatever the settings say
    return int(conf_of(sc).get("spark.executor.resource.gpu.amount", "0"))


def per_task(sc: SparkContext) -> float:
    """GPUs that the session's own settings give a task: below 1 where tasks share one, 0 where it gets none."""
    return float(conf_of(sc).get("spark.task.resource.gpu.amount", "0")) if per_executor(sc) else 0.0


def tasks_per_executor(sc: SparkContext, gpus_per_worker: int | None) -> int | None:
    """Tasks of `gpus_per_worker` GPUs that an executor can run at once, or None where GPUs set no bound.

    gpus_per_worker: None for as many as the session's settings say.
    """
    share = gpus_per_worker or per_task(sc)
    if not share:
        return None
    return per_executor(sc) * int(1 / share) if share < 1 else per_executor(sc) // int(share)


def problem(sc: SparkContext, gpus_per_worker: int | None) -> str | None:
    """Why workers cannot have `gpus_per_worker` GPUs each, in a line; None where they can, or where none are wanted."""
    if not gpus_per_worker:
        return None
    available = per_executor(sc)
    if not available:
        return "--gpus %d: Spark manages no GPUs in this session (%s): %s" % (gpus_per_worker, sc.master, ADVICE)
    if gpus_per_worker > available:
        text = "--gpus %d asks for more than the %d that an executor has (spark.executor.resource.gpu.amount)"
        return text % (gpus_per_worker, available)
    try:
        request(sc.parallelize([0], 1), gpus_per_worker)
    except Exception:  # py4j's, of many kinds
        remedy = "start the session with spark.task.resource.gpu.amount=%d" % gpus_per_worker
        text = "--gpus %d: here a task gets %g, and this Spark (%s) changes that for no single stage: %s"
        return text % (gpus_per_worker, per_task(sc), sc.version, remedy)
    return None


def request(rdd: Rdd, gpus_per_worker: int | None) -> Rdd:
    """The RDD whose tasks get `gpus_per_worker` GPUs each; `rdd` itself where the session's settings say so already.

    Spark 3.4 and newer can request them for one stage. Raises what pyspark raises where it cannot, and ValueError under
    dynamic allocation.
    """
    sc = rdd.context
    if not gpus_per_worker or per_task(sc) == gpus_per_worker:
        return rdd
    if conf_of(sc).get("spark.dynamicAllocation.enabled", "false").lower() == "true":
        raise ValueError("Spark would start new executors for the stage")
    from pyspark.resource import ResourceProfileBuilder, TaskResourceRequests

    cores = int(conf_of(sc).get("spark.task.cpus", "1"))
    needs = TaskResourceRequests().cpus(cores).resource("gpu", gpus_per_worker)
    return rdd.withResources(ResourceProfileBuilder().require(needs).build)


def assigned(context: TaskContext) -> list[str] | None:
    """In a Spark task: the addresses of the GPUs that Spark assigned to it; None where Spark manages none."""
    resources = context.resources() if hasattr(context, "resources") else {}
    return list(resources["gpu"].addresses) if "gpu" in resources else None


def round_robin(
    host_gpus: Sequence[str], assigned_by_spark: Sequence[str] | None, peers: Mapping[str, Any]
) -> list[str] | None:
    """The one GPU of a rank, as a list, where several ranks on a host find the same GPUs; else None.

    host_gpus: addresses of those that the rank finds. assigned_by_spark: as `assigned` returns it; it has precedence.
    peers: the frame PEERS. Ranks take GPUs in turn: where there are more ranks than GPUs, some share one.
    """
    if assigned_by_spark is not None or peers["local_size"] == 1 or len(host_gpus) < 2:
        return None
    return [host_gpus[peers["local_rank"] % len(host_gpus)]]


def environment(addresses: Sequence[str] | None) -> dict[str, str]:
    """Variables that keep a process to these GPUs, numbered as nvidia-smi and NVML number them; {} for None."""
    if addresses is None:
        return {}
    return {"CUDA_VISIBLE_DEVICES": ",".join(addresses), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
