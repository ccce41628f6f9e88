"""What Spark's own context in the JVM says of its executors, for tests by value."""

from types import SimpleNamespace


def context(ids, lost=(), ending=(), hosts=()):
    """ids: those that are listed, as numbers or texts; lost: those of them that take no task any more; ending: those
    that Spark has asked to be ended; hosts: the host of each.
    """
    names = [str(executor) for executor in ids]
    summaries = [
        SimpleNamespace(id=lambda name=name: name, hostPort=lambda host=host: f"{host}:7077")
        for name, host in zip(names, hosts, strict=False)
    ]
    scheduler = SimpleNamespace(isExecutorAlive=lambda executor: executor in names and executor not in lost)
    backend = SimpleNamespace(
        isExecutorActive=lambda executor: scheduler.isExecutorAlive(executor) and executor not in ending
    )
    return SimpleNamespace(
        getExecutorIds=lambda: _sequence(names),
        taskScheduler=lambda: scheduler,
        schedulerBackend=lambda: backend,
        statusStore=lambda: SimpleNamespace(executorList=lambda active: _sequence(summaries)),
    )


def _sequence(values):
    return SimpleNamespace(size=lambda: len(values), apply=lambda index: values[index])
