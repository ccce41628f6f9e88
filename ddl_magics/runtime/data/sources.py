"""--data as files: Spark makes a DataFrame of them, wherever it can reach them.

Of Parquet and ORC it reads only the columns and parts of files that are needed; of TFRecord all, a file at a time; of
CSV all, three times: for its line breaks, for the types and for the values. It reads no rows where the ranks do so
themselves (file_feed.py).
"""

from __future__ import annotations

import contextlib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Iterator, Mapping, Sequence
from urllib.parse import unquote

from ..run_spec import RunSpec
from ..spark import spark_error
from . import by_value, tables, tfrecord
from .columns import PROBLEM, DataError, is_spark, quoted

if TYPE_CHECKING:
    from .records import DataFrame

#: Spark's formats, by the end of a file's name.
_FORMATS = {".parquet": "parquet", ".orc": "orc", ".csv": "csv", ".csv.gz": "csv", ".csv*": "csv"}
#: The options of Spark's reader. Of CSV, quotes in values are doubled, as RFC 4180 has it and pandas writes them; NA is
#: a missing value, as for pandas. First lines that differ, and rows with more or fewer values than columns, are errors:
#: Spark would take columns by position, and leave values out.
_OPTIONS: dict[str, dict[str, Any]] = {"csv": {"header": True, "inferSchema": True, "escape": '"', "nullValue": "NA"}}
_OPTIONS["csv"].update(enforceSchema=False, mode="FAILFAST")
#: What Spark calls a column of CSV whose first line has no name for it. pandas' index is the first one, and no feature.
_NO_NAME = re.compile(r"_c\d+$")
_INDEX_OF_CSV = "_c0"
#: What Java takes for numbers, and pandas for text: 5d, 5f, 0x1p3. In a line of CSV, or in a value.
_NUMBER_OF_JAVA = '(^|[,"])[-+ ]*([0-9.]+([eE][-+]?[0-9]+)?[dDfF]|0[xX][0-9a-fA-F.]+[pP][-+]?[0-9]+[dDfF]?) *([,"]|$)'
#: What pandas takes for a missing value, besides NA and nothing, and Spark for a text.
_MISSING_FOR_PANDAS = "#N/A,#N/A N/A,#NA,-1.#IND,-1.#QNAN,-NaN,-nan,1.#IND,1.#QNAN,<NA>,N/A,NULL,NaN,None,n/a,nan,null"
#: pandas' types whose values Parquet has as whole numbers, which is all that Spark knows of them.
_SPAN_OF_PANDAS = re.compile(r"timedelta64\[(s|ms|us|ns)\]|period\[.*\]")
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
#: Files that Spark takes for no data.
_HIDDEN = re.compile(r"\.|_(?!.*=)")
#: In the last part of a path, which may be a pattern.
_TFRECORD = re.compile(r"\.tfrecords?(?![a-z])[^/]*$")
#: The columns of TFRecord files are those of so many Examples of the first file.
_FIRST_EXAMPLES = 100
#: Between the parts of a list of files, whose names may have commas.
_COMMA = re.compile(r",(?=[A-Za-z][\w+.-]*:/|/)")


def is_files(data: str) -> bool:
    """Whether the value of --data names files, and not a DataFrame."""
    return not data.isidentifier()


def paths(data: str) -> list[str]:
    """The files, folders and patterns of --data: with commas between them, each with its scheme or from the root."""
    return _COMMA.split(data)


def format_of(data: str) -> str:
    """The format of files by their names: parquet, orc, csv or tfrecord. `DataError` where they have several."""
    formats = {path: _format(path.rstrip("/").lower()) for path in paths(data)}
    first_path, *other_paths = formats
    odd_path = next((path for path in other_paths if formats[path] != formats[first_path]), None)
    if odd_path is not None:
        words = formats[first_path], first_path, formats[odd_path], odd_path
        raise DataError("--data: files must have one format, and not be %s (%s) and %s (%s)" % words)
    return formats[first_path]


