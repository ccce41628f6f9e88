"""The rows of a frame that `createDataFrame` has made of pandas, lists or tuples: told by their content.

Spark keeps such rows as bytes, in the driver, and has a few RDDs after them that make its own rows of these bytes. All
of these RDDs are compared, function by function, with those that Spark makes so: any other may have rows that are
others each time, or come from elsewhere, and is refused.
"""

from __future__ import annotations

import pickletools
import re
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Tuple

from .columns import session_of
from .frame_parts import NotKnown, elements, field, hashed, name_of, serialized

if TYPE_CHECKING:
    from .records import DataFrame

OF_RDD = "its rows are an RDD's, which may be others each time: write them to Parquet, and read that"
_RDD = "org.apache.spark.rdd."
#: The rows of Python, as they are pickled: where the driver has them.
_COLLECTION = _RDD + "ParallelCollectionRDD"
_PYTHON = "org.apache.spark.api.python.PythonRDD"
#: Names of the functions that Spark calls for each partition, of the last RDD first. By Arrow, where it is switched on.
_OF_ROWS = (("applySchemaToPythonRDD", "mapPartitions"), ("map", "toJavaArray"), ("mapPartitions", "pythonToJava"))
_OF_ARROW = (("mapPartitions", "toDataFrame"),)
#: Classes that there are in these functions, beside those of Scala and Java, without "org.apache.spark.".
_CLASSES = re.compile(
    r"rdd\.RDD|TaskContext|storage\.StorageLevel|util\.CallSite|sql\.SparkSession(\$implicits\$)?|sql\.types\.\w+\$?|"
    r"api\.python\.SerDeUtil\$|sql\.execution\.arrow\.ArrowConverters\$|ml\.linalg\.\w+UDT|mllib\.linalg\.\w+UDT"
)
_NAME_OF_CLASS = re.compile(rb"(?:[a-z]\w*[./])+[A-Z][\w$]*")
#: What looks like a class there: the time zone of Arrow's times.
_TIME_ZONES = re.compile(rb"(Africa|America|Antarctica|Arctic|Asia|Atlantic|Australia|Etc|Europe|Indian|Pacific)/")
_NAME_OF_FUNCTION = re.compile(rb"\$anonfun\$([A-Za-z]+)\$")

#: (id of Spark's application, of an RDD there) -> its texts.
_known: Dict[Tuple[str, int], List[str]] = {}
_MOST_KNOWN = 64


def texts(frame: DataFrame, rdd: Any) -> Iterator[str]:
    """What tells the rows of an RDD of `frame`'s plan from others: they are read once, as an RDD keeps its rows.

    Raises `NotKnown`, unless createDataFrame has made it.
    """
    key = str(frame._sc.applicationId), int(rdd.id())
    if key not in _known:
        while len(_known) >= _MOST_KNOWN:
            del _known[next(iter(_known))]
        _known[key] = list(_texts(frame, rdd))
    return iter(_known[key])


def _texts(frame: DataFrame, rdd: Any) -> Iterator[str]:
    jvm = frame._sc._jvm
    functions: List[Tuple[str, ...]] = []
    while _class_of(rdd) == _RDD + "MapPartitionsRDD":
        functions.append(_names(serialized(jvm, field(rdd, "f"))))
        rdd = _parent(rdd)
    if tuple(functions) == _OF_ROWS and _class_of(rdd) == _PYTHON:
        if _command(jvm, rdd) != _command(jvm, _parent_of_kind(_example(frame), _PYTHON)):
            raise NotKnown(OF_RDD)
        rdd = _parent(rdd)
    elif tuple(functions) != _OF_ARROW:
        raise NotKnown(OF_RDD)
    if _class_of(rdd) != _COLLECTION:
        raise NotKnown(OF_RDD)
    for partition in list(rdd.partitions()):
        yield hashed(jvm, partition.values())


def _class_of(value: Any) -> str:
    return str(value.getClass().getName())


def _parent(rdd: Any) -> Any:
    """The RDD whose partitions are those of this one. Raises `NotKnown`."""
    dependencies = elements(rdd.dependencies())
    if list(map(name_of, dependencies)) != ["OneToOneDependency"]:
        raise NotKnown(OF_RDD)
    return dependencies[0].rdd()


def _parent_of_kind(rdd: Any, class_name: str) -> Any:
    while _class_of(rdd) != class_name:
        rdd = _parent(rdd)
    return rdd


def _names(function: bytes) -> Tuple[str, ...]:
    """The functions in one of Scala, by their names, if nobody else's code is there. Raises `NotKnown`."""
    for found in _NAME_OF_CLASS.finditer(function):
        if _TIME_ZONES.match(function, found.start() - 1):
            continue
        parts = found.group().decode().replace("/", ".")
        library, _, rest = parts.partition("org.apache.spark.")
        if not parts.startswith(("java.lang.", "scala.")) and (library or not _is_known(rest)):
            raise NotKnown(OF_RDD)
    return tuple(sorted({name.decode() for name in _NAME_OF_FUNCTION.findall(function)}))


def _is_known(name: str) -> bool:
    """Whether it is one of `_CLASSES`; in the bytes of a class, a byte that is a letter may follow."""
    return _CLASSES.fullmatch(name) is not None or _CLASSES.fullmatch(name[:-1]) is not None


def _example(frame: DataFrame) -> Any:
    """The RDD of a frame of createDataFrame."""
    made = session_of(frame).createDataFrame([(1,)], "number int")
    (leaf,) = elements(made._jdf.queryExecution().analyzed().collectLeaves())
    return leaf.rdd()


def _command(jvm: Any, rdd: Any) -> List[Any]:
    """What Python does with the rows of a PythonRDD, apart from how many of them are pickled at once."""
    command = field(rdd, "func").command()
    if not isinstance(command, (bytes, bytearray)):  # a Seq, since Spark 3.4
        command = command.toArray(jvm.scala.reflect.ClassTag.Byte())
    steps: List[Any] = []
    for opcode, argument, _ in pickletools.genops(bytes(command)):
        if opcode.name == "FRAME":  # the length of the rest
            continue
        is_count = isinstance(argument, int) and steps[-2:-1] == [("SHORT_BINUNICODE", "batchSize")]
        steps.append(None if is_count else (opcode.name, argument))
    return steps
