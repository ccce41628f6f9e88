"""--gpus: GPUs as Spark shares them out: what a session has, how a stage asks for them, how a rank keeps to its own."""

#: Sessions without them, and what makes one that has them.
HOW = (
    "start it with spark.executor.resource.gpu.amount, spark.task.resource.gpu.amount and a discovery script, or "
    "leave --gpus out: a worker then uses the GPUs that it finds on its host"
)


def of_executor(sc):
    """GPUs that Spark manages for each executor."""
    if sc.master.startswith("local") and not sc.master.startswith("local-cluster"):
        return 0  # there Spark manages nothing, whatever the settings say
    return int(sc.getConf().get("spark.executor.resource.gpu.amount", "0"))


def of_task(sc):
    """GPUs that the session's own settings give a task: below 1 where tasks share one, 0 where none is given."""
    return float(sc.getConf().get("spark.task.resource.gpu.amount", "0")) if of_executor(sc) else 0.0


def tasks(sc, wanted):
    """Tasks of `wanted` GPUs (None: as the session's settings say) that an executor can run at once; None: any."""
    share = wanted or of_task(sc)
    if not share:
        return None
    return of_executor(sc) * int(1 / share) if share < 1 else of_executor(sc) // int(share)


def problem(sc, wanted):
    """Why workers cannot have `wanted` GPUs each, in a line; None where they can, or where none are asked for."""
    if not wanted:
        return None
    there = of_executor(sc)
    if not there:
        return "--gpus %d: Spark manages no GPUs in this session (%s): %s" % (wanted, sc.master, HOW)
    if wanted > there:
        return "--gpus %d asks for more than the %d that an executor has (spark.executor.resource.gpu.amount)" % (
            wanted,
            there,
        )
    try:
        request(sc.parallelize([0], 1), wanted)
    except Exception:  # py4j's, of many kinds
        return "--gpus %d: here a task gets %g, and this Spark (%s) changes that for no single stage: %s" % (
            wanted,
            of_task(sc),
            sc.version,
            "start the session with spark.task.resource.gpu.amount=%d" % wanted,
        )
    return None


def request(rdd, wanted):
    """The RDD whose tasks get `wanted` GPUs each; as it is where the session's settings say so already.

    Spark 3.4 and newer can ask for them for one stage. Raises what pyspark raises where it cannot.
    """
    sc = rdd.context
    if not wanted or of_task(sc) == wanted:
        return rdd
    if sc.getConf().get("spark.dynamicAllocation.enabled", "false").lower() == "true":
        raise ValueError("new executors would be made for the stage")
    from pyspark.resource import ResourceProfileBuilder, TaskResourceRequests

    cores = int(sc.getConf().get("spark.task.cpus", "1"))
    needs = TaskResourceRequests().cpus(cores).resource("gpu", wanted)
    return rdd.withResources(ResourceProfileBuilder().require(needs).build)


def assigned(context):
    """In a Spark task: the addresses of the GPUs that it was given; None where Spark manages none."""
    resources = context.resources() if hasattr(context, "resources") else {}
    return list(resources["gpu"].addresses) if "gpu" in resources else None


def share(found, given, peers):
    """The one GPU, as a list, of a rank that has others on its host, where Spark does not say whose is which; or None.

    found: indices of those that the rank could use; given: what `assigned` says; peers: what PEERS says. Ranks take
    them in turn: where there are more ranks than GPUs, some share one.
    """
    if given is not None or peers["ranks_on_host"] == 1 or len(found) < 2:
        return None
    return [str(found[peers["place_on_host"] % len(found)])]


def environment(addresses):
    """Variables that keep a process to these GPUs, numbered as nvidia-smi and NVML number them."""
    if addresses is None:
        return {}
    return {"CUDA_VISIBLE_DEVICES": ",".join(addresses), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
