"""Executors without Spark: processes of this machine that stay between tests and run the tasks of ranks.

What a run asks of Spark where it has no --data is little: a task for each rank, on executors that keep their Python.
Everything else is as on Spark: driver, supervisors, and ranks that are forks of a prewarmed process. A launch costs no
JVM, and runs of 1, 2 and 4 workers share the processes. Tests that count prewarmed processes do not see theirs.
"""

import collections
import itertools
import os
import pickle
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

from py4j.clientserver import ClientServer
from pyspark import __version__, cloudpickle
from pyspark.sql import SparkSession

from support import listed_executors, paths, processes
from support.executor_process import read, write


class Executor:
    """A process that runs one task after the other, and starts again for the next where it was killed."""

    def __init__(self, number, python, folder):
        self._number, self._python, self._process = number, python, None
        self._folder = folder / str(number)  # as an executor of Spark's local-cluster has one: hosts.py
        self._folder.mkdir(exist_ok=True)
        self.lock = threading.RLock()

    def run(self, task, rank):
        """What the task of a rank yields. RuntimeError with its words where it raises, or where its process ends."""
        with self.lock:  # a job that was cancelled may be ending
            return self._run(task, rank)

    def _run(self, task, rank):
        if self._process is None or self._process.poll() is not None:
            self._process = self._start()
        try:
            write(self._process.stdin, cloudpickle.dumps((task, rank)))
            failed, found = pickle.loads(read(self._process.stdout))
        except (EOFError, OSError) as error:
            raise RuntimeError(f"executor {self._number} was lost") from error
        if failed:
            raise RuntimeError(found)
        return found

    def _start(self):
        command = [self._python, "-m", "support.executor_process", "--executor-id", str(self._number)]
        variables = {"SPARK_REUSE_WORKER": "1"}  # Spark's word for: it stays
        variables |= {processes.SESSION_VARIABLE: os.environ[processes.SESSION_VARIABLE] + processes.OF_POOL}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        return subprocess.Popen(command, cwd=self._folder, env=paths.environment(**variables), **pipes)

    def kill(self):
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class Executors:
    """Holds executors of this Python and, for tests that pretend hosts, of one other at a time."""

    def __init__(self, folder):
        self._folder, self._executors = folder, {}

    def get(self, workers, python=sys.executable):
        """A session whose runs may have `workers` workers, in `python`. Its processes start with the first run."""
        for other in {*self._executors} - {sys.executable, python}:
            self._end(self._executors.pop(other))
        executors = self._executors.setdefault(python, [])
        while len(executors) < workers:
            executors.append(Executor(len(executors), python, self._folder))
        return _Session(_Context(executors[:workers]))

    def stop(self):
        for executors in self._executors.values():
            self._end(executors)

    @staticmethod
    def _end(executors):
        for executor in executors:
            executor.kill()


_numbers = itertools.count()


class _Session(SparkSession):
    def __init__(self, context):
        self._sc = context

    @property
    def sparkContext(self):
        return self._sc


class _Context:
    """What the driver uses of a SparkContext for a run without --data."""

    version = __version__
    _gateway = ClientServer.__new__(ClientServer)  # whose threads are pinned

    def __init__(self, executors):
        self.executors = executors
        self.applicationId = f"executors-of-the-tests-{next(_numbers)}"
        self.master = f"local-cluster[{len(executors)},1,1024]"
        self._conf = SimpleNamespace(get=lambda name, default=None: default, getAll=list)
        listed = listed_executors.context(range(len(executors)))
        self._jsc = SimpleNamespace(sc=lambda: listed)
        self.busy = collections.defaultdict(list)  # job group -> its executors
        self.cancelled = set()

    def broadcast(self, value):
        return Broadcast(value)

    def parallelize(self, ranks, tasks):
        return _Ranks(self, tasks)

    def cancelJobGroup(self, group):
        self.cancelled.add(group)
        for executor in list(self.busy[group]):
            executor.kill()


class Broadcast:
    def __init__(self, value):
        self.value = value

    def destroy(self):
        """Nothing is held anywhere."""


class _Ranks:
    """An RDD with a partition for each rank, which has no rows."""

    def __init__(self, context, size, task=None):
        self.context, self._size, self._task = context, size, task

    def barrier(self):
        return self

    def mapPartitionsWithIndex(self, task):
        return _Ranks(self.context, self._size, task)

    def collectWithJobGroup(self, group, description):
        if self._size == 1:
            return self._run_on_a_free_one(group)
        executors = self.context.executors[: self._size]
        self.context.busy[group] += executors
        try:
            with ThreadPoolExecutor(self._size) as threads:
                runs = threads.map(lambda rank: executors[rank].run(self._task, rank), range(self._size))
                return list(itertools.chain.from_iterable(runs))
        finally:
            for executor in executors:
                self.context.busy[group].remove(executor)

    def _run_on_a_free_one(self, group):
        """A single task waits for an executor that has none, as on Spark."""
        while group not in self.context.cancelled:
            for executor in self.context.executors:
                if executor.lock.acquire(blocking=False):
                    self.context.busy[group].append(executor)
                    try:
                        return list(executor.run(self._task, 0))
                    finally:
                        self.context.busy[group].remove(executor)
                        executor.lock.release()
            time.sleep(0.05)
        raise RuntimeError(f"job group {group} was cancelled")
