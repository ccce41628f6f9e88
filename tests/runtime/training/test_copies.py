"""What a rank has in memory beside a model, while it is sent somewhere: nothing that is as large as the model."""

import tracemalloc
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from ddl_magics.runtime.cell import execution
from ddl_magics.runtime.checkpoints import checkpoint
from ddl_magics.runtime.checkpoints.checkpoint import Position
from ddl_magics.runtime.gradients import reduce
from ddl_magics.runtime.keras_types import array_of
from ddl_magics.runtime.training import checkpointing

LAYERS, WIDTH = 8, 1024
LAYER_BYTES = 4 * WIDTH * WIDTH
#: A few layers: HDF5 and Python's zip files have buffers, and NumPy writes in pieces of 16 MB.
MOST_BYTES = 6 * LAYER_BYTES


@pytest.fixture(scope="module")
def model():
    """Of 34 MB, with twice as much in its optimizer."""
    layers = [keras.layers.Dense(WIDTH, use_bias=False) for _ in range(LAYERS)]
    made = keras.Sequential([keras.Input((WIDTH,)), *layers])
    made.compile("adam", "mse")
    made.optimizer.build(made.trainable_variables)
    return made


def peak_of(function):
    """The most bytes that Python and NumPy have at once for it, beside what they had before."""
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_trained_model_is_sent_piece_by_piece(model, tmp_path):
    sent = {}
    reporter = SimpleNamespace(send_artifact=lambda name, path: sent.update({name: path}))
    config, peers = SimpleNamespace(scratch=str(tmp_path)), SimpleNamespace(is_chief=True)
    rank = SimpleNamespace(config=config, peers=peers, cluster=None, models=[model], reporter=reporter)
    assert peak_of(lambda: execution._report_models(rank, {})) < MOST_BYTES
    with np.load(sent["weights-0.npz"]) as stored:
        arrays = [stored[f"arr_{number}"] for number in range(LAYERS)]
    for array, weight, saved in zip(
        arrays, model.get_weights(), keras.models.load_model(sent["model-0.keras"]).get_weights(), strict=True
    ):
        np.testing.assert_array_equal(array, weight)
        np.testing.assert_array_equal(saved, weight)


def test_keras_chooses_again_after_the_model_was_saved(model, tmp_path):
    from keras.src.saving import saving_lib

    before = saving_lib.is_memory_sufficient
    model_without_file = SimpleNamespace()
    assert execution._save(model_without_file, str(tmp_path / "a.keras")) is not None
    assert execution._save(model, str(tmp_path / "b.keras")) is None
    assert saving_lib.is_memory_sufficient is before


def test_a_large_checkpoint_is_written_from_the_weights_themselves(model, tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr(checkpoint, "write", lambda path, metadata, arrays: written.append(arrays))
    sender = checkpointing._Sender(SimpleNamespace(scratch=str(tmp_path)), SimpleNamespace(send_checkpoint=print))
    arrays = {"weights/0": array_of(model.weights[0])}
    assert np.shares_memory(arrays["weights/0"], array_of(model.weights[0])), "the model's own memory"
    for limit, shares in ((LAYER_BYTES, False), (LAYER_BYTES - 1, True)):
        monkeypatch.setattr(checkpointing, "MOST_COPIED_BYTES", limit)
        sender.send(Position(0, 1, 0, False), {}, arrays)
        assert sender.busy or written
        sender._thread.join()
        (content,) = written
        written.clear()
        assert np.shares_memory(content["weights/0"], arrays["weights/0"]) is shares
        np.testing.assert_array_equal(content["weights/0"], arrays["weights/0"])


def test_weights_at_the_start_are_sent_in_groups(model):
    sizes = []

    def broadcast(flat, _announcement):
        sizes.append(flat.nbytes)

    peers = SimpleNamespace(
        collective=SimpleNamespace(broadcast=broadcast),
        announcement=lambda kind: kind,
        complete=lambda make, repeats: make(),
        regrouping=None,
        position=0,
    )
    assert peak_of(lambda: reduce.broadcast_weights(peers, model.weights)) < MOST_BYTES
    assert sum(sizes) == LAYERS * LAYER_BYTES and max(sizes) == reduce.GROUP_BYTES == 4 * LAYER_BYTES
    sizes.clear()
    reduce.broadcast_weights(peers, [])
    assert sizes == [0], "ranks meet for no weights, too"
