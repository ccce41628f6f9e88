"""Which names travel with a cell, and what is said of those that cannot."""

import threading

import numpy as np
import pytest

from ddl_magics.runtime import names

pytest.importorskip("pyspark")


@pytest.mark.parametrize(
    ("source", "free"),
    [
        ("x = 1\ny = x + z", {"z"}),
        ("import os\nos.getcwd()", set()),
        ("def f(a):\n    return a + scale\nf(1)", {"scale"}),
        ("class A(Base):\n    b = c", {"Base", "c"}),
        ("[i * k for i in items]", {"k", "items"}),
        ("def f():\n    global g\n    g = 1\nf()\ng", set()),
        ("lambda a, *b: a + d", {"d"}),
        ("print(len([1]))", set()),
        ("x += 1", set()),
        ("with open(p) as f:\n    pass", {"p"}),
        ("try:\n    pass\nexcept E as e:\n    e", {"E"}),
        ("for i in range(3):\n    pass\ni", set()),
    ],
)
def test_free_names(source, free):
    assert set(names.free_names(source)) == free


def test_values_arrive():
    def double(x):
        return 2 * x

    session = {"double": double, "table": np.arange(4), "npy": np, "unused": threading.Lock()}
    blob = names.pack("double(table) + npy.float32(1)", session)
    given = names.unpack(blob)
    assert set(given) == {"double", "table", "npy"}
    assert given["double"](3) == 6 and given["table"].tolist() == [0, 1, 2, 3] and given["npy"] is np


@pytest.mark.parametrize(
    ("source", "session", "message"),
    [
        ("a = 1\nmodle.fit(a)", {"model": 1}, "line 2: the name 'modle' is defined neither .*; did you mean 'model'?"),
        ("get_ipython().system('ls')", {}, "line 1: IPython magics .* do not run on the workers"),
        ("lock.acquire()", {"lock": threading.Lock()}, "'lock' .* cannot travel .* make it inside the cell"),
    ],
)
def test_what_cannot_travel_is_named(source, session, message):
    with pytest.raises(names.NameProblem, match=message):
        names.pack(source, session)


def test_usual_modules_need_no_import():
    assert names.unpack(names.pack("np.zeros(2)", {}))["np"] is np


def test_names_that_a_star_import_may_bring_are_not_refused():
    names.pack("from os.path import *\njoin('a', 'b')", {})
