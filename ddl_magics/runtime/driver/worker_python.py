"""The Python of a worker, for `%ddl check`: one executor is asked, by a Spark job of one task."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as TooLong
from typing import TYPE_CHECKING, Any

from ..data import by_value
from ..provenance import python_description
from ..spark import jvm_gateway, slots, spark_error
from ..spark.settings import conf_of

if TYPE_CHECKING:
    from ..spark.pyspark_types import SparkConf, SparkContext

#: How long a task may take; the first one of an executor starts its Python.
SECONDS = 30.0
GROUP = "ddl_magics check"
ARCHIVES = ("spark.archives", "spark.yarn.dist.archives")
NAMED_BY = ("spark.pyspark.python", "PYSPARK_PYTHON")


def ask(sc: SparkContext, busy: int) -> dict[str, Any]:
    """What `python_description.describe` says on an executor, and where that Python comes from, as `origin` says.

    {"unknown": one line} where none can be asked, or its Python does not start. busy: slots that runs take.
    """
    count = slots.registered_slots(sc)
    if not count:
        return {"unknown": "not asked: there is no executor yet, and a run brings them"}
    if count <= busy:
        return {"unknown": "not asked: runs take all slots"}
    context = jvm_gateway.separate_context(sc)
    describe = by_value.functions_of(python_description)["describe"]
    rdd = context.parallelize([0], 1).map(lambda _: describe())
    with ThreadPoolExecutor(1) as own_thread:  # the caller's would keep the job group
        answer = own_thread.submit(jvm_gateway.collect, rdd, GROUP, "the Python of a worker")
        try:
            (description,) = answer.result(SECONDS)
        except TooLong:
            context.cancelJobGroup(GROUP)
            return {"unknown": "an executor has not answered within %g s" % SECONDS}
        except Exception as error:  # Py4J's, of many kinds
            return {"unknown": "its Python does not start: %s" % spark_error.cause(error)}
    return {**description, **origin(conf_of(sc), sc.pythonExec, description)}


def origin(conf: SparkConf, wanted: str, description: dict[str, Any]) -> dict[str, str | None]:
    """{"archive", "setting"}: the archive that has brought this Python, or None; the setting that names it, or None.

    wanted: the Python that Spark starts for tasks.
    """
    below = os.path.relpath(description["path"], description["folder"]).split(os.sep)[0]
    for setting in ARCHIVES:
        for archive in conf.get(setting, "").split(","):
            uri, _, name = archive.strip().partition("#")
            file = uri.rpartition("/")[2]
            if uri and below == (name or file):
                return {"archive": file, "setting": setting}
    values = (conf.get(NAMED_BY[0], ""), os.environ.get(NAMED_BY[1], ""))
    return {"archive": None, "setting": next((name for name, value in zip(NAMED_BY, values) if value == wanted), None)}