def _format(path: str) -> str:
    if _TFRECORD.search(path):
        return "tfrecord"
    return next((kind for ending, kind in _FORMATS.items() if path.endswith(ending)), "parquet")


def other_format(uri: str) -> str | None:
    """What to do with files of a format that --data does not read, by their name, in one line, or None."""
    files = paths(uri)
    if any(path.rstrip("/").lower().endswith((".json", ".jsonl")) for path in files):
        words = uri, files if len(files) > 1 else files[0]
        return "--data %s: read it into a DataFrame first: df = spark.read.json(%r), and --data df" % words
    return None


@dataclass(frozen=True)
class FileSource:
    """The files of --data.

    Attributes:
        frame: their rows.
        listing: a DataFrame whose `inputFiles` are the files.
        code: what reads them into a DataFrame.
    """

    format: str
    frame: DataFrame
    listing: DataFrame
    code: str = ""

    def uris(self) -> list[str]:
        """In the order of the files' names. Those without rows, such as `_metadata`, are left out, as Spark does."""
        return sorted(uri for uri in self.listing.inputFiles() if not _HIDDEN.match(uri.rpartition("/")[2]))


def source(session: Any, uri: str) -> FileSource:
    """The files, folders or patterns of files with these names: Parquet, or by the name ORC, CSV or TFRecord.

    Spark reads the schema of Parquet and ORC files and none of their rows, the first TFRecord file, and all CSV files.

    Args:
        session: a SparkSession.

    Raises:
        DataError: one line.
    """
    advice = other_format(uri)
    if advice:
        raise DataError(advice)
    uri = ",".join(_existing(session, path) for path in paths(uri))
    named, version = tables.without_version(uri)
    problem, kind = "--data %s cannot be read" % uri, format_of(uri)
    for table, folder in _tables_around(session, named):
        if folder == str(session._jvm.org.apache.hadoop.fs.Path(named)):
            frame, is_its_files = tables.read(session, table, folder, version)
            code = tables.reader_code(table, folder, version)
            return FileSource("parquet" if is_its_files else table, frame, frame, code)
        words = uri, table.capitalize(), "df = spark.read.format(%r).load(%r), and --data df" % (table, folder)
        raise DataError("--data %s: files of %s have removed rows, too: %s" % words)
    options = _OPTIONS.get(kind, {})
    has_separators = has_missing_words = has_numbers_of_java = False
    if kind == "csv":
        signs = _in_one_line(problem, lambda: _signs(session, uri))
        has_line_breaks, has_separators, has_missing_words, has_numbers_of_java = signs
        options = {**options, "multiLine": has_line_breaks}
    reader = session.read.format("binaryFile" if kind == "tfrecord" else kind).options(**options)
    listing = _in_one_line(problem, lambda: reader.load(paths(uri)), _no_parquet)
    if kind == "parquet":
        _check_sizes(uri, reader, listing)
    if has_numbers_of_java:
        listing = _in_one_line(problem, lambda: _with_texts_of_pandas(reader, uri, listing.schema))
    if len(paths(uri)) > 1:
        _check_once(uri, listing)
    if kind == "tfrecord":
        return FileSource(kind, _in_one_line(problem, lambda: _of_tfrecord(session, listing)), listing)
    if kind == "csv":
        _check_names(uri, listing.columns)
        has_index = listing.columns[0] == _INDEX_OF_CSV and not _first_line(session, uri).startswith(_INDEX_OF_CSV)
        if options["multiLine"] and has_index:  # Spark compares the names of all columns then
            reader = reader_code(uri, multiLine=True)
            raise DataError("--data %s: a column has no name: df = %s.drop('_c0'), and --data df" % (uri, reader))
        frame = listing.drop(_INDEX_OF_CSV) if has_index else listing
        multi_line = {"multiLine": True} if options["multiLine"] else {}
        if has_separators:
            code = reader_code(uri, **multi_line)
            frame = _in_one_line(problem, lambda: _with_separated_marked(frame, code))
        if has_missing_words:
            frame = _in_one_line(problem, lambda: _with_missing_words_marked(frame, uri, multi_line))
        return FileSource(kind, frame, listing)
    rows = FileSource(kind, listing, listing)
    return FileSource(kind, _with_spans_marked(session, rows, uri), listing) if kind == "parquet" else rows


