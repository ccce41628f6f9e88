"""A model of 60 MB comes back over Livy whole, and the notebook answers meanwhile."""

import hashlib

import numpy as np
import pytest
from support import sparkmagic_kernels

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

#: A cell of the notebook, while the model is on its way, on a busy machine.
ANSWER_SECONDS = 3.0

#: 3900 * 3900 weights of four bytes, and a few.
CELL = """%%distributed --name large --no-wait
import hashlib
import keras
import numpy as np

x = np.ones((16, 4), "float32")
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3900), keras.layers.Dense(3900), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(x, x.sum(1), epochs=1, batch_size=16, verbose=0)
hashlib.sha256(b"".join(weights.tobytes() for weights in model.get_weights())).hexdigest()
"""


@pytest.fixture
def kernel(livy_server, tmp_path):
    known = sparkmagic_kernels.configuration(tmp_path, livy_server.url)
    kernel = sparkmagic_kernels.start(sparkmagic_kernels.IPYTHON_KERNEL, known)
    kernel.run("%load_ext ddl_magics")
    kernel.run(f"%ddl use livy {livy_server.url}", timeout=300)
    yield kernel
    kernel.close()


def test_a_large_model_comes_back_whole_while_the_notebook_answers(kernel, tmp_path):
    assert kernel.run(CELL).error == ""
    longest, cells_meanwhile = 0.0, 0
    while not kernel.value("large.state in ('FINISHED', 'FAILED', 'LOST') and large.settled(0)"):
        answer = kernel.run("import time\nlast = time.time()")
        coming = kernel.value("any(event['kind'] == 'artifact' for event in large.events)")
        cells_meanwhile += coming
        longest = max(longest, answer.seconds)
    assert kernel.value("large.state") == "FINISHED"
    assert cells_meanwhile > 3 and longest < ANSWER_SECONDS
    weights, model = tmp_path / "weights.npz", tmp_path / "large.keras"
    kernel.run(f"import numpy\nnumpy.savez({str(weights)!r}, *large.weights())\nlarge.save_model({str(model)!r})")
    with np.load(weights, allow_pickle=False) as file:
        brought = [file[name] for name in file.files]
    assert sum(array.nbytes for array in brought) > 60e6
    assert hashlib.sha256(b"".join(array.tobytes() for array in brought)).hexdigest() == kernel.value("large.result")

    from keras.models import load_model

    trained = load_model(model).get_weights()
    assert all((one == other).all() for one, other in zip(trained, brought, strict=True))
