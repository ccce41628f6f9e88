"""Makes an unchanged `model.fit` distributed: hooks the Keras of this process, before the cell runs."""

from __future__ import annotations

import tensorflow as tf

from ..rank.rank import Rank
from .keras_hooks import KerasHooks

#: The oldest Keras of either generation that has the places of the hooks, and its TensorFlow.
OLDEST = {2: ("2.13", "2.13"), 3: ("3.7", "2.16")}


def install(rank: Rank) -> None:
    """Hook the Keras of this process for its rank. Once a process. ImportError for a Keras that is too old."""
    import keras

    check_version(keras.__version__)
    hooks: type[KerasHooks]
    if keras.__version__.startswith("2."):
        from .keras2_hooks import Keras2Hooks as hooks
    else:
        from .keras3_hooks import Keras3Hooks as hooks
    hooks(rank, keras).install()


def check_version(version: str) -> None:
    """ImportError in one line for a version of Keras that the hooks do not fit."""
    major, minor = (int(number) for number in version.split(".")[:2])
    oldest, tensorflow = OLDEST[2 if major < 3 else 3]
    if (major, minor) < tuple(int(number) for number in oldest.split(".")):
        message = "this Python has Keras %s (TensorFlow %s); %s or newer, of TensorFlow %s, is needed"
        raise ImportError(message % (version, tf.__version__, oldest, tensorflow))
