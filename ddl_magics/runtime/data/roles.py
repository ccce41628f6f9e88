"""What the options use the columns of a DataFrame for, and the tensors that this makes of them.

--features and --label name columns, or make a dict: `image=pixels,meta=a+b+c` has the column pixels as `image`, and the
matrix of a, b and c as `meta`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Sequence

import numpy as np

from ..run_spec import RunSpec
from .columns import DataError, check_column, check_weight

if TYPE_CHECKING:
    from .records import Arrangement, Column, DataFrame, Features, Inputs, Tensor


@dataclass(frozen=True)
class Part:
    """A tensor as an option names it. name: in a dict, or None without "="."""

    name: str | None
    columns: tuple[str, ...]

    @classmethod
    def read(cls, text: str, known: Sequence[str]) -> Part:
        """known: a frame's columns, whose names may contain signs."""
        name, equals, columns = text.partition("=")
        if not equals or text in known:
            return cls(None, (text,))
        return cls(name, (columns,) if columns in known else tuple(columns.split("+")))


def named_columns(texts: Sequence[str], known: Sequence[str]) -> list[str]:
    """The columns that values of --features or --label name."""
    return [column for text in texts for column in Part.read(text, known).columns]


def label_texts(label: str | None, known: Sequence[str]) -> list[str]:
    """The values of --label, which may name several: `y1=a,y2=b`."""
    if label is None:
        return []
    return [label] if label in known or "=" not in label else label.split(",")


@dataclass(frozen=True)
class Roles:
    """What the options use columns for. features: None for all columns without another role.

    past: whether a row's label is another row's value, that of --horizon rows later: its column may be a feature, too.
    """

    features: Sequence[str] | None = None
    label: str | None = None
    weight: str | None = None
    order_by: str | None = None
    group_by: Sequence[str] = ()
    past: bool = False

    @classmethod
    def from_spec(cls, spec: RunSpec) -> Roles:
        past = spec.sequence_length is not None and spec.horizon != 0
        keys = spec.order_by, spec.group_by or ()
        return cls(spec.features, spec.label, spec.weight, *keys, past)

    def named(self, known: Sequence[str]) -> list[tuple[str, str]]:
        """(option, column) of all but the features."""
        labels = [("--label", name) for name in named_columns(label_texts(self.label, known), known)]
        others = [("--weight", self.weight), ("--order-by", self.order_by)]
        groups = [("--group-by", name) for name in self.group_by]
        return labels + [(option, name) for option, name in others if name is not None] + groups


@dataclass(frozen=True)
class Choice:
    """The columns of a frame that a run uses."""

    features: Sequence[Part]
    labels: Sequence[Part]
    weight: str | None

    def names(self) -> list[str]:
        """The columns of the features, then those of the labels and the weight; one may be there twice."""
        names = [column for part in (*self.features, *self.labels) for column in part.columns]
        return names if self.weight is None else names + [self.weight]

    def arrange(self, columns: Sequence[Column]) -> Arrangement:
        """How columns become tensors. columns: as described, of `names`. Raises `DataError`, one line.

        Several features without names that are plain numbers make one matrix. If one is an array or text, each is a
        tensor of its own.
        """
        if self.weight is not None:
            check_weight(columns[-1])
        tensors: list[list[int]] = []
        shown, first = _arrange("--features", self.features, columns, 0, tensors)
        if self._is_unnamed() and all(map(_is_number, columns[:first])):
            tensors[:], shown = [list(range(first))], 0
        label: Features | None = None
        if self.labels:
            label, first = _arrange("--label", self.labels, columns, first, tensors)
        weight = None if self.weight is None else len(tensors)
        if weight is not None:
            tensors.append([first])
        return {"tensors": tensors, "features": shown, "label": label, "weight": weight}

    def texts_among_numbers(self, columns: Sequence[Column]) -> list[str]:
        """The columns of text that keep features without names, numbers else, from being one matrix."""
        own = columns[: sum(len(part.columns) for part in self.features)]
        texts = [column["name"] for column in own if column["dtype"] == "S" and column["depth"] == 0]
        return texts if self._is_unnamed() and any(map(_is_number, own)) else []

    def _is_unnamed(self) -> bool:
        return len(self.features) > 1 and all(part.name is None for part in self.features)


def mark_sparse(columns: Sequence[Column], names: Sequence[str]) -> None:
    """Note that the columns of --sparse stay sparse. `DataError` for one that is used in another way."""
    found = {column["name"]: column for column in columns}
    for name in names:
        if name not in found:
            raise DataError("--sparse %s: it is not among the features: %s" % (name, ", ".join(found)))
        if not found[name]["vector"]:
            raise DataError("--sparse %s: its values are no vectors of pyspark.ml" % name)
        found[name]["sparse"] = True


def indices(shown: Features | None) -> list[int]:
    """Those of the tensors that make features or labels."""
    return [] if shown is None else [shown] if isinstance(shown, int) else list(shown.values())


def used_as(dtype: np.dtype, in_matrix: bool) -> str:
    """What a dataset makes of numbers or text of a dtype: "string", "floatx" for Keras' dtype, or the dtype itself.

    in_matrix: whether they are a matrix of several columns.
    """
    if dtype.kind in "OS":
        return "string"
    return "floatx" if dtype.kind == "f" or in_matrix else dtype.name


