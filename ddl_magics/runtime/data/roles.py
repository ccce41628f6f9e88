"""What the options use the columns of a DataFrame for, and the tensors that this makes of them.

--features and --label name columns, or make a dict: `image=pixels,meta=a+b+c` has the column pixels as `image`, and the
matrix of a, b and c as `meta`.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Mapping, Sequence

import numpy as np

from ..run_spec import RunSpec
from .columns import DataError, check_case, check_column, check_columns, check_weight
from .records import is_ragged

if TYPE_CHECKING:
    from .records import Arrangement, Column, DataFrame, Features, Inputs, TensorLayout

#: What pandas calls the columns of its index in Parquet files. They are features only where --features names them.
_INDEX_OF_PANDAS = re.compile(r"__index_level_\d+__$")


@dataclass(frozen=True)
class TensorColumns:
    """The columns of a tensor, as an option names them. name: in a dict, or None without "="."""

    name: str | None
    columns: tuple[str, ...]

    @classmethod
    def read(cls, text: str, column_names: Sequence[str]) -> TensorColumns:
        """column_names: a frame's columns, whose names may contain signs."""
        name, equals, columns = text.partition("=")
        if not equals or text in column_names:
            return cls(None, (text,))
        return cls(name, (columns,) if columns in column_names else tuple(columns.split("+")))


def named_columns(texts: Sequence[str], column_names: Sequence[str]) -> list[str]:
    """The columns that values of --features or --label name."""
    return [column for text in texts for column in TensorColumns.read(text, column_names).columns]


def label_texts(label: str | None, column_names: Sequence[str]) -> list[str]:
    """The values of --label, which may name several: `y1=a,y2=b`."""
    if label is None:
        return []
    return [label] if label in column_names or "=" not in label else label.split(",")


@dataclass(frozen=True)
class Roles:
    """What the options use columns for. features: None for all columns without another role.

    label_is_later: a row's label is the value of the row --horizon rows later. So its column may be a feature, too.
    """

    features: Sequence[str] | None = None
    label: str | None = None
    weight: str | None = None
    order_by: str | None = None
    group_by: Sequence[str] = ()
    label_is_later: bool = False

    @classmethod
    def from_spec(cls, spec: RunSpec) -> Roles:
        label_is_later = spec.sequence_length is not None and spec.horizon != 0
        keys = spec.order_by, spec.group_by or ()
        return cls(spec.features, spec.label, spec.weight, *keys, label_is_later)

    def columns_by_option(self, column_names: Sequence[str]) -> list[tuple[str, str]]:
        """(option, column) of all but the features."""
        labels = [("--label", name) for name in named_columns(label_texts(self.label, column_names), column_names)]
        single = [("--weight", self.weight), ("--order-by", self.order_by)]
        groups = [("--group-by", name) for name in self.group_by]
        return labels + [(option, name) for option, name in single if name is not None] + groups


@dataclass(frozen=True)
class Choice:
    """The columns of a frame that a run uses."""

    features: Sequence[TensorColumns]
    labels: Sequence[TensorColumns]
    weight: str | None

    def names(self) -> list[str]:
        """The columns of the features, then those of the labels and the weight; one may be there twice."""
        names = [column for tensor in (*self.features, *self.labels) for column in tensor.columns]
        return names if self.weight is None else names + [self.weight]

    def arrange(self, columns: Sequence[Column]) -> Arrangement:
        """How columns become tensors. columns: as described, of `names`. Raises `DataError`, one line.

        Several features without names that are plain numbers make one matrix. If one is an array or text, each is a
        tensor of its own.
        """
        if self.weight is not None:
            check_weight(columns[-1])
        tensors: list[list[int]] = []
        features, position = _arrange("--features", self.features, columns, 0, tensors)
        if self._is_unnamed() and all(map(_is_number, columns[:position])):
            tensors[:], features = [list(range(position))], 0
        label: Features | None = None
        if self.labels:
            label, position = _arrange("--label", self.labels, columns, position, tensors)
        weight = None if self.weight is None else len(tensors)
        if weight is not None:
            tensors.append([position])
        return {"tensors": tensors, "features": features, "label": label, "weight": weight}

    def texts_among_numbers(self, columns: Sequence[Column]) -> list[str]:
        """The columns of text that keep features without names, numbers else, from being one matrix."""
        feature_columns = columns[: sum(len(tensor.columns) for tensor in self.features)]
        texts = [column["name"] for column in feature_columns if column["dtype"] == "S" and column["depth"] == 0]
        return texts if self._is_unnamed() and any(map(_is_number, feature_columns)) else []

    def _is_unnamed(self) -> bool:
        return len(self.features) > 1 and all(tensor.name is None for tensor in self.features)


