"""The function that Spark carries to its executors: it unpacks the runtime and calls the supervisor.

It travels by value and imports nothing of this package before it has put it on the path, as executors do not have it.
"""

from __future__ import annotations

from typing import Any, Callable, Iterable, Iterator, Mapping


def make_task(
    broadcast_payload: Any,
    job: Mapping[str, Any],
    package: str,
    only_rank: int | None = None,
    as_rank: int | None = None,
) -> Callable[[int, Iterable[bytes]], Iterator[Any]]:
    """The task of one rank: (rank, its blobs of --data) -> what `supervisor.supervise` returns.

    broadcast_payload: a broadcast of {"runtime": zip, "names": bytes, "files": zip or nothing}. job:
    `JobConfig.to_json`. package: the runtime's name in the zip. only_rank: the one that is to run; the tasks of others
    end at once. as_rank: the number of the rank that the first task runs.
    """

    def task(rank: int, blobs: Iterable[bytes]) -> Iterator[Any]:
        if only_rank not in (None, rank):
            return
        rank = rank if as_rank is None else as_rank
        import fcntl
        import importlib
        import io
        import os
        import shutil
        import sys
        import tempfile
        import zipfile

        from pyspark import TaskContext

        home = tempfile.mkdtemp(prefix="ddl-runtime-")
        owner = open(os.path.join(home, ".owner"), "w")  # noqa: SIM115 - as scratch.py does, which is in the zip
        fcntl.flock(owner, fcntl.LOCK_EX)
        try:
            value = broadcast_payload.value
            if package not in sys.modules:  # which a Python process of Spark has that has run a rank before
                zipfile.ZipFile(io.BytesIO(value["runtime"])).extractall(home)
            sys.path.insert(0, home)
            try:
                supervisor = importlib.import_module(package + ".executor.supervisor")
                of_spark = importlib.import_module(package + ".spark.gpus").assigned(TaskContext.get())
            finally:
                sys.path.remove(home)
            yield supervisor.supervise(rank, job, of_spark, value, blobs, home)
        finally:
            shutil.rmtree(home, ignore_errors=True)
            owner.close()

    return task
