"""--send: what of the notebook's variables can go to a Livy session as text."""

from dataclasses import replace

import numpy as np
import pytest

from ddl_magics.clusters import sending
from ddl_magics.options.parsing import parse

SPEC = replace(parse("--workers 1"), send=("table",))


@pytest.mark.parametrize("value", [np.ma.array([1, 2], mask=[0, 1]), np.matrix([[1, 2]]), np.array([object()])])
def test_what_would_arrive_as_something_else_is_refused(value):
    with pytest.raises(sending.CannotSend, match=f"--send table: a {type(value).__name__} cannot be sent"):
        sending.values(SPEC, {"table": value})


@pytest.mark.parametrize(
    ("value", "encoding"), [({1: (2, "a")}, "literal"), (np.arange(3), "npy"), (np.float32(1), "npy")]
)
def test_how_values_are_written(value, encoding):
    (encoded,) = sending.values(SPEC, {"table": value})
    assert encoded.encoding == encoding
