"""Which columns of a DataFrame become which tensors: names checked, types understood, one line for what cannot be."""

import difflib

import numpy as np

#: Spark's name of a type -> the numpy type that holds it. "S" stands for text, of a width that only the data tells.
_SPARK_TYPES = {
    "byte": "i1",
    "short": "i2",
    "integer": "i4",
    "long": "i8",
    "float": "f4",
    "double": "f8",
    "decimal": "f8",
    "boolean": "?",
    "string": "S",
}


class FeedError(ValueError):
    """The data cannot be fed to the ranks: one line that names the column or DataFrame and what to do."""


def is_spark(value):
    """True for a pyspark DataFrame."""
    return type(value).__module__.startswith("pyspark.sql.") and hasattr(value, "schema") and hasattr(value, "select")


def is_pandas(value):
    """True for a pandas DataFrame."""
    return type(value).__module__.startswith("pandas.") and hasattr(value, "iloc") and hasattr(value, "columns")


def nearest_frame(name, namespace):
    """The name of a DataFrame in `namespace` that `name` may have meant, or None."""
    frames = [
        key for key, value in namespace.items() if not key.startswith("_") and (is_spark(value) or is_pandas(value))
    ]
    near = difflib.get_close_matches(name, frames, 1)
    return near[0] if near else (frames[0] if len(frames) == 1 else None)


def frame_named(option, name, namespace):
    """The DataFrame that is called `name`; FeedError with the nearest right name."""
    if name not in namespace:
        near = nearest_frame(name, namespace)
        hint = "; did you mean %r?" % near if near else ""
        raise FeedError("%s %s: there is no such DataFrame in the session%s" % (option, name, hint))
    check_frame(option, name, namespace[name])
    return namespace[name]


def check_frame(option, name, value):
    """FeedError where `value` is no DataFrame."""
    if not is_spark(value) and not is_pandas(value):
        kind = type(value)
        hint = "; call .to_spark() on it" if kind.__module__.startswith("pyspark.pandas") else ""
        raise FeedError(
            "%s %s is a %s, and must be a Spark or a pandas DataFrame%s" % (option, name, kind.__qualname__, hint)
        )


def choose(frame_name, frame, features, label):
    """The columns of `frame` to use, checked: (names of the features, label or None). None: all but the label."""
    known = [str(column) for column in frame.columns]
    twice = sorted({column for column in known if known.count(column) > 1})

    def check(option, column):
        if column not in known:
            lower = {name.lower(): name for name in reversed(known)}
            near = difflib.get_close_matches(column.lower(), lower, 1)
            hint = "did you mean %r?" % lower[near[0]] if near else "it has %s" % _shortened(known)
            raise FeedError("%s %s: %s has no such column; %s" % (option, column, frame_name, hint))
        if column in twice:
            raise FeedError(
                "%s %s: %s has more than one column of that name; rename one" % (option, column, frame_name)
            )

    if label is not None:
        check("--label", label)
    if features is None:
        features = [column for column in known if column != label]
        if not features:
            raise FeedError("%s has no column besides the label %s to be a feature" % (frame_name, label))
    for column in features:
        check("--features", column)
        if features.count(column) > 1:
            raise FeedError("--features names %s twice" % column)
    if label in features:
        raise FeedError("--label %s is also among --features; take it out of one" % label)
    return list(features), label


def _shortened(names, most=8):
    more = ", ... (%d in all)" % len(names) if len(names) > most else ""
    return ", ".join(names[:most]) + more


def describe(frame_name, frame, name):
    """How a column is to be read: {"name", "dtype", "depth", "vector"} as `feed_pack.as_array` takes it."""
    return (_describe_spark if is_spark(frame) else _describe_pandas)(frame_name, frame, name)


def _unsupported(frame_name, name, kind):
    return FeedError(
        "column %r of %s is of type %s: turn it into numbers, texts or arrays of them, or leave it out of --features"
        % (name, frame_name, kind)
    )


def _describe_spark(frame_name, frame, name):
    kind, depth = frame.schema[name].dataType, 0
    if type(kind).__name__ == "VectorUDT":
        return {"name": name, "dtype": "f8", "depth": 1, "vector": True}
    while kind.typeName() == "array":
        kind, depth = kind.elementType, depth + 1
    if kind.typeName() not in _SPARK_TYPES:
        raise _unsupported(frame_name, name, kind.simpleString())
    return {"name": name, "dtype": _SPARK_TYPES[kind.typeName()], "depth": depth, "vector": False}


def _describe_pandas(frame_name, frame, name):
    series = _pandas_column(frame, name)
    # Extension types (Int64, boolean, string) say by their own dtype what they hold; missing values are found later.
    dtype = getattr(series.dtype, "numpy_dtype", series.dtype)
    if isinstance(dtype, np.dtype) and dtype.kind in "iufb":
        return {"name": name, "dtype": dtype.str, "depth": 0, "vector": False}
    if (isinstance(dtype, np.dtype) and dtype.kind != "O") or str(series.dtype) == "category":
        raise _unsupported(frame_name, name, series.dtype)
    present = series.dropna()
    if not len(present):
        raise FeedError("column %r of %s has no values at all: fill or drop it" % (name, frame_name))
    value, depth = present.iloc[0], 0
    if hasattr(value, "toArray"):
        return {"name": name, "dtype": "f8", "depth": 1, "vector": True}
    while isinstance(value, (list, tuple, np.ndarray)):
        if not len(value):
            raise FeedError("column %r of %s holds empty arrays" % (name, frame_name))
        value, depth = value[0], depth + 1
    dtype = np.asarray(value).dtype
    if dtype.kind == "U":
        dtype = "S"
    elif dtype.kind not in "iufb":
        raise _unsupported(frame_name, name, type(value).__name__)
    return {"name": name, "dtype": np.dtype(dtype).str if dtype != "S" else "S", "depth": depth, "vector": False}


def _pandas_column(frame, name):
    """A column by the text of its name: pandas' names may be numbers."""
    return frame.iloc[:, [str(column) for column in frame.columns].index(name)]


def pandas_values(frame, name):
    """A column's values as an array: of numbers where pandas has it so, else of objects, None where one is missing."""
    series = _pandas_column(frame, name)
    if not isinstance(series.dtype, np.dtype) or series.dtype.kind == "O":
        series = series.astype(object).where(series.notna(), None)
    return series.to_numpy()


def arrange(features, label, columns):
    """How columns become tensors, and tensors elements: {"tensors": positions, "features", "label"}.

    columns: what `describe` says, features first, then the label. "features" is a tensor's number, or {name: number}
    where some features are arrays or texts and there are several; several numbers make one matrix, in their order.
    """
    count = len(features)
    matrix = count > 1 and all(column["depth"] == 0 and column["dtype"] != "S" for column in columns[:count])
    if matrix:
        tensors, shown = [list(range(count))], 0
    else:
        tensors = [[position] for position in range(count)]
        shown = 0 if count == 1 else {name: position for position, name in enumerate(features)}
    if label is None:
        return {"tensors": tensors, "features": shown, "label": None}
    return {"tensors": tensors + [[count]], "features": shown, "label": len(tensors)}
