"""The reason in an error of Spark or Py4J, as one line."""

import pytest
from py4j.protocol import Py4JNetworkError

from ddl_magics.runtime.spark.spark_error import cause, is_of_dead_jvm

PYTHON = """org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 830, in main
ValueError: column 'a': it has empty values

\tat org.apache.spark.api.python.BasePythonRunner
"""


def test_the_line_that_says_why():
    assert cause(PYTHON) == "ValueError: column 'a': it has empty values"
    assert cause(ValueError("Job aborted\n\tat java")) == "Job aborted"
    assert cause(": org.apache.spark.SparkException: no room") == "no room"
    aborted = "Job aborted due to stage failure: Task 1 in stage 2.0 failed 1 times, most recent failure: Lost task 1.0"
    of_task = f"{aborted} in stage 2.0 (TID 3) (wn1 executor 1): java.lang.IllegalArgumentException: no header"
    assert cause(f"org.apache.spark.SparkException: {of_task}") == "no header"
    of_tensorflow = "{{function_node __wrapped__Cast_device_/job:localhost/task:0}} Cast of text [Op:Cast] name: "
    assert cause(of_tensorflow) == "Cast of text"


@pytest.mark.parametrize(
    "error",
    [ConnectionRefusedError(111, "Connection refused"), Py4JNetworkError("Answer from Java side is empty")],
)
def test_a_driver_that_has_died_is_named(error):
    assert cause(error) == "Spark's driver process (Java) has died: restart the kernel, which begins a new session"


def test_a_broken_connection_to_another_process_is_none_of_javas():
    from py4j.java_gateway import GatewayParameters, JavaGateway

    with pytest.raises((ConnectionError, Py4JNetworkError)) as of_java:
        JavaGateway(gateway_parameters=GatewayParameters(port=9)).jvm.System.currentTimeMillis()
    with pytest.raises(ConnectionError) as other:
        raise BrokenPipeError
    assert is_of_dead_jvm(of_java.value) and not is_of_dead_jvm(other.value)
