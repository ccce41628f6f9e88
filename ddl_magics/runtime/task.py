"""The function that Spark carries to its executors: it unpacks the runtime and hands over to the supervisor.

It travels by value and imports nothing of this package before it has put it on the path: executors have never heard
of it.
"""


def make_task(parcel, job, package, only=None):
    """The task of one rank. `parcel` is a broadcast of {"runtime": zip, "names": bytes}; job: what ranks are told.

    only: the one rank that is to run; the tasks of others have nothing to do.
    """

    def task(rank, blobs):
        if only not in (None, rank):
            return
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
            value = parcel.value
            zipfile.ZipFile(io.BytesIO(value["runtime"])).extractall(home)
            sys.path.insert(0, home)
            try:
                supervisor = importlib.import_module(package + ".supervisor")
                gpus = importlib.import_module(package + ".gpus").assigned(TaskContext.get())
            finally:
                sys.path.remove(home)
            yield supervisor.supervise(rank, dict(job, gpus=gpus), value["names"], blobs, home)
        finally:
            shutil.rmtree(home, ignore_errors=True)
            owner.close()

    return task
