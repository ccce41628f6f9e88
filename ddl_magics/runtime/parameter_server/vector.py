"""The type of a model's weights as the parameter server has them: laid one after the other in one array."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    #: 1-D, contiguous, of float16, float32 or float64.
    Vector = npt.NDArray[np.floating[Any]]
else:  # numpy.typing is not in the NumPy of the oldest clusters
    Vector = np.ndarray
