"""A trained model's file, back in a notebook whose Keras need not be the cluster's."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def load_model(path: Path, custom_objects: Mapping[str, Any] | None = None) -> Any:
    """The model of a `.keras` file, made by the Keras that is installed here.

    Raises:
        ImportError: there is none.
        ValueError: it cannot make the model again, for want of a class or as another Keras has saved it.
    """
    try:
        import keras
    except ImportError:
        raise ImportError(
            "Keras is not installed here: pip install tensorflow; or take the file with save_model(path), "
            "or the arrays with weights()."
        ) from None
    try:
        return keras.models.load_model(path, custom_objects=dict(custom_objects or {}))
    except (TypeError, AttributeError) as error:  # TypeError is its word for a class that it cannot make again
        reason = str(error).split(". ")[0].splitlines()[0]
        saved_by = _saved_by(path)
        if saved_by.split(".")[0] != keras.__version__.split(".")[0]:
            raise ValueError(
                f"Keras {saved_by} on the cluster saved the model, and Keras {keras.__version__} here cannot make it "
                f"again: {reason}. Load the file of save_model(path) with Keras {saved_by}, or set weights() on a "
                "model that you have made."
            ) from error
        raise ValueError(
            f"Keras cannot make the model again here: {reason}. Pass the cell's own classes with "
            "model(custom_objects={...}), where a subclass of Model needs a get_config of its own; or set weights() "
            "on a model that you have made."
        ) from error


def _saved_by(path: Path) -> str:
    """The version of Keras that wrote a `.keras` file."""
    with zipfile.ZipFile(path) as archive:
        return str(json.loads(archive.read("metadata.json"))["keras_version"])
