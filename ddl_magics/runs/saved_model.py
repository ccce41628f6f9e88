"""Loads a trained model's file in the notebook, which may have another version of Keras than the cluster."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ddl_magics.models import keras_version
from ddl_magics.runtime import lambda_layers, native_chatter, scratch
from ddl_magics.store import trained_models

#: The first Keras without a published way around its safe mode: docs/security.md.
SAFE_KERAS = (3, 13, 2)


def load_model(path: Path, custom_objects: Mapping[str, Any] | None = None) -> Any:
    """The model of a `.keras` file, loaded by the Keras that is installed here.

    Raises:
        ImportError: Keras is not installed.
        ValueError: Keras cannot load the model: a class is missing, another version of Keras saved it, or it has Lambda
            layers whose code is not trusted.
    """
    with native_chatter.left_out():
        return _load(path, custom_objects)


def _load(path: Path, custom_objects: Mapping[str, Any] | None) -> Any:
    try:
        import keras
    except ImportError:
        raise ImportError(
            "Keras is not installed here: pip install tensorflow, or use save_model(path) for the file or weights() "
            "for the arrays."
        ) from None
    if tuple(map(int, re.findall(r"[0-9]+", keras.__version__)[:3])) < SAFE_KERAS:
        warnings.warn(
            f"Keras {keras.__version__} loads a model's file in a safe mode that has known gaps: load models of people "
            "you trust, or pip install 'keras>=3.13.2'",
            stacklevel=4,
        )
    try:
        if lambda_layers.functions_in(str(path)) == ([], []):
            return keras.models.load_model(path, custom_objects=dict(custom_objects or {}))
        return _with_lambda_layers(path.read_bytes(), custom_objects)
    except (TypeError, AttributeError) as error:  # Keras raises TypeError for a class that it cannot construct
        reason = str(error).split(". ")[0].splitlines()[0]
        saved_by = keras_version.saved_by(path)
        if saved_by is not None and saved_by.split(".")[0] != keras.__version__.split(".")[0]:
            raise ValueError(
                f"Keras {keras.__version__} here cannot load the model that Keras {saved_by} saved on the cluster: "
                f"{reason}. Load the file of save_model(path) with Keras {saved_by}, or build the model here and set "
                "its weights from weights()."
            ) from error
        raise ValueError(
            f"Keras cannot load the model here: {reason}. Pass the cell's own classes with "
            "model(custom_objects={...}), where a subclass of Model needs a get_config of its own; or build the model "
            "here and set its weights from weights()."
        ) from error


def _with_lambda_layers(content: bytes, custom_objects: Mapping[str, Any] | None) -> Any:
    python = trained_models.python_of(content)
    named_objects = lambda_layers.objects_of_notebook(content, python, custom_objects)
    with scratch.folder("model") as folder:  # the file itself may change before Keras reads it
        path = Path(folder) / "model.keras"
        path.write_bytes(content)
        return lambda_layers.load(str(path), named_objects, python)
