"""A real run on the embedded Spark, watched and stopped in a real JupyterLab."""

import re

import pytest
from playwright.sync_api import expect

#: Spark and TensorFlow start within this, on a busy machine too.
START_MS = 150_000

#: Minutes of training, of which the sleep is nearly all: it is stopped long before its end.
CELL = """\
%%distributed --workers 2 --name slow
import time
import keras
import numpy as np

class Slow(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.1)

x = np.random.default_rng(0).normal(size=(640, 8)).astype("float32")
y = (x.sum(axis=1) > 0).astype("float32")
model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(1, activation="sigmoid")])
model.compile("sgd", "binary_crossentropy", metrics=["accuracy"])
model.fit(x, y, batch_size=32, epochs=300, validation_data=(x, y), callbacks=[Slow()], verbose=0)
"""

AFTER = """\
slow.wait()
print(slow.state, len(slow.history["val_loss"]), slow.model().count_params())
"""


@pytest.mark.timeout(400)
def test_a_run_is_watched_through_a_reload_and_stopped_with_its_model(lab, notebook):
    notebook.open(lab.write("real.ipynb", "%load_ext ddl_magics", CELL, "6 * 7", AFTER), fresh=True)
    notebook.run_cell(0)
    notebook.run_cell(1)
    status = notebook.view.locator(".ddl-status")
    expect(status).to_contain_text(re.compile(r"epoch [3-9] of 300"), timeout=START_MS)
    expect(notebook.view.locator("tbody tr")).to_have_count(2)

    notebook.run_cell(2)
    expect(notebook.output(2)).to_have_text("42")
    expect(notebook.view.locator(".ddl-chip")).to_have_text("RUNNING")

    before = notebook.drawn()
    assert before["metric:loss"]["points"] > 0 and before["metric:val_loss"]["points"] > 1
    notebook.reload()
    expect(status).to_contain_text(re.compile(r"epoch \d+ of 300"))
    after = notebook.drawn()
    assert before.keys() <= after.keys()
    assert all(after[key]["points"] >= line["points"] and after[key]["x"] >= line["x"] for key, line in before.items())
    expect(notebook.view.locator(".ddl-chip")).to_have_text("RUNNING")

    notebook.view.get_by_role("button", name="Stop").click()
    expect(notebook.view.locator(".ddl-chip")).to_have_text("STOPPED")
    notebook.run_cell(3)
    expect(notebook.output(3)).to_have_text(re.compile(r"STOPPED \d+ 9"))
    assert "load_model" in notebook.saved_block("STOPPED")["text/plain"], "of the page before the reload"
