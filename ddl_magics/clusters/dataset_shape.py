"""What `dataset` of --data will give the cell, in words, from the DataFrame's types; no row is read by Spark."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ddl_magics.runtime.data import columns
from ddl_magics.runtime.data.records import Arrangement, Column, Features
from ddl_magics.runtime.data.roles import Roles, choose, indices
from ddl_magics.runtime.run_spec import RunSpec


def described(spec: RunSpec, namespace: Mapping[str, Any]) -> str | None:
    """ "features of shape (batch, 3), labels of shape (batch,)"; None without --data or if the columns are wrong."""
    arranged = _arrangement(spec, namespace)
    if arranged is None:
        return None
    frame_columns, arrangement = arranged

    def shape_text(role: str, tensors: Features, axes: list[str]) -> str:
        def shape(index: int) -> str:
            return _shape(axes, [frame_columns[i] for i in arrangement["tensors"][index]])

        if isinstance(tensors, int):
            return f"{role} of shape {shape(tensors)}"
        return f"a dict of {role}, " + ", ".join(f"{name} of shape {shape(index)}" for name, index in tensors.items())

    features = shape_text("features", arrangement["features"], _axes(spec))
    if arrangement["label"] is None:
        return features
    weights = "" if arrangement["weight"] is None else "; weights of shape (batch,)"
    return f"{features}; {shape_text('labels', arrangement['label'], ['batch'])}{weights}"


def problem(spec: RunSpec, namespace: Mapping[str, Any]) -> str | None:
    """Why `fit` of the cell would fail on a `dataset` without labels, in one line, or None.

    Only where the cell itself shows it: it compiles a loss, fits on `dataset` as it is, and has no class of its own.
    """
    arranged = _arrangement(spec, namespace)
    if arranged is None or arranged[1]["label"] is not None or any(map(_is_own, namespace.values())):
        return None
    nodes = list(ast.walk(ast.parse(spec.cell)))
    if any(isinstance(node, ast.ClassDef) or _is_stored(node) for node in nodes) or "add_loss" in spec.cell:
        return None
    calls = [node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    if not any(_compiles_loss(call) for call in calls):
        return None
    line = next((call.lineno for call in calls if _fits_dataset(call)), None)
    if line is None:
        return None
    return (
        f"line {line}: dataset has no labels, which the compiled loss compares with: add --label COLUMN, the column of "
        f"{spec.data} that the model learns to predict."
    )


def _is_own(value: Any) -> bool:
    """Whether a class of the notebook, such as a model with its own training, or an object of one."""
    return (value if isinstance(value, type) else type(value)).__module__ == "__main__"


def _is_stored(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "dataset" and isinstance(node.ctx, ast.Store)


def _compiles_loss(call: ast.Call) -> bool:
    loss = {keyword.arg: keyword.value for keyword in call.keywords}.get("loss", (*call.args, None, None)[1])
    is_none = loss is None or (isinstance(loss, ast.Constant) and loss.value is None)
    return isinstance(call.func, ast.Attribute) and call.func.attr == "compile" and not is_none


def _fits_dataset(call: ast.Call) -> bool:
    x = {keyword.arg: keyword.value for keyword in call.keywords}.get("x", (*call.args, None)[0])
    is_fit = isinstance(call.func, ast.Attribute) and call.func.attr == "fit"
    return is_fit and isinstance(x, ast.Name) and x.id == "dataset"


def notices(spec: RunSpec, namespace: Mapping[str, Any]) -> Iterator[str]:
    """Surprises in `dataset`: no label, a text label, a feature without a last axis, or features that became a dict."""
    arranged = _arrangement(spec, namespace)
    if arranged is None:
        return
    frame_columns, arrangement = arranged
    features, tensors = arrangement["features"], arrangement["tensors"]
    if arrangement["label"] is None:
        yield "dataset has no label, which model.fit needs unless the model computes its own loss: --label COLUMN"
    for index in [] if arrangement["label"] is None else indices(arrangement["label"]):
        for column in (frame_columns[i] for i in tensors[index]):
            if column["dtype"] == "S":
                yield (
                    f"the label {column['name']} is text, and a loss wants numbers: encode it in the DataFrame, or in "
                    "the cell with keras.layers.StringLookup"
                )
    if isinstance(features, dict) and all(
        frame_columns[tensors[index][0]]["name"] == name for name, index in features.items()
    ):
        yield (
            f"dataset gives a dict of the {len(features)} features, because one of them is text or an array: the model "
            "needs an Input of that name for each"
        )
    elif isinstance(features, int) and len(tensors[features]) == 1 and frame_columns[0]["depth"] == 0:
        shape = f"{frame_columns[0]['name']} with the shape {_shape(_axes(spec), frame_columns[:1])}"
        if spec.sequence_length is None:
            yield (
                f"dataset gives {shape}, and a Dense layer wants (batch, 1): begin the model with "
                "keras.layers.Reshape((1,))"
            )
        else:
            yield (
                f"dataset gives {shape}, and an LSTM or a Conv1D wants a last axis of 1: begin the model with "
                f"keras.layers.Reshape(({spec.sequence_length}, 1))"
            )


def _arrangement(spec: RunSpec, namespace: Mapping[str, Any]) -> tuple[list[Column], Arrangement] | None:
    """(columns of features, labels and weight; their arrangement in tensors)."""
    if spec.data is None:
        return None
    try:
        frame = columns.frame_named("--data", spec.data, namespace)
        choice = choose(spec.data, frame, Roles.from_spec(spec))
        frame_columns = columns.describe_columns(spec.data, frame, choice.names())
        return frame_columns, choice.arrange(frame_columns)
    except columns.DataError:  # the launch says so
        return None


def _axes(spec: RunSpec) -> list[str]:
    """The leading axes of features: rows of a batch, or its windows and their rows."""
    return ["batch"] if spec.sequence_length is None else ["batch", str(spec.sequence_length)]


def _shape(axes: list[str], tensor_columns: Sequence[Column]) -> str:
    """The shape of a tensor of these columns, in words."""
    sizes = [str(len(tensor_columns))] if len(tensor_columns) > 1 else ["size"] * tensor_columns[0]["depth"]
    shape = [*axes, *sizes]
    return f"({shape[0]},)" if len(shape) == 1 else f"({', '.join(shape)})"
