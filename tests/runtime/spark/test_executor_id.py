"""The executor that a process belongs to, from the command lines of its ancestors."""

import os
import subprocess
import sys

from support.paths import environment

from ddl_magics.runtime.spark.executor_id import executor_of

CHILD = "import os; from ddl_magics.runtime.spark.executor_id import executor_of; print(executor_of(os.getpid()))"
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {CHILD!r}], check=True)"


def said(*words):
    """What a child of a process with these words in its command line says."""
    done = subprocess.run([sys.executable, "-c", PARENT, *words], env=environment(), capture_output=True, check=True)
    return done.stdout.decode().strip()


def test_it_is_that_of_an_ancestor():
    assert said("--driver-url", "spark://x", "--executor-id", "7", "--cores", "1") == "7"
    assert said("--executor-id") == "", "the value is missing"
    assert executor_of(os.getpid()) == ""
    assert executor_of(2**30) == "", "there is no such process"
