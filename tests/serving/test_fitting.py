"""A served model refuses the numbers that --data refuses, by a bound of its own: its environment has no runtime."""

import ast
from typing import Any

import numpy as np
import pytest
from support.paths import ROOT

from ddl_magics.runtime.data import packing


class Saturating(np.ndarray):
    """Numbers on a processor that makes the largest integer of larger floats, as ARM's do."""

    def astype(self, dtype, copy=True):
        values = np.asarray(self)
        if np.dtype(dtype).kind in "iu" and values.dtype.kind == "f":
            limits = np.iinfo(dtype)
            whole = [min(max(int(value), limits.min), limits.max) if value == value else 0 for value in values]
            return np.array(whole, dtype)
        return values.astype(dtype, copy=copy)


def served_fitting():
    """`_fitting` of a served model, without MLServer, which is not installed here."""
    module = ast.parse((ROOT / "ddl_magics" / "serving" / "process" / "runtime.py").read_text(encoding="utf-8"))
    module.body = [node for node in module.body if getattr(node, "name", "") == "_fitting"]
    names = {"np": np, "Any": Any}
    exec(compile(module, "runtime.py", "exec"), names)
    return names["_fitting"]


def result(function, values, dtype):
    try:
        return function(values, dtype).tolist()
    except ValueError:
        return "refused"


@pytest.mark.parametrize(
    ("values", "dtype", "fits"),
    [
        ([1.0, 2.0**63], "int64", False),
        ([2.0**64], "uint64", False),
        ([2.0**31], "int32", False),
        ([2.0**31 - 1, -(2.0**31)], "int32", True),
        ([-(2.0**63), 2.0**62], "int64", True),
        ([float("nan")], "int64", False),
        ([2**63], "int64", False),
        ([2**32 + 3], "int32", False),
        ([0.5], "int32", False),
        ([1e39], "float32", False),
        ([float("inf"), 1.5], "float32", True),
        ([2**53 + 1], "int64", True),
    ],
)
def test_the_same_numbers_fit_as_in_training(values, dtype, fits):
    array = np.array(values).view(Saturating)
    served = result(served_fitting(), array, np.dtype(dtype))
    assert served == result(packing.fitting, array, dtype) and (served == values) == fits