def _existing(session: Any, path: str) -> str:
    """The path, without its percent-encoding if only that exists: `Path.as_uri()` of Python writes names so."""
    decoded = unquote(path)
    if decoded != path:
        with contextlib.suppress(Exception):  # there is no such storage: reading says so
            Path = session._jvm.org.apache.hadoop.fs.Path
            storage = Path(path).getFileSystem(session._jsc.hadoopConfiguration())
            if not storage.globStatus(Path(path)) and storage.globStatus(Path(decoded)):
                return decoded
    return path


def _tables_around(session: Any, uri: str) -> Iterator[tuple[str, str]]:
    """(format, folder) of tables that keep removed rows in their files, to which these files belong."""
    Path = session._jvm.org.apache.hadoop.fs.Path
    seen: set[str] = set()
    for path in paths(uri):
        with contextlib.suppress(Exception):  # there is no such storage: reading says so
            folder = Path(path)
            storage = folder.getFileSystem(session._jsc.hadoopConfiguration())
            while folder is not None and str(folder) not in seen:
                seen.add(str(folder))
                for name, table in tables.MARKERS.items():
                    with contextlib.suppress(Exception):  # it is no folder, or one that this user may not list
                        if storage.globStatus(Path(folder, name)):
                            yield table, str(folder)
                folder = folder.getParent()


def _first_line(session: Any, uri: str) -> str:
    return str(session.read.text(paths(uri)).first()[0]).lstrip('"')


def reader_code(uri: str, **options: Any) -> str:
    """The code that reads files into a DataFrame of Spark. options: of CSV, beside those of `source`; None for none."""
    kind, files = format_of(uri), paths(uri)
    if kind != "csv":
        return "spark.read.load(%r, format=%r)" % (files if len(files) > 1 else files[0], kind)
    options = {"header": True, "inferSchema": True, "escape": '"', "nullValue": "NA", **options}
    arguments = ["%s=%r" % item for item in options.items() if item[1] is not None]
    return "spark.read.csv(%s)" % ", ".join([repr(files if len(files) > 1 else files[0]), *arguments])


def _signs(session: Any, uri: str) -> tuple[bool, ...]:
    """Whether CSV files may have line breaks in values, commas between thousands, missing values of pandas, Java's 5d.

    A line of text with a line break has an odd number of quotes. ValueError, one line, for text that is no UTF-8, of
    which Spark makes replacement characters.
    """
    lines = session.read.text(paths(uri))
    quotes = "length(value) - length(replace(value, '\"', ''))"
    is_damaged = "not is_valid_utf8(value)"
    if int(session.version.partition(".")[0]) < 4:  # which has no such function
        is_damaged = "value <> decode(cast(value as binary), 'UTF-8')"
    separators = "value rlike '\"[-+]?[0-9]{1,3}(,[0-9]{3})+([.][0-9]*)?\"'"
    of_java = "value rlike '%s'" % _NUMBER_OF_JAVA
    missing = "value rlike '(^|[,\"])(%s)([,\"]|$)'" % _MISSING_FOR_PANDAS.replace(",", "|")
    signs = ["max((%s) %% 2)" % quotes, *("max(%s)" % sign for sign in (is_damaged, separators, missing, of_java))]
    open_quote, unreadable, *other_signs = lines.selectExpr(*signs).first()
    if unreadable:
        is_utf_16 = lines.where("instr(value, char(0)) > 0").head(1)  # of Excel's "Unicode text"
        code = (
            reader_code(uri, encoding="UTF-16", multiLine=True)
            if is_utf_16
            else reader_code(uri, encoding="ISO-8859-1")
        )
        raise ValueError("its text is no UTF-8: read it with its encoding: df = %s, and --data df" % code)
    return (bool(open_quote), *map(bool, other_signs))


