"""Arrays whose memory is used again: to get fresh memory from the system costs more than to move the bytes into it."""

import sys
import threading

import numpy as np

#: Where arrays begin: what TensorFlow wants of memory that it takes over without a copy.
ALIGNMENT_BYTES = 64

#: References to an array that nobody but `Buffers` holds: its list, the loop's variable, the argument of getrefcount.
_OURS_ALONE = 3


class Buffers:
    """Hands out arrays, and hands them out again once nobody else holds them or a view of them. For any thread."""

    def __init__(self):
        self._arrays, self._lock = [], threading.Lock()

    def take(self, dtype, size):
        """A writable 1-D array of undefined content, aligned."""
        nbytes = np.dtype(dtype).itemsize * size
        array = self._take(nbytes + ALIGNMENT_BYTES)
        begin = -array.__array_interface__["data"][0] % ALIGNMENT_BYTES
        return array[begin : begin + nbytes].view(dtype)

    def _take(self, size):
        with self._lock:
            unfit = []
            for array in self._arrays:
                if sys.getrefcount(array) == _OURS_ALONE:
                    if array.size == size:
                        return array
                    unfit.append(id(array))
            # A new size: what is free of the old one is of no more use.
            self._arrays = [array for array in self._arrays if id(array) not in unfit]
            self._arrays.append(self._new(size))
            return self._arrays[-1]

    def _new(self, size):
        return np.empty(size, np.uint8)
