"""What tells the rows of a DataFrame from others: for a cache of --data that must never give other rows than these.

A frame is told by Spark's own text of its plan, without the numbers that Spark gives expressions, and by the files that
it reads, each with its size and its time. A plan is only understood where every part of it is one of Spark's own that
its text describes in full; of any other, nothing is kept.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import json
import os
import pkgutil
import re
from typing import TYPE_CHECKING, Any, Iterator, List
from urllib.parse import unquote, urlsplit

from . import by_value, created_frames
from .frame_parts import NotKnown, elements, hashed, name_of

if TYPE_CHECKING:
    from .plan import DataPlan
    from .records import DataFrame

_CATALYST = "org.apache.spark.sql.catalyst."
_FILES = "org.apache.spark.sql.execution.datasources."
_ML = "org.apache.spark.ml."
#: The leaf of a frame whose rows are an RDD's: created_frames.py tells those of `createDataFrame`.
_ROWS = "org.apache.spark.sql.execution.LogicalRDD"
#: Expressions whose value is another one each time, or in another place.
_CHANGING = {
    "Rand": "rand()",
    "Randn": "randn()",
    "RandStr": "randstr()",
    "Uniform": "uniform()",
    "Uuid": "uuid()",
    "Shuffle": "shuffle()",
    "MonotonicallyIncreasingID": "monotonically_increasing_id()",
    "SparkPartitionID": "spark_partition_id()",
    "InputFileName": "input_file_name()",
    "CurrentTimestamp": "current_timestamp()",
    "Now": "now()",
    "LocalTimestamp": "localtimestamp()",
    "CurrentDate": "current_date()",
    "CurDateExpressionBuilder": "curdate()",
    "CurrentUser": "current_user()",
    "CurrentDatabase": "current_database()",
    "CurrentCatalog": "current_catalog()",
    "VariableReference": "a variable of the session",
}
#: Code that no text describes.
_FUNCTIONS = re.compile(
    "(?:Python|Scala|Hive|User).*(?:UDF|UDAF|UDTF|Aggregator|Generator|Expression)|.*Invoke|NewInstance|"
    "CallMethodViaReflection|ApplyFunctionExpression|V2Aggregator|.*(?:InPandas|InArrow)|MapPartitions.*|MapElements|"
    "TypedFilter|.*MapGroups.*|AppendColumns.*|DeserializeToObject|SerializeFromObject|ScriptTransformation|.*EvalPython"
)
_CLASS = re.compile(r'"class":"([\w.$]+)"')
#: Expressions with a plan of their own.
_SUBQUERIES = {"ScalarSubquery", "LateralSubquery", "ListQuery", "InSubquery", "Exists"}
#: Leaves of a plan whose text has all that decides their rows.
_DESCRIBED_LEAVES = {"Range", "OneRowRelation", "CTERelationRef"}
#: What a number of an expression carries of the JVM that gave it.
_OF_JVM = re.compile(r',?"jvmId":"[0-9a-f-]*"')


def of_plan(plan: DataPlan) -> str:
    """The key of what `plan` deals, 64 hexadecimal digits. Raises `NotKnown`.

    The values of --batch-size and --seed are not in it: neither decides which rank has a row.
    """
    frame_texts = [text for frame in plan.frames for text in ["frame", *_frame_texts(frame)]]
    fields = {
        "columns": plan.columns,
        "arrangement": plan.arrangement,
        "size": plan.size,
        "whole": plan.replicates_validation,
        "seed": plan.seed,
        "fraction": plan.fraction,
        "sequences": None if plan.sequences is None else plan.sequences.__dict__,
    }
    return _digest([_sources_of_format(), *frame_texts, json.dumps(fields, sort_keys=True)])


def _digest(texts: List[str]) -> str:
    return hashlib.sha256(json.dumps(texts).encode("utf-8")).hexdigest()


@functools.lru_cache(maxsize=None)
def _sources_of_format() -> str:
    """The sources beside this one, which say where a row goes and how it is stored, in place of a format's number."""
    folder = __name__.rpartition(".")[0]
    names = sorted(module.name for module in pkgutil.iter_modules(importlib.import_module(folder).__path__))
    return _digest([by_value.source_of("%s.%s" % (folder, name)) for name in names])


def _frame_texts(frame: DataFrame) -> Iterator[str]:
    execution = frame._jdf.queryExecution()
    analyzed = execution.analyzed()
    canonical = analyzed.canonicalized()
    try:
        described = _OF_JVM.sub("", canonical.toJSON())
    except Exception as error:  # Py4J's, of an assertion of Spark: a part is not made for JSON
        raise NotKnown("Spark cannot describe its plan") from error
    jvm = frame._sc._jvm
    classes = set(_CLASS.findall(described))
    _check(classes)
    yield described
    yield _whole_text(canonical)
    if _CATALYST + "expressions.ScalaUDF" in classes:  # which Spark calls nondeterministic where it may fail
        yield from _closures(jvm, analyzed)
    elif not _is_deterministic(analyzed):
        raise NotKnown("it has a value that is another one each time")
    for node in _nodes(analyzed):
        if name_of(node) == "Sample" and name_of(node.child()) != "Sort":  # which randomSplit has below it
            raise NotKnown("sample() may take other rows each time")
    for leaf in elements(analyzed.collectLeaves()):
        if name_of(leaf) == "LogicalRDD":
            yield from created_frames.texts(frame, leaf.rdd())
        else:
            yield from _leaf_texts(jvm, leaf)
    yield from _settings(frame)
    for leaf in elements(execution.withCachedData().collectLeaves()):
        if name_of(leaf) == "InMemoryRelation":
            # df.cache(): the rows are those of the time when Spark read them, and are gone with the session.
            yield str(frame._sc.applicationId)
            yield str(jvm.java.lang.System.identityHashCode(leaf.cacheBuilder()))


