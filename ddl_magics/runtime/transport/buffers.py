"""Arrays whose memory is reused: getting fresh memory from the system costs more than copying the bytes into it."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

#: TensorFlow takes over an array without a copy if it begins at a multiple of this.
ALIGNMENT_BYTES = 64

#: References to an array that only `Buffers` holds: its list, the loop's variable, the argument of getrefcount.
_UNUSED_REFERENCES = 3


class Buffers:
    """Lends arrays, and lends their memory again once nobody holds the array or a view of it. Thread-safe."""

    def __init__(self) -> None:
        self._arrays: list[npt.NDArray[np.uint8]] = []
        self._lock = threading.Lock()

    def take(self, dtype: npt.DTypeLike, size: int) -> np.ndarray:
        """A writable 1-D array of `size` elements, aligned to `ALIGNMENT_BYTES`. Its content is undefined."""
        nbytes = np.dtype(dtype).itemsize * size
        array = self._take(nbytes + ALIGNMENT_BYTES)
        begin = -array.__array_interface__["data"][0] % ALIGNMENT_BYTES
        return array[begin : begin + nbytes].view(dtype)

    def _take(self, size: int) -> npt.NDArray[np.uint8]:
        with self._lock:
            unused = []
            for array in self._arrays:
                if sys.getrefcount(array) == _UNUSED_REFERENCES:
                    if array.size == size:
                        return array
                    unused.append(id(array))
            # A caller that asks for a new size does not come back for the old one: its unused memory is freed.
            self._arrays = [array for array in self._arrays if id(array) not in unused]
            self._arrays.append(self._new(size))
            return self._arrays[-1]

    def _new(self, size: int) -> npt.NDArray[np.uint8]:
        return np.empty(size, np.uint8)
