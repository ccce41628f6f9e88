"""Random operations of a fit's data go on from epoch to epoch, unless the cell has seeded them as one process would."""

import itertools

import numpy as np
import pytest
from support import launch

from . import test_noise

pytestmark = pytest.mark.timeout(300)

EPOCHS, ROWS, SEED = 3, 16, 5

#: Prints for each of its fits what every step has seen: rows of an array, or of a pipeline that adds noise to them.
CELL = f"""
import itertools, json, time
import keras, numpy as np
import tensorflow as tf

class Seen(keras.Sequential):
    def train_step(self, data):
        logs = super().train_step(data)
        with tf.control_dependencies([tf.numpy_function(lambda x: SEEN.append(x.ravel().tolist()), [data[0]], [])]):
            return {{name: tf.identity(value) for name, value in logs.items()}}

x = np.arange({ROWS}.0).reshape(-1, 1)
noisy = tf.data.Dataset.from_tensor_slices((x, x)).batch(4)
noisy = noisy.map(lambda a, b: (a + 0.5 * tf.random.uniform([1, 1], dtype=a.dtype), b))

class InEpochs(keras.utils.PyDataset):
    epoch = 0
    def __len__(self):
        return {ROWS} // 4
    def __getitem__(self, at):
        rows = x[4 * at : 4 * at + 4] + {ROWS} * self.epoch
        return rows, rows
    def on_epoch_end(self):
        self.epoch += 1

model = Seen([keras.Input((1,)), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(1e-9), "mse", run_eagerly=True)
fits = {{"arrays": (x, x), "pipeline": (noisy, None), "python": (InEpochs(), None), "seeded": (x, x)}}
for name, data in fits.items():
    SEEN = []
    if name == "seeded":
        keras.utils.set_random_seed({launch.DEFAULT_SPEC["seed"]})
    model.fit(*data, batch_size=4 if data[1] is not None else None, epochs={EPOCHS}, verbose=0)
    print("fit", json.dumps([name, SEEN]))

def drawn():  # while steps are in work, by the thread of the pipeline
    while True:
        time.sleep(0.01)
        rows = np.random.uniform(size=(4, 1)) + tf.random.uniform([4, 1]).numpy()
        yield rows, rows

keras.utils.set_random_seed({SEED})
print("alone", json.dumps(["drawn", [rows.ravel().tolist() for rows, _ in itertools.islice(drawn(), 12)]]))
keras.utils.set_random_seed({SEED})
SEEN = []
model.fit(drawn(), steps_per_epoch=6, epochs=2, verbose=0)
print("drawn", json.dumps(["drawn", SEEN]))
"""


def seen(ended):
    """{fit: {rank: [rows of each epoch]}}"""
    fits = test_noise.printed(ended, "fit")
    assert sorted(fits) == ["arrays", "pipeline", "python", "seeded"]
    return {name: {rank: by_epoch(steps) for rank, steps in ranks.items()} for name, ranks in fits.items()}


def by_epoch(steps):
    each = len(steps) // EPOCHS
    return [list(itertools.chain(*steps[at * each : (at + 1) * each])) for at in range(EPOCHS)]


def is_all_rows(of_ranks, epoch):
    return sorted(int(row) for rows in of_ranks.values() for row in rows[epoch]) == list(range(ROWS))


def assert_as_told_of_epochs(of_ranks):
    """Data of Python's has heard that an epoch is over before it makes the first batch of the next.

    Keras says so once before the first as well.
    """
    for epoch in range(EPOCHS):
        rows = sorted(row for epochs in of_ranks.values() for row in epochs[epoch])
        assert rows == [row + ROWS * (1 + epoch) for row in range(ROWS)]


def all_differ(epochs):
    return len({tuple(epoch) for epoch in epochs}) == len(epochs)


@pytest.fixture(scope="module")
def reduced(rank_pool):
    """A run of this cell, and of the one of test_noise.py behind it, which sets seeds."""
    return launch.finished(rank_pool(2), CELL + test_noise.CELL)


def test_each_row_has_its_own_noise(reduced):
    test_noise.check(test_noise.seen(reduced))


def test_epochs_of_an_all_reduce_differ_as_in_one_process(reduced):
    fits = seen(reduced)
    assert_as_told_of_epochs(fits.pop("python"))
    assert all(is_all_rows(ranks, epoch) for ranks in fits.values() for epoch in range(EPOCHS))
    assert all(all_differ(epochs) for name in ("arrays", "pipeline") for epochs in fits[name].values())
    # In one process whose seed is set, Keras has the order of the first epoch in each.
    assert all(epochs == epochs[:1] * EPOCHS for epochs in fits["seeded"].values())


def test_steps_leave_alone_the_streams_that_a_pipeline_draws_from(reduced):
    """They are those of the process: the pipeline draws ahead from them while steps are tried, and in eager steps."""
    ranks, alone = (test_noise.printed(reduced, word)["drawn"] for word in ("drawn", "alone"))
    found = np.concatenate([np.array(ranks[rank]) for rank in range(2)], axis=1)
    np.testing.assert_allclose(found, alone[0], atol=1e-6)


def test_workers_with_steps_of_their_own_never_keep_their_batches(rank_pool):
    fits = seen(launch.finished(rank_pool(2), CELL, strategy="ps", rule=launch.DEFAULT_RULE))
    assert_as_told_of_epochs(fits.pop("python"))
    assert all(is_all_rows(ranks, epoch) for ranks in fits.values() for epoch in range(EPOCHS))
    assert all(all_differ(epochs) for ranks in fits.values() for epochs in ranks.values())
    assert any(set(epochs[0]) != set(epochs[1]) for epochs in fits["seeded"].values())
