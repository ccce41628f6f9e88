"""The reason in an error of Spark or Py4J, as one line."""

import pytest
from py4j.protocol import Py4JNetworkError

from ddl_magics.runtime.spark.spark_error import cause

PYTHON = """org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 830, in main
ValueError: column 'a': it has empty values

\tat org.apache.spark.api.python.BasePythonRunner
"""


def test_the_line_that_says_why():
    assert cause(PYTHON) == "ValueError: column 'a': it has empty values"
    assert cause(ValueError("Job aborted\n\tat java")) == "Job aborted"
    assert cause(": org.apache.spark.SparkException: no room") == "no room"


@pytest.mark.parametrize(
    "error",
    [ConnectionRefusedError(111, "Connection refused"), Py4JNetworkError("Answer from Java side is empty")],
)
def test_a_driver_that_has_died_is_named(error):
    assert cause(error) == "Spark's driver process (Java) has died: restart the kernel, which begins a new session"