def mark_sparse(columns: Sequence[Column], names: Sequence[str]) -> None:
    """Note that the columns of --sparse stay sparse. `DataError` for one that is used in another way."""
    by_name = {column["name"]: column for column in columns}
    for name in names:
        if name not in by_name:
            raise DataError("--sparse %s: it is not among the features: %s" % (name, ", ".join(by_name)))
        if not by_name[name]["vector"]:
            raise DataError("--sparse %s: its values are no vectors of pyspark.ml" % name)
        by_name[name]["sparse"] = True


def mark_lists(columns: Sequence[Column], features: int, padding: Mapping[str, int], windows: bool) -> None:
    """Note which columns of lists are padded, and which may be ragged. `DataError` for --pad of another column.

    features: so many of the columns are features. windows: whether these are windows of rows.
    """
    by_name = {column["name"]: column for column in columns}
    for name, length in padding.items():
        if name not in by_name:
            raise DataError(
                "--pad %s=%d: it is not among the columns that are used: %s" % (name, length, ", ".join(by_name))
            )
        if by_name[name]["depth"] != 1 or by_name[name]["vector"]:
            raise DataError("--pad %s=%d: its values are no lists of numbers or texts" % (name, length))
    for index, column in enumerate(columns):
        if column["name"] in padding:
            column["pad"] = padding[column["name"]]
        elif index < features and column["depth"] == 1 and not column["vector"] and not windows:
            column["ragged"] = "if needed"


def padding_of(texts: Sequence[str]) -> dict[str, int]:
    """Of each column of --pad, the length. `DataError` for one with two."""
    padding: dict[str, int] = {}
    for text in texts:
        name, _, length = text.rpartition("=")
        if padding.setdefault(name, int(length)) != int(length):
            raise DataError("--pad gives column %s two lengths: leave one of them out" % name)
    return padding


def indices(features: Features | None) -> list[int]:
    """Those of the tensors that make features or labels."""
    return [] if features is None else [features] if isinstance(features, int) else list(features.values())


def used_as(dtype: np.dtype, in_matrix: bool) -> str:
    """What a dataset makes of numbers or text of a dtype: "string", "floatx" for Keras' dtype, or the dtype itself.

    in_matrix: whether they are a matrix of several columns.
    """
    if dtype.kind in "OS":
        return "string"
    return "floatx" if dtype.kind == "f" or in_matrix else dtype.name


def uses_of(columns: Sequence[Column], tensors: Sequence[Sequence[int]]) -> list[str]:
    """What a dataset makes of tensors before their rows are read. tensors: of each, the indices of its columns."""
    dtypes = [np.result_type(*(np.dtype(columns[index]["dtype"]) for index in indices)) for indices in tensors]
    return [used_as(dtype, len(indices) > 1) for dtype, indices in zip(dtypes, tensors)]


def inputs(
    columns: Sequence[Column], arrangement: Arrangement, tensors: Sequence[TensorLayout] | None = None
) -> Inputs:
    """The part of the arrangement that are features; their columns and tensors come first.

    tensors: as dealt. Without them, the dtypes are those that the columns are described with. Sparse vectors become
    dense where rows are scored.
    """
    tensor_columns = arrangement["tensors"][: len(indices(arrangement["features"]))]
    if tensors is None:
        uses = uses_of(columns, tensor_columns)
    else:
        uses = [tensor["use"].replace("sparse", "floatx") for tensor in tensors[: len(tensor_columns)]]
    used_columns = columns[: 1 + max(index for indices in tensor_columns for index in indices)]
    ragged = {indices[0] for use, indices in zip(uses, tensor_columns) if is_ragged(use)}
    padding = {column["name"]: column["pad"] for column in columns if "pad" in column}
    made: Inputs = {
        "columns": [_as_scored(column, index in ragged) for index, column in enumerate(used_columns)],
        "tensors": tensor_columns,
        "uses": uses,
        "shapes": None if tensors is None else [tensor["shape"] for tensor in tensors[: len(tensor_columns)]],
        "features": arrangement["features"],
    }
    if padding:
        made["padding"] = padding
    return made


def _as_scored(column: Column, as_ragged: bool) -> Column:
    """As rows have it that a model scores: of one length where those of its training had one."""
    if column.get("sparse"):
        return {**column, "sparse": False}
    if "ragged" not in column:
        return column
    if as_ragged:
        return {**column, "ragged": "always"}
    dense: Column = {**column}
    del dense["ragged"]
    return dense


