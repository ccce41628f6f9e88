"""The shapes of rows for which Keras has built the metrics of a model: where the same metrics are built anew, they have
the same variables. "accuracy", for example, is one of three metrics by these shapes.
"""

from __future__ import annotations

from typing import Any, Callable

_ATTRIBUTE = "_ddl_shapes"


def build_noted(original: Callable[..., None], container: Any, *args: Any, **kwargs: Any) -> None:
    """In place of `build` of compiled metrics, whose arguments are targets and outputs."""
    import tensorflow as tf

    original(container, *args, **kwargs)
    shapes = tf.nest.map_structure(_as_text, (*args, *kwargs.values()))
    object.__setattr__(container, _ATTRIBUTE, shapes)


def noted(container: Any) -> Any:
    """The arguments of `build`, with "None,3" for a tensor of this shape; None where it was not called."""
    return getattr(container, _ATTRIBUTE, None)


def of_text(text: str) -> Any:
    """A tensor's specification. Raises ValueError."""
    import tensorflow as tf

    sizes = text.split(",") if text else []
    return tf.TensorSpec([None if size == "None" else int(size) for size in sizes])


def _as_text(tensor: Any) -> str:
    return ",".join(str(size) for size in getattr(tensor, "shape", ()))
