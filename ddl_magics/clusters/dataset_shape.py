"""What `dataset` of --data will give the cell, in words, from the DataFrame's types; no row is read by Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ddl_magics.runtime.data import columns
from ddl_magics.runtime.data.records import Arrangement, Column, Features
from ddl_magics.runtime.data.roles import Roles, choose, indices
from ddl_magics.runtime.run_spec import RunSpec


def described(spec: RunSpec, namespace: Mapping[str, Any]) -> str | None:
    """ "features of shape (batch, 3), labels of shape (batch,)"; None without --data or where it cannot be told."""
    found = _arrangement(spec, namespace)
    if found is None:
        return None
    known, arrangement = found

    def shown(what: str, part: Features, axes: list[str]) -> str:
        shapes = {index: _shape(axes, [known[i] for i in arrangement["tensors"][index]]) for index in indices(part)}
        if isinstance(part, int):
            return f"{what} of shape {shapes[part]}"
        return f"a dict of {what}, " + ", ".join(f"{name} of shape {shapes[index]}" for name, index in part.items())

    features = shown("features", arrangement["features"], _axes(spec))
    if arrangement["label"] is None:
        return features
    weights = "" if arrangement["weight"] is None else "; weights of shape (batch,)"
    return f"{features}; {shown('labels', arrangement['label'], ['batch'])}{weights}"


def notices(spec: RunSpec, namespace: Mapping[str, Any]) -> Iterator[str]:
    """What surprises in `dataset`: no label or one of text, one feature without an axis of its own, a dict of features
    that nobody asked for.
    """
    found = _arrangement(spec, namespace)
    if found is None:
        return
    known, arrangement = found
    features, tensors = arrangement["features"], arrangement["tensors"]
    if arrangement["label"] is None:
        yield "dataset has no label, which model.fit needs unless the model computes its own loss: --label COLUMN"
    for index in [] if arrangement["label"] is None else indices(arrangement["label"]):
        for column in (known[i] for i in tensors[index]):
            if column["dtype"] == "S":
                yield (
                    f"the label {column['name']} is text, and a loss wants numbers: encode it in the DataFrame, or in "
                    "the cell with keras.layers.StringLookup"
                )
    if isinstance(features, dict) and all(known[tensors[index][0]]["name"] == name for name, index in features.items()):
        yield (
            f"dataset gives a dict of the {len(features)} features, because one of them is text or an array: the model "
            "needs an Input of that name for each"
        )
    elif isinstance(features, int) and len(tensors[features]) == 1 and known[0]["depth"] == 0:
        shape = f"{known[0]['name']} with the shape {_shape(_axes(spec), known[:1])}"
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
    """(the columns of features, labels and weight, their arrangement in tensors)."""
    if spec.data is None:
        return None
    try:
        frame = columns.frame_named("--data", spec.data, namespace)
        choice = choose(spec.data, frame, Roles.from_spec(spec))
        known = [columns.describe(spec.data, frame, name) for name in choice.names()]
        return known, choice.arrange(known)
    except columns.DataError:  # the launch says so
        return None


def _axes(spec: RunSpec) -> list[str]:
    """Of features: those of the rows in a batch, or of its windows and their rows."""
    return ["batch"] if spec.sequence_length is None else ["batch", str(spec.sequence_length)]


def _shape(axes: list[str], known: Sequence[Column]) -> str:
    """known: the columns of one tensor."""
    sizes = [str(len(known))] if len(known) > 1 else ["size"] * known[0]["depth"]
    shape = [*axes, *sizes]
    return f"({shape[0]},)" if len(shape) == 1 else f"({', '.join(shape)})"