def inputs(columns: Sequence[Column], arrangement: Arrangement, tensors: Sequence[Tensor] | None = None) -> Inputs:
    """The part of the arrangement that are features; their columns and tensors come first.

    tensors: as dealt. Without them, the dtypes are those that the columns are described with. Sparse vectors become
    dense where rows are scored.
    """
    shown = arrangement["tensors"][: len(indices(arrangement["features"]))]
    if tensors is None:
        dtypes = [np.result_type(*(np.dtype(columns[index]["dtype"]) for index in own)) for own in shown]
        uses = [used_as(dtype, len(own) > 1) for dtype, own in zip(dtypes, shown)]
    else:
        uses = [tensor["use"].replace("sparse", "floatx") for tensor in tensors[: len(shown)]]
    return {
        "columns": [_dense(each) for each in columns[: 1 + max(index for own in shown for index in own)]],
        "tensors": shown,
        "uses": uses,
        "shapes": None if tensors is None else [tensor["shape"] for tensor in tensors[: len(shown)]],
        "features": arrangement["features"],
    }


def _dense(column: Column) -> Column:
    return {**column, "sparse": False} if column.get("sparse") else column


def _arrange(
    option: str, parts: Sequence[Part], columns: Sequence[Column], first: int, tensors: list[list[int]]
) -> tuple[Features, int]:
    """Append the tensors of `parts`, whose columns begin at `first`: (their indices, where the next columns begin)."""
    shown: dict[str, int] = {}
    for part in parts:
        own = list(range(first, first + len(part.columns)))
        unfit = [columns[index]["name"] for index in own if not _is_number(columns[index])]
        if len(own) > 1 and unfit:
            raise DataError(
                "%s %s=%s: column %r holds text or arrays, and only numbers make one tensor: give it a name of its own"
                % (option, part.name, "+".join(part.columns), unfit[0])
            )
        shown[part.columns[0] if part.name is None else part.name] = len(tensors)
        tensors.append(own)
        first += len(own)
    if len(parts) == 1 and parts[0].name is None:
        return len(tensors) - 1, first
    return shown, first


def _is_number(column: Column) -> bool:
    return column["depth"] == 0 and column["dtype"] != "S"


def choose(frame_name: str, frame: DataFrame, roles: Roles) -> Choice:
    """The columns to use of `frame`. Raises `DataError` for a name that is missing, ambiguous or given twice."""
    known = [str(column) for column in frame.columns]
    named = roles.named(known)
    for option, name in named:
        check_column(option, name, frame_name, known)
    if roles.label is None and roles.weight is not None:
        raise DataError("--weight %s needs --label: it weighs the loss of a row" % roles.weight)
    labels = [Part.read(text, known) for text in label_texts(roles.label, known)]
    if roles.weight is not None and ("--label", roles.weight) in named:
        raise DataError("--weight %s is also the --label; name a column of its own" % roles.weight)
    if roles.features is None:
        features = _all_others(frame_name, known, roles, named)
    else:
        features = [Part.read(text, known) for text in roles.features]
    for option, parts in (("--features", features), ("--label", labels)):
        _check_names(option, parts)
    _check_features(frame_name, known, features)
    used = {column for part in features for column in part.columns}
    for option, name in named:
        if name in used and option in (["--weight"] if roles.past else ["--label", "--weight"]):
            raise DataError("%s %s is also among --features; take it out of one" % (option, name))
    return Choice(features, labels, roles.weight)


def _all_others(frame_name: str, known: Sequence[str], roles: Roles, named: Sequence[tuple[str, str]]) -> list[Part]:
    features = [Part(None, (column,)) for column in known if column not in {name for _, name in named}]
    if not features:
        besides = " and ".join("the %s %s" % (option[2:], name) for option, name in named)
        hint = ": --features %s gives its past values" % roles.label if roles.past and roles.label else ""
        raise DataError("%s has no column besides %s to be a feature%s" % (frame_name, besides, hint))
    return features


def _check_features(frame_name: str, known: Sequence[str], features: Sequence[Part]) -> None:
    plain = [part.columns[0] for part in features if part.name is None]
    for part in features:
        for column in part.columns:
            check_column("--features", column, frame_name, known)
    twice = [column for column in plain if plain.count(column) > 1]
    if twice:
        raise DataError("--features names %s twice" % twice[0])


def _check_names(option: str, parts: Sequence[Part]) -> None:
    """Of a dict."""
    names = [part.columns[0] if part.name is None else part.name for part in parts]
    if not any(part.name is not None for part in parts):
        return
    for part, name in zip(parts, names):
        if not name or not all(part.columns):
            shown = "%s=%s" % (name, "+".join(part.columns))
            raise DataError("%s %s: write NAME=COLUMN, or NAME=COLUMN+COLUMN for a matrix" % (option, shown))
        if names.count(name) > 1:
            raise DataError("%s gives two tensors the name %s; name them apart" % (option, name))
    if option == "--label" and any(part.name is None for part in parts):
        raise DataError("--label: name each label of several, as in --label y1=COLUMN,y2=COLUMN")
