"""Records of calls, and what a collective can work on."""

import numpy as np
import pytest

from ddl_magics.runtime.collectives import announcement
from ddl_magics.runtime.collectives.announcement import STEP, Announcement, CollectiveCall
from ddl_magics.runtime.collectives.collective import as_bytes


def test_a_call_comes_back_from_its_record_and_an_unknown_record_is_refused():
    call = CollectiveCall(3, 1, 4096, "float32<", Announcement(STEP, 1, 2, 3, 4.5, 6, 7.0, 8.0))
    record = announcement.encode(call)
    assert announcement.parse(record) == call
    with pytest.raises(ValueError, match="unknown record 250"):
        announcement.parse(bytes([250]) + record[1:])


def test_numbers_of_any_kind_are_bytes_and_nothing_else_is():
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    for numbers in (np.ones(3), np.ones(3, np.complex64), np.ones(3, bfloat16)):
        assert as_bytes(numbers).tobytes() == numbers.tobytes()
    for other in (np.zeros(3, "V4"), np.zeros(3, bool), np.zeros(3, object)):
        with pytest.raises(ValueError, match="a collective needs numbers, not"):
            as_bytes(other)
    for other in (np.zeros((2, 2)), np.zeros(4)[::2], np.frombuffer(bytes(8))):
        with pytest.raises(ValueError, match="a writable, contiguous array of one dimension"):
            as_bytes(other)
