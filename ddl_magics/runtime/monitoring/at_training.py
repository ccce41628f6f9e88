"""A rank's part of the reference: a sketch of a sample of its rows and, on the chief, of the model's outputs."""

from __future__ import annotations

import os
import time
from typing import Any, List, Mapping

import numpy as np

from ..data import rank_data, share_files
from ..data.records import is_ragged
from ..rank.rank import Rank
from . import reference, watched
from .watched import Tensor

#: Rows of all ranks together, and bytes of one rank's.
SAMPLE_ROWS, SAMPLE_BYTES = 20_000, 32 << 20
#: Of a model's inputs, so many elements are watched at most: whole tensors, the first ones.
MAX_WATCHED = 512
#: Rows that the model is called with, in all and at once, bytes of them, and seconds after which no batch begins.
OUTPUT_ROWS, BATCH_ROWS, OUTPUT_BYTES, OUTPUT_SECONDS = 2_000, 256, 32 << 20, 2.0


def report(rank: Rank) -> None:
    """Send the sketches of this rank's rows of --data, if it has any. A notice where they cannot be made."""
    config = rank.config
    if config.whole_data and not rank.peers.is_chief:
        return  # which has the same rows
    if not config.manifest or config.spec.reference is False or config.spec.transform is not None:
        return  # with --transform, the rows are not what the model takes
    try:
        rank.reporter.emit("reference", **_sketches(rank, config.manifest))
    except Exception as error:  # of the user's model, of any kind: the training has ended well
        text = "there is no reference of the data for %%ddl monitor: %s: %s"
        rank.reporter.notice_once("info", text % (type(error).__name__, str(error).partition("\n")[0]))


def _sketches(rank: Rank, manifest: Any) -> Mapping[str, Any]:
    inputs = _inputs(manifest)
    sequences = manifest.get("sequences")
    size = max(1, rank_data.row_bytes(manifest) * (1 if sequences is None else sequences["length"]))
    _, shares = rank.config.share_of_data(rank.config.rank)
    rows = _sample(rank, manifest, "train", min(SAMPLE_ROWS // shares + 1, SAMPLE_BYTES // size))
    points = reference.points_for(sum(len(tensor["named"]) for tensor in inputs))
    tensors = rows if isinstance(rows, dict) else {"": rows}
    sketches = [
        reference.sketch(values, points)
        for tensor in inputs
        for values in watched.values(tensor, tensors[tensor["name"]])
    ]
    outputs: List[Tensor] = []
    predicted: List[reference.Sketch] = []
    if rank.peers.is_chief and rank.models and rank.training is not None:
        held_out = bool(manifest["validation_rows"])
        max_rows = max(1, min(OUTPUT_ROWS, OUTPUT_BYTES // size))
        rows = _sample(rank, manifest, "validation" if held_out else "train", max_rows)
        for name, values in _predicted(rank, rows).items():
            tensor = watched.of_output(name, values.shape[1:])
            outputs.append(tensor)
            predicted += [reference.sketch(series, reference.MAX_POINTS) for series in watched.values(tensor, values)]
    count = int(next(iter(tensors.values())).shape[0])
    return {"rows": count, "inputs": inputs, "outputs": outputs, "sketches": sketches, "output_sketches": predicted}


def _predicted(rank: Rank, rows: Any) -> Mapping[str, Any]:
    """What the last model makes of rows; nothing of a model that is not called with the features alone."""
    assert rank.training is not None
    try:
        with rank.training.alone():
            return _by_name(_outputs(rank.models[-1], rows))
    except Exception:  # of any kind: a model that a loop of the cell's own calls in another way
        return {}


def _inputs(manifest: Any) -> List[Tensor]:
    """What is watched of the model's inputs."""
    features, windowed = manifest["features"], manifest.get("sequences") is not None
    tensor_indices = {"": features} if isinstance(features, int) else features
    candidates = []
    for name, index in tensor_indices.items():
        tensor = manifest["tensors"][index]
        if tensor["use"] == "sparse" or is_ragged(tensor["use"]):
            continue
        text = share_files.is_text(tensor)
        candidates.append(watched.of_input(name, tensor["name"], tensor["shape"], text, windowed))
    tensors = [tensor for tensor in candidates if tensor is not None]
    before = [sum(len(tensor["named"]) for tensor in tensors[:index]) for index in range(len(tensors))]
    return [tensor for tensor, count in zip(tensors, before) if count + len(tensor["named"]) <= MAX_WATCHED]


def _sample(rank: Rank, manifest: Any, name: Any, max_rows: int) -> Any:
    """The features of at most so many rows, evenly spread over this rank's share."""
    import tensorflow as tf

    config = rank.config
    share = rank_data.share(tf, os.path.join(config.scratch, "data"), name, manifest)
    count = share_files.share_rows(manifest, name, config.share_of_data(config.rank)[0])
    rows = np.unique(np.linspace(0, count - 1, min(count, max(1, max_rows))).astype(np.int64))
    element = share.element(tf.constant(rows))
    return element[0] if isinstance(element, tuple) else element


def _outputs(model: Any, features: Any) -> Any:
    """What the model makes of rows. Called without compiling it: that takes longer than so few rows."""
    import tensorflow as tf

    count = int(tf.nest.flatten(features)[0].shape[0])
    batches: List[Any] = []
    begun = time.monotonic()
    for start in range(0, count, BATCH_ROWS):
        if batches and time.monotonic() - begun > OUTPUT_SECONDS:
            break
        batch = tf.nest.map_structure(lambda tensor, at=start: tensor[at : at + BATCH_ROWS], features)
        batches.append(tf.nest.map_structure(np.asarray, model(batch, training=False)))
    return tf.nest.map_structure(lambda *arrays: np.concatenate(arrays), *batches)


def _by_name(structure: Any) -> Mapping[str, Any]:
    """Tensors by name; "" for the only one. Those of a list get their number."""
    if isinstance(structure, dict):
        return {name: np.asarray(tensor) for name, tensor in structure.items()}
    if isinstance(structure, (list, tuple)):
        if len(structure) == 1:
            return {"": np.asarray(structure[0])}
        return {str(number): np.asarray(tensor) for number, tensor in enumerate(structure)}
    return {"": np.asarray(structure)}