def _with_missing_words_marked(frame: DataFrame, uri: str, options: Mapping[str, Any]) -> DataFrame:
    """`frame`, whose columns of text with a missing value of pandas say so in their metadata. A pass over the rows.

    options: of the reader.
    """
    from pyspark.sql import functions as F

    texts = [field.name for field in frame.schema.fields if field.dataType.typeName() == "string"]
    words = ", ".join("'%s'" % word for word in _MISSING_FOR_PANDAS.split(","))
    of_columns = ["max(if(%s in (%s), %s, null))" % (quoted(name), words, quoted(name)) for name in texts]
    for name, word in zip(texts, frame.selectExpr(*of_columns).first() if texts else ()):
        if word is not None:
            code = reader_code(uri, **{**options, "nullValue": word})
            problem = "has %r, a missing value for pandas: df = %s, and --data df" % (word, code)
            metadata = {PROBLEM: problem, **frame.schema[name].metadata}
            frame = frame.withColumn(name, F.col(quoted(name)).alias(name, metadata=metadata))
    return frame


def _with_texts_of_pandas(reader: Any, uri: str, schema: Any) -> DataFrame:
    """CSV files whose columns are text where pandas has them so: 5d and 0x1p3 are numbers for Java. A pass."""
    from pyspark.sql import types

    numbers = [field.name for field in schema.fields if isinstance(field.dataType, types.DoubleType)]

    def with_texts(names: Sequence[str]) -> DataFrame:
        fields = [
            types.StructField(field.name, types.StringType() if field.name in names else field.dataType)
            for field in schema.fields
        ]
        return reader.schema(types.StructType(fields)).load(paths(uri))

    are_of_java = ["max(%s rlike '%s')" % (quoted(name), _NUMBER_OF_JAVA) for name in numbers]
    row = with_texts(numbers).selectExpr(*are_of_java).first() if numbers else ()
    return with_texts([name for name, is_of_java in zip(numbers, row) if is_of_java])


def _with_spans_marked(session: Any, files: FileSource, uri: str) -> DataFrame:
    """The rows of Parquet files, whose columns of pandas' durations and periods say so in their metadata.

    For Spark, and so for a dataset, they are whole numbers. What pandas knows of them is in the end of the first file.
    """
    from pyspark.sql import functions as F

    frame, code = files.frame, "df = %s" % reader_code(uri)
    for name, kind in _types_of_pandas(session, files).items():
        span = _SPAN_OF_PANDAS.match(kind)
        if span and name in frame.columns:
            remedy = code
            if span[1]:  # in seconds
                reference = name if name.isidentifier() else quoted(name)
                remedy += "; df = df.withColumn(%r, df[%r] / %d)" % (name, reference, _PER_SECOND[span[1]])
            problem = "has pandas' %s, which Parquet has as whole numbers: %s, and --data df" % (kind, remedy)
            frame = frame.withColumn(name, F.col(quoted(name)).alias(name, metadata={PROBLEM: problem}))
    return frame


def _types_of_pandas(session: Any, files: FileSource) -> dict[str, str]:
    """The types of columns by their names, as pandas notes them in a Parquet file, here the first one."""
    with contextlib.suppress(Exception):  # no file, none of pandas, or one that this Spark reads in another way
        jvm = session._jvm
        path = jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI(files.uris()[0]))
        reader = jvm.org.apache.parquet.hadoop.ParquetFileReader
        footer = reader.readFooter(session._jsc.hadoopConfiguration(), path)
        notes = json.loads(footer.getFileMetaData().getKeyValueMetaData().get("pandas"))
        return {str(column["field_name"]): str(column["numpy_type"]) for column in notes["columns"]}
    return {}


