"""Memory is reused, but never while somebody holds it."""

import numpy as np
import pytest

from ddl_magics.runtime.parameter_server.memory import Pool
from ddl_magics.runtime.transport.buffers import ALIGNMENT_BYTES, Buffers


@pytest.fixture(params=[Buffers, Pool])
def buffers(request):
    return request.param()


def address(array):
    return array.__array_interface__["data"][0]


def test_unused_memory_is_reused(buffers):
    first = buffers.take(np.float32, 1000)
    first.setflags(write=False)
    where = address(first)
    del first
    again = buffers.take("float32", 1000)
    assert address(again) == where and again.flags.writeable


@pytest.mark.parametrize(
    "hold", [lambda a: a, lambda a: a[10:], lambda a: memoryview(a).cast("B"), lambda a: [a[1:][1:]]]
)
def test_memory_in_use_is_not_reused(buffers, hold):
    held = hold(buffers.take(np.float32, 1000))
    other = buffers.take(np.float32, 1000)
    other.fill(1)
    assert not np.shares_memory(np.asarray(held[0] if isinstance(held, list) else held), other)


def test_arrays_have_the_size_and_dtype_asked_for(buffers):
    for dtype, size in [(np.float32, 10), (np.float64, 10), (np.float32, 11), (np.float32, 10)]:
        array = buffers.take(dtype, size)
        assert (array.dtype, array.size) == (dtype, size)
        del array


def test_arrays_are_aligned():
    buffers = Buffers()
    held = [buffers.take(np.uint8, size) for size in (1, 100, 1000, 5000, 100_000) * 20]
    assert not any(address(array) % ALIGNMENT_BYTES for array in held)
