"""`--target` with every strategy: a fit ends after the epoch that reaches it, on all ranks, and the cell continues."""

import pytest
from support import launch

pytestmark = pytest.mark.timeout(300)

# A line that is learned evenly: the loss falls in every epoch, and each strategy needs several epochs to the target.
FITS = """
import keras, numpy as np
keras.utils.set_random_seed(1)
x = np.random.default_rng(3).normal(size=(64, 3)).astype("float32")
y = x.sum(1, keepdims=True)
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")])
model.compile(keras.optimizers.SGD(0.01), "mse")
without = model.fit(x, y, batch_size=16, epochs=2, verbose=0).history
history = model.fit(x, y, batch_size=16, epochs=400, verbose=0, validation_data=(x, y)).history
ddl.log(weights=float(np.sum(model.get_weights()[0])), epochs=len(history["loss"]))
[without, history]
"""
TARGET = 0.5


@pytest.mark.parametrize(
    "spec",
    [
        {"strategy": "allreduce"},
        {"strategy": "ps", "rule": launch.DEFAULT_RULE, "window": 2},
        pytest.param({"strategy": "average"}, marks=pytest.mark.slow),
        pytest.param({"strategy": "allreduce", "rule": "easgd", "window": 1}, marks=pytest.mark.slow),
        pytest.param({"strategy": "single", "workers": 1}, marks=pytest.mark.slow),
    ],
    ids=lambda spec: spec.get("rule") or spec["strategy"],
)
def test_a_fit_ends_after_the_epoch_that_reaches_it_and_the_cell_continues(rank_pool, spec):
    ended = launch.finished(rank_pool(2), FITS, target=f"val_loss:{TARGET}", **spec)
    without, history = ended.result
    *before, last = history["val_loss"]
    assert last <= TARGET and before and min(before) > TARGET
    assert ended.message.endswith(f"; target val_loss <= 0.5 reached in epoch {len(before) + 1} of fit 2: {last:.4g}")
    logged = [event["metrics"] for event in ended.of_kind("values")]
    assert all(values == logged[0] for values in logged) and logged[0]["epochs"] == len(before) + 1
    assert len(without["loss"]) == 2  # the fit that has no such metric
    notices = [event["message"] for event in ended.of_kind("notice") if "--target" in event["message"]]
    assert notices == ["--target: the history has no val_loss after this epoch, but loss"]


def test_members_of_an_ensemble_end_one_by_one(rank_pool):
    cell = FITS.replace("SGD(0.01)", "SGD(0.01 * (ddl.rank + 1))")
    ended = launch.finished(rank_pool(2), cell, strategy="ensemble", target=f"val_loss:{TARGET}")
    assert ended.message.endswith("; target val_loss <= 0.5 reached by 2 of 2 models")
    first, second = (ended.of_kind("values", rank)[0]["metrics"]["epochs"] for rank in range(2))
    assert second < first < 400


def test_a_loop_of_the_cells_own_is_stopped_and_its_model_kept(rank_pool):
    loop = """
for epoch in range(100_000):
    logs = model.train_on_batch(x, y, return_dict=True)
    ddl.log(loss=logs["loss"], step=epoch)
"""
    ended = launch.run_cell(rank_pool(2), FITS.split("without =")[0] + loop, target="loss:0.5")
    assert ended.state == "STOPPED", ended.failure
    values = [event["metrics"]["loss"] for event in ended.of_kind("values", 0)]
    first = next(i for i, value in enumerate(values) if value <= TARGET)
    reached = f"target loss <= 0.5 reached in call {first + 1} of ddl.log: {values[first]:.4g}"
    assert ended.message.startswith(f"stopped at --target; the model and its history are kept; {reached}")
    assert launch.weights(ended.run)[0].shape == (3, 1)