def _with_separated_marked(frame: DataFrame, code: str) -> DataFrame:
    """`frame`, whose columns of numbers with commas between thousands say so in their metadata. A pass over the rows.

    code: the expression that reads the files.
    """
    from pyspark.sql import functions as F

    texts = [field.name for field in frame.schema.fields if field.dataType.typeName() == "string"]
    is_number = "coalesce(%s rlike '^[-+]?([0-9]+|[0-9]{1,3}(,[0-9]{3})+)([.][0-9]*)?$', true)"
    sums = ["struct(min(%s), max(if(%s like '%%,%%', %s, null)))" % (is_number % n, n, n) for n in map(quoted, texts)]
    found = zip(texts, frame.selectExpr(*sums).first())
    examples = {name: example for name, (are_numbers, example) in found if are_numbers and example}
    for name in examples:
        code += ".withColumn(%r, expr(%r))" % (name, "double(replace(%s, ',', ''))" % quoted(name))
    for name, example in examples.items():
        words = example, "from pyspark.sql.functions import expr; df = %s, and --data df" % code
        problem = "is text, as its numbers have commas between thousands (%s): %s" % words
        frame = frame.withColumn(name, F.col(quoted(name)).alias(name, metadata={PROBLEM: problem}))
    return frame


def _check_once(uri: str, listing: DataFrame) -> None:
    """`DataError` where a file is there twice: Spark would read its rows twice."""
    leaf = listing._jdf.queryExecution().analyzed().collectLeaves().apply(0)
    if leaf.getClass().getSimpleName() != "LogicalRelation":  # Spark's newer readers, which nobody has by default
        return
    uris = sorted(leaf.relation().location().inputFiles())
    twice = next((path for path, next_path in zip(uris, uris[1:]) if path == next_path), None)
    if twice is not None:
        raise DataError("--data %s names the file %s twice: name it once" % (uri, twice))


def _check_sizes(uri: str, reader: Any, listing: DataFrame) -> None:
    """`DataError` where files have int8 and int16 in one column: Spark reads all with one type, and cuts off bits.

    Spark reads the ends of all files where the first one has a column of int8 or int16, and of no others.
    """
    if not {"byte", "short"} & {field.dataType.typeName() for field in listing.schema.fields}:
        return
    try:
        reader.option("mergeSchema", True).load(paths(uri))
    except Exception as error:
        if "TINYINT" in str(error) or "SMALLINT" in str(error):
            sizes = "a column has whole numbers of 8 or 16 bits in one file, and of another size in another one"
            remedy = "write it with one type in all files, as with .astype('int64')"
            raise DataError("--data %s cannot be read: %s: %s" % (uri, sizes, remedy)) from error


def _check_names(uri: str, names: Sequence[str]) -> None:
    """`DataError` where the first line of CSV files has no names of columns, or other separators than commas."""
    if not names:
        raise DataError("--data %s cannot be read: there is no file with columns" % uri)
    named_columns = [name for name in names if not _NO_NAME.match(name)]
    separator = next((sign for sign in ";\t|" if sign in names[0]), None)
    if all(map(_is_number, named_columns)):
        problem = "the first line has numbers, and no names of columns"
        code = reader_code(uri, header=None)
    elif len(names) == 1 and separator is not None:
        problem = "its columns are not separated by commas"
        code = reader_code(uri, sep=separator)
    else:
        return
    raise DataError("--data %s: %s: read it into a DataFrame: df = %s, and --data df" % (uri, problem, code))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _of_tfrecord(session: Any, listing: DataFrame) -> DataFrame:
    """The rows of the files of a binaryFile DataFrame. ValueError, one line, where they have no columns."""
    from pyspark.sql import types

    functions = by_value.functions_of(tfrecord)
    first_columns, rows = functions["first_columns"], functions["rows"]
    columns = _columns_of_tfrecord(session, listing, first_columns)
    schema = types.StructType()
    for name, (kind, is_list) in columns.items():
        of_spark = getattr(types, tfrecord.KINDS[kind])()
        schema.add(name, types.ArrayType(of_spark) if is_list else of_spark)
    files = listing.select("path", "content").rdd
    return session.createDataFrame(files.flatMap(lambda file: rows(file[1], file[0], columns)), schema, None, False)