def _arrange(
    option: str,
    named_tensors: Sequence[TensorColumns],
    columns: Sequence[Column],
    position: int,
    tensors: list[list[int]],
) -> tuple[Features, int]:
    """Append the tensors of `named_tensors`, whose columns begin at `position`.

    Returns (their indices, the position of the next columns).
    """
    by_name: dict[str, int] = {}
    for tensor in named_tensors:
        indices = list(range(position, position + len(tensor.columns)))
        unfit = [columns[index]["name"] for index in indices if not _is_number(columns[index])]
        if len(indices) > 1 and unfit:
            raise DataError(
                "%s %s=%s: column %r holds text or arrays, and only numbers make one tensor: give it a name of its own"
                % (option, tensor.name, "+".join(tensor.columns), unfit[0])
            )
        by_name[tensor.columns[0] if tensor.name is None else tensor.name] = len(tensors)
        tensors.append(indices)
        position += len(indices)
    if len(named_tensors) == 1 and named_tensors[0].name is None:
        return len(tensors) - 1, position
    return by_name, position


def _is_number(column: Column) -> bool:
    return column["depth"] == 0 and column["dtype"] != "S"


def choose(frame_name: str, frame: DataFrame, roles: Roles) -> Choice:
    """The columns to use of `frame`. Raises `DataError` for a name that is missing, ambiguous or given twice."""
    column_names = [str(column) for column in frame.columns]
    columns_by_option = roles.columns_by_option(column_names)
    for option, name in columns_by_option:
        check_column(option, name, frame_name, column_names)
    if roles.label is None and roles.weight is not None:
        raise DataError("--weight %s needs --label: it weighs the loss of a row" % roles.weight)
    labels = [TensorColumns.read(text, column_names) for text in label_texts(roles.label, column_names)]
    if roles.weight is not None and ("--label", roles.weight) in columns_by_option:
        raise DataError("--weight %s is also the --label; name a column of its own" % roles.weight)
    if roles.features is None:
        features = _all_others(frame_name, column_names, roles, columns_by_option)
    else:
        features = [TensorColumns.read(text, column_names) for text in roles.features]
    for option, tensors in (("--features", features), ("--label", labels)):
        _check_names(option, tensors)
    _check_features(frame_name, column_names, features)
    feature_names = {column for tensor in features for column in tensor.columns}
    for option, name in columns_by_option:
        if name in feature_names and option in (["--weight"] if roles.label_is_later else ["--label", "--weight"]):
            raise DataError("%s %s is also among --features; take it out of one" % (option, name))
    choice = Choice(features, labels, roles.weight)
    check_case(frame_name, frame, choice.names())
    return choice


def _all_others(
    frame_name: str, column_names: Sequence[str], roles: Roles, columns_by_option: Sequence[tuple[str, str]]
) -> list[TensorColumns]:
    features = [
        TensorColumns(None, (column,))
        for column in column_names
        if column not in {name for _, name in columns_by_option} and not _INDEX_OF_PANDAS.match(column)
    ]
    if not features:
        besides = " and ".join("the %s %s" % (option[2:], name) for option, name in columns_by_option)
        hint = ": --features %s gives its past values" % roles.label if roles.label_is_later and roles.label else ""
        raise DataError("%s has no column besides %s to be a feature%s" % (frame_name, besides, hint))
    return features


def _check_features(frame_name: str, column_names: Sequence[str], features: Sequence[TensorColumns]) -> None:
    plain = [tensor.columns[0] for tensor in features if tensor.name is None]
    feature_columns = [column for tensor in features for column in tensor.columns]
    check_columns("--features", feature_columns, frame_name, column_names)
    column, count = Counter(plain).most_common(1)[0] if plain else ("", 0)
    if count > 1:
        raise DataError("--features names %s twice" % column)


def _check_names(option: str, named_tensors: Sequence[TensorColumns]) -> None:
    """Of a dict."""
    names = [tensor.columns[0] if tensor.name is None else tensor.name for tensor in named_tensors]
    if not any(tensor.name is not None for tensor in named_tensors):
        return
    for tensor, name in zip(named_tensors, names):
        if not name or not all(tensor.columns):
            assignment = "%s=%s" % (name, "+".join(tensor.columns))
            raise DataError("%s %s: write NAME=COLUMN, or NAME=COLUMN+COLUMN for a matrix" % (option, assignment))
        if names.count(name) > 1:
            raise DataError("%s gives two tensors the name %s; name them apart" % (option, name))
    if option == "--label" and any(tensor.name is None for tensor in named_tensors):
        raise DataError("--label: name each label of several, as in --label y1=COLUMN,y2=COLUMN")