def _is_deterministic(plan: Any) -> bool:
    """What Spark says itself; True of its versions that do not say it of a plan."""
    try:
        return bool(plan.deterministic())
    except Exception:  # Py4J's: there is no such method
        return True


def _settings(frame: DataFrame) -> Iterator[str]:
    """What decides how a plan is computed, and is the same in another session: not the driver's port, for example."""
    conf = frame._jdf.sparkSession().sessionState().conf()
    yield str(frame._sc.version)
    yield conf.sessionLocalTimeZone()
    for setting in sorted(conf.getAllConfs().mkString("\0").split("\0")):
        if not setting.startswith("spark.") or setting.startswith(("spark.sql.", "spark.hadoop.")):
            yield setting


def _whole_text(plan: Any) -> str:
    """A plan's text with all of its fields; `toString` leaves out those of many columns."""
    try:
        return str(plan.treeString(True, True, 2**31 - 1, False))
    except Exception:  # Py4J's, of Spark 4: the method has another parameter there
        return str(plan.treeString(True, True, 2**31 - 1, False, False))


def _check(classes: set[str]) -> None:
    """Raises `NotKnown` for a plan with a part that is not known to be described in full."""
    simple = {name.rpartition(".")[2]: name for name in sorted(classes) if name != _ROWS}
    if "ExternalRDD" in simple:
        raise NotKnown(created_frames.OF_RDD)
    for name, class_name in simple.items():
        if name in _CHANGING:
            raise NotKnown("%s has another value each time" % _CHANGING[name])
        if name in _SUBQUERIES:
            raise NotKnown("it has a subquery in an expression")
        if name != "ScalaUDF" and _FUNCTIONS.match(name):
            raise NotKnown("it calls a function of its own (%s), whose code may change" % name)
        if not class_name.startswith((_CATALYST, _ML + "linalg.")) and class_name != _FILES + "LogicalRelation":
            raise NotKnown("how it is read (%s) does not say whether it has changed" % name)


def _leaf_texts(jvm: Any, leaf: Any) -> Iterator[str]:
    name = name_of(leaf)
    if name == "LocalRelation":
        yield hashed(jvm, leaf.data())
    elif name == "LogicalRelation":
        yield from _relation_texts(jvm, leaf.relation())
    elif name not in _DESCRIBED_LEAVES:  # Hive's tables, for example, and the results of commands
        raise NotKnown("how it is read (%s) does not say whether it has changed" % name)


def _relation_texts(jvm: Any, relation: Any) -> Iterator[str]:
    kind = relation.getClass().getName()
    if kind != _FILES + "HadoopFsRelation":
        raise NotKnown("how it is read (%s) does not say whether it has changed" % kind.rpartition(".")[2])
    location = relation.location()
    index = location.getClass().getName()
    if index not in (_FILES + "InMemoryFileIndex", _FILES + "CatalogFileIndex"):
        raise NotKnown("how its files are found (%s) does not say whether they have changed" % index.rpartition(".")[2])
    yield relation.fileFormat().getClass().getName()
    yield relation.schema().json()
    yield relation.partitionSchema().json()
    yield from sorted(relation.options().mkString("\n").split("\n"))
    yield from _file_texts(jvm, list(location.inputFiles()))


def _file_texts(jvm: Any, uris: List[str]) -> Iterator[str]:
    """Each file with its size and time now; Spark's own list may be older.

    Of a file of this machine, the time of its last change of any kind is there, too: no tool sets that one back.
    """
    hadoop_uris = []
    for uri in uris:
        if uri.startswith("file:"):
            try:
                status = os.stat(unquote(urlsplit(uri).path))
            except OSError as error:
                raise NotKnown("the driver cannot look at %s (%s)" % (uri, error.strerror)) from error
            yield json.dumps([uri, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino])
        else:
            hadoop_uris.append(uri)
    if hadoop_uris:
        yield from _statuses(jvm, hadoop_uris)


def _statuses(jvm: Any, uris: List[str]) -> Iterator[str]:
    """The same of files of Hadoop's file systems, a request for each folder."""
    paths = {unquote(urlsplit(uri).path) for uri in uris}
    conf = jvm.org.apache.spark.deploy.SparkHadoopUtil.get().conf()
    for folder in sorted({uri.rpartition("/")[0] for uri in uris}):
        path = jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI(folder + "/"))
        for status in path.getFileSystem(conf).listStatus(path):
            if unquote(status.getPath().toUri().getRawPath()) in paths:
                location = status.getPath().toString()
                yield json.dumps([location, status.getLen(), status.getModificationTime()])


def _nodes(plan: Any) -> Iterator[Any]:
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        waiting += elements(node.children())
        yield node


def _closures(jvm: Any, plan: Any) -> Iterator[str]:
    """The functions of Spark's own ML library in a plan, with what they have learnt. `NotKnown` for others."""
    expressions = [expression for node in _nodes(plan) for expression in elements(node.expressions())]
    while expressions:
        expression = expressions.pop()
        expressions += elements(expression.children())
        if name_of(expression) == "ScalaUDF":
            function = expression.function()
            if not function.getClass().getName().startswith(_ML):
                raise NotKnown("it calls a function of its own (ScalaUDF), whose code may change")
            yield hashed(jvm, function)