def _columns_of_tfrecord(
    session: Any, listing: DataFrame, first_columns: Callable[[bytes, str, int], Mapping[str, tuple[int, bool]]]
) -> Mapping[str, tuple[int, bool]]:
    """Those of the first file with records."""
    file_paths: list[str] = [row[0] for row in listing.where("length > 0").select("path").orderBy("path").collect()]
    for path in file_paths:
        literally = re.sub(r"([\\*?\[\]{}])", r"\\\1", path)
        file = session.read.format("binaryFile").load(literally).select("path", "content").rdd
        columns: Mapping[str, tuple[int, bool]] = file.map(
            lambda file: first_columns(file[1], file[0], _FIRST_EXAMPLES)
        ).first()
        if columns:
            return columns
    raise ValueError(
        "%s has no record with a value" % file_paths[-1] if file_paths else "there is no file with records"
    )


def filtered(name: str, frame: DataFrame, condition: str) -> DataFrame:
    """The rows for which a condition of Spark SQL is true. Raises `DataError`, one line."""
    if not is_spark(frame):
        raise DataError(
            "--where is for Spark's DataFrames and for files: filter pandas' yourself: %s = %s.query(%r)"
            % (name, name, condition)
        )
    return _in_one_line("--where %s" % condition, lambda: frame.where(condition))


def _in_one_line(option: str, action: Callable[[], Any], cause: Callable[[Exception], str] = spark_error.cause) -> Any:
    try:
        return action()
    except Exception as error:  # of Spark's parser or analysis, of a file system or of its Java
        raise DataError("%s: %s" % (option, cause(error))) from error


def _no_parquet(error: Exception) -> str:
    """Why files are not read as Parquet, which those are taken for whose names say nothing else."""
    text = str(error)
    not_parquet = re.search(r"(\S+) is not a Parquet file( \(length is too low: 0\))?", text)
    if not_parquet and not_parquet[2]:
        return "%s is empty (0 bytes): remove it, or write it again" % not_parquet[1]
    if not_parquet:
        words = "name files of other formats with their ending, as in FOLDER/*.csv, or read them into a DataFrame first"
        return "%s is not a Parquet file: %s" % (not_parquet[1], words)
    if "infer schema" in text:
        return "there is no file with columns"
    if "TIMESTAMP(NANOS" in text:
        code = "df.to_parquet(FILE, coerce_timestamps='us', allow_truncated_timestamps=True)"
        return "Spark does not read times in nanoseconds: write them as %s" % code
    if "COLUMN_ALREADY_EXISTS" in text:
        words = "two columns have names that are one for Spark, as upper and lower case are"
        return "%s: set spark.conf.set('spark.sql.caseSensitive', 'true')" % words
    cause = spark_error.cause(error)
    if "NullPointerException" in cause or "Illegal Parquet type" in cause:
        return "this Spark does not know the type of a column, as it may be of float16: write it as float32"
    return cause


def opened(session: Any, spec: RunSpec) -> FileSource | None:
    """The files of --data, or None where it names a DataFrame."""
    uri = str(spec.data or "")
    return source(session, uri) if uri and is_files(uri) else None


def with_frame(namespace: Mapping[str, Any], spec: RunSpec, files: FileSource | None) -> Mapping[str, Any]:
    """`namespace` with the DataFrame of the files under the name that --data gives them."""
    return namespace if files is None else {**namespace, str(spec.data): files.frame}
