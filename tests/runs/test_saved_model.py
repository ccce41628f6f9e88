"""Which Keras a model is loaded with."""

import sys
import warnings
from types import SimpleNamespace

import pytest

from ddl_magics.runs.saved_model import load_model


@pytest.mark.parametrize(
    ("version", "warns"),
    [("2.13.1", True), ("3.8.0", True), ("3.13.1", True), ("3.13.2", False), ("3.14.0.dev1", False)],
)
def test_a_keras_whose_safe_mode_has_known_gaps_is_warned_of(monkeypatch, tmp_path, version, warns):
    models = SimpleNamespace(load_model=lambda path, custom_objects: "the model")
    monkeypatch.setitem(sys.modules, "keras", SimpleNamespace(__version__=version, models=models))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert load_model(tmp_path / "m.keras") == "the model"
    said = [str(each.message) for each in caught]
    assert len(said) == warns and all(text.startswith(f"Keras {version} loads") for text in said)
