"""Arrays as bytes, which ranks unpack by their own."""

import numpy as np
import pytest

from ddl_magics.runtime.gradients.packed_arrays import pack, unpack


def test_arrays_travel_as_bytes():
    arrays = [np.arange(6.0).reshape(2, 3), np.zeros((0, 4), np.int32), np.array([True, False])]
    for ours, theirs in zip(arrays, unpack(pack(arrays), arrays), strict=True):
        assert ours.dtype == theirs.dtype and np.array_equal(ours, theirs)
    with pytest.raises(ValueError, match=r"have different shapes, \(4,\) and \(3,\)"):
        unpack(pack(arrays[:1]), [np.zeros((2, 4))])
    with pytest.raises(ValueError, match="strings cannot be gathered"):
        pack([np.array(["a"], object)])
