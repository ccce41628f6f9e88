"""Labels that are text are refused before a run, where the cell is seen to fit a model of Keras on them."""

import numpy as np
import pandas as pd
import pytest

from ddl_magics.runtime.cell import names, text_labels

TEXT = np.array(["good", "bad"] * 50)
SESSION = {
    "x": np.zeros((100, 2)),
    "y": np.arange(100),
    "y_text": TEXT,
    "objects": TEXT.astype(object),
    "tumours": pd.DataFrame({"radius": range(100), "kind": TEXT}),
    "kinds": list(TEXT),
    "classes": pd.Series(TEXT).astype("category"),
    "encoder": object(),
}
FIT = "model.fit(x, %s, epochs=2)"


@pytest.mark.parametrize(
    "label",
    ["y_text", "y_text[:50]", "objects", "tumours['kind']", "tumours.kind.values", "tumours[['kind']].kind.to_numpy()"]
    + ["kinds", "classes"],
)
def test_labels_of_text_are_named_with_how_to_encode_them(label):
    with pytest.raises(names.NameProblem) as refused:
        names.captured("model = keras.Sequential()\n" + FIT % label, SESSION)
    assert str(refused.value) == (
        f"line 2: the labels {label} are text, and a loss wants numbers: encode them with classes, y = "
        f"np.unique({label}, return_inverse=True), or with keras.layers.StringLookup"
    )


@pytest.mark.parametrize(
    "cell",
    [
        FIT % "y",
        FIT % "tumours['radius']",
        FIT % "tumours",
        "y_text = encode(y_text)\n" + FIT % "y_text",
        "encoder.fit(x, y_text)",
        "encoder.fit(y_text)",
        "class Own(keras.Model):\n    def train_step(self, data): pass\n" + FIT % "y_text",
    ],
)
def test_what_may_be_meant_is_not_refused(cell):
    assert text_labels.problem(cell, SESSION) is None


def test_a_model_that_the_cell_compiles_is_known_without_arguments_of_keras():
    message = text_labels.problem("model.compile('adam', 'mse')\nmodel.fit(x=x, y=y_text)", SESSION)
    assert message.startswith("line 2: the labels y_text are text")
