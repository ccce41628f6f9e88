"""What Spark's own context in the JVM says of its executors, for tests by value."""

from types import SimpleNamespace


def context(ids, lost=()):
    """ids: those that are listed, as numbers or texts; lost: those of them that take no task any more."""
    names = [str(executor) for executor in ids]
    listed = SimpleNamespace(size=lambda: len(names), apply=lambda index: names[index])
    scheduler = SimpleNamespace(isExecutorAlive=lambda executor: executor in names and executor not in lost)
    return SimpleNamespace(getExecutorIds=lambda: listed, taskScheduler=lambda: scheduler)
