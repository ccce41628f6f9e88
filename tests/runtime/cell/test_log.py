"""`ddl.log`: what it reports is JSON that every reader takes."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from ddl_magics.runtime import events as ev
from ddl_magics.runtime.cell.execution import Helper


def test_values_and_steps_of_numpy_and_no_step_below_zero():
    sent = []
    helper = object.__new__(Helper)
    helper._reporter = SimpleNamespace(emit=lambda kind, **fields: sent.append(ev.make(kind, 0, **fields)))
    helper.log(step=np.int64(3), loss=np.float32(0.5))
    helper.log(loss=float("nan"))
    assert [event["step"] for event in map(json.loads, map(json.dumps, sent))] == [3, None]
    assert all(ev.is_sound(event) for event in sent)
    with pytest.raises(ValueError, match="step must be 0 or more, not -1"):
        helper.log(step=-1)


@pytest.mark.parametrize(
    ("use", "says"),
    [
        (lambda ddl: ddl.log("acc"), r"write the name before the number: ddl.log\(acc=0.5\)"),
        (lambda ddl: ddl.log(acc="high"), "ddl.log: acc must be a number, not 'high'"),
        (lambda ddl: ddl.rnak, "ddl has no rnak; did you mean rank?"),
        (lambda ddl: ddl.alreduce, "ddl has no alreduce; did you mean allreduce?"),
        (lambda ddl: ddl.frobnicate, "ddl has no frobnicate$"),
    ],
)
def test_what_is_written_wrong_is_named(use, says):
    with pytest.raises((TypeError, AttributeError), match=says):
        use(object.__new__(Helper))
