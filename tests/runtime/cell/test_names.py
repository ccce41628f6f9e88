"""Which names travel with a cell, and what is said of those that cannot."""

import functools
import inspect
import linecache
import sys
import threading
import types

import numpy as np
import pytest
import tensorflow as tf
from support.refusals import one_line

from ddl_magics.runtime.cell import names

pytest.importorskip("pyspark")


def pack(source, session):
    return names.pack(source, names.captured(source, session), session)


def unpacked(blob):
    """The globals of a cell on a rank, before it runs."""
    here, there = sys.modules["__main__"], types.ModuleType("__main__")
    before = set(vars(there))
    sys.modules["__main__"] = there
    try:
        mentioned = names.unpack(blob).mentioned
    finally:
        sys.modules["__main__"] = here
    assert mentioned <= set(vars(there))
    for name in {*before, "__builtins__"}:
        vars(there).pop(name, None)
    return vars(there)


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
    blob = pack("double(table) + npy.float32(1)", session)
    given = unpacked(blob)
    assert set(given) == {"double", "table", "npy"}
    assert given["double"](3) == 6 and given["table"].tolist() == [0, 1, 2, 3] and given["npy"] is np


def session_of(source, **variables):
    """A session whose cells have been this source."""
    session = {"__name__": "builtins", **variables}  # as a Livy session calls it
    exec(source, session)
    return session


def test_a_function_of_the_session_sees_what_the_cell_assigns():
    session = session_of(
        "rate = 0.1\nscale = 2\ndef build():\n    return scale * rate\nclass Of:\n    now = lambda self: build()"
    )
    cell = "rate = 0.01\nfound = build(), Of().now(), [build() for rate in (0.5,)]"
    there = unpacked(pack(cell, session))
    exec(cell, there)
    assert there["found"] == (0.02, 0.02, [0.02])
    assert unpacked(pack("build()", session))["build"]() == 0.2


def test_the_source_of_a_function_travels_beside_large_values(monkeypatch):
    """Its file is named once in the pickle, by a function that has them."""
    source = "def make():\n    return table\ndef sign(x):\n    return 1 if x > 0 else -1\n"
    monkeypatch.setitem(linecache.cache, "<cell 3>", (len(source), None, source.splitlines(True), "<cell 3>"))
    session = {"table": np.zeros(1 << 18)}
    exec(compile(source, "<cell 3>", "exec"), session)
    blob = pack("make(), sign(1)", session)
    del linecache.cache["<cell 3>"]
    assert inspect.getsource(unpacked(blob)["sign"]).startswith("def sign(x):")


def test_what_values_share_in_the_session_they_share_on_a_rank():
    session = session_of("log = []\ndef add(x):\n    log.append(x)\ndef size():\n    return len(log)\nagain = log")
    there = unpacked(pack("add(1)\nadd(2)\nlog.append(3)\nsize(), again", session))
    exec("add(1)\nadd(2)\nlog.append(3)", there)
    assert there["size"]() == 3 and there["again"] == [1, 2, 3]


def test_a_queued_cell_has_the_values_of_the_time_when_it_was_run(monkeypatch):
    """It starts later, with a copy of the variables; a function's globals are those of `__main__` by then."""
    main = types.ModuleType("__main__")
    exec("rate = 0.1\ndef build():\n    return rate", main.__dict__)
    monkeypatch.setitem(sys.modules, "__main__", main)
    queued = dict(main.__dict__)
    main.rate = 0.5
    there = unpacked(pack("rate, build()", queued))
    assert there["rate"] == 0.1 and there["build"]() == 0.1


@pytest.mark.parametrize(
    ("source", "session", "message"),
    [
        ("a = 1\nmodle.fit(a)", {"model": 1}, "line 2: the name 'modle' is defined neither .*; did you mean 'model'?"),
        ("get_ipython().system('ls')", {}, r"line 1: get_ipython\(\) is the notebook's, and workers have none"),
        ("x = 1\ny = int(input('epochs? '))", {"input": 3}, r"line 2: input\(\) waits for a person"),
        ("lock.acquire()", {"lock": threading.Lock()}, "'lock' .* cannot travel .* make it inside the cell"),
    ],
)
def test_what_cannot_travel_is_named(source, session, message):
    with pytest.raises(names.NameProblem, match=message):
        pack(source, session)


def test_usual_modules_need_no_import():
    assert unpacked(pack("np.zeros(2)", {}))["np"] is np


def test_names_that_a_star_import_may_bring_are_not_refused():
    pack("from os.path import *\njoin('a', 'b')", {})


def test_names_of_the_notebook_that_a_cell_defines_or_asks_for():
    pack("input = 3\nprint(input)", {})
    pack("def f(input):\n    return input(1)", {})
    asks = "try:\n    get_ipython()\n    notebook = True\nexcept NameError:\n    notebook = False"
    assert unpacked(pack(asks, {"get_ipython": threading.Lock()})) == {}


@pytest.mark.parametrize(
    ("source", "sent"),
    [
        ("1", {"decode"}),
        ("x = decode", {"decode"}),
        ("def decode(row):\n    return row", set()),
        ("from images import read as decode", set()),
        ("if True:\n    decode = len", set()),
        ("def other():\n    def inner():\n        pass", {"decode"}),
    ],
)
def test_the_function_of_transform_is_the_notebooks_where_the_cell_defines_none(source, sent):
    assert set(names.captured(source, {"decode": len, "x": 1}, transform="decode:batch")) == sent


@pytest.mark.parametrize(
    ("session", "message"),
    [
        ({"decoded": len}, "there is no function decode; did you mean decoded?"),
        ({}, "there is no function decode; define it in the cell, or run the cell that does"),
        ({"decode": [1]}, "decode is no function (its type is list): name one"),
    ],
)
def test_what_is_no_function_of_transform(session, message):
    said = one_line(names.NameProblem, names.captured, "1", session, transform="decode")
    assert said == f"--transform: {message}"


@pytest.mark.parametrize(
    ("source", "sent"),
    [
        ("x = x / 255\ny = 1\ny", {"x"}),
        ("x += 1", {"x"}),
        ("x: int = x", {"x"}),
        ("for x in x:\n    y = x", {"x"}),
        ("if x:\n    x = 1", {"x"}),
        ("try:\n    x\nexcept NameError:\n    x = 1", {"x"}),
        ("x = [x for x in y]\ny = 2", {"y"}),
        ("x = 1\nx = x + 1", set()),
        ("import x\nx.y = x", set()),
        ("def f(a=x):\n    return y\nx = y = 2", {"x"}),
        ("class A(x):\n    y = y\nx = y = 2", {"x"}),
        ("with x as x:\n    x", {"x"}),
        ("x[0] = 1\nx = 2", {"x"}),
        ("f = lambda x: x\nx = 1", set()),
    ],
)
def test_what_a_cell_reads_before_it_assigns_it_is_the_notebooks(source, sent):
    assert set(unpacked(pack(source, {"x": 1, "y": 2}))) == sent


def test_the_lines_of_functions_travel_and_no_others():
    """AutoGraph reads them; the rest of their cell may hold a password."""
    file = "/tmp/ipykernel_1/2.py"
    cell = "password = 'pa55'\n\ndef twice(x):\n    return helper(x)\n\nhelper = lambda x: 2 * x\n"
    notebook = {}
    linecache.cache[file] = (len(cell), None, cell.splitlines(True), file)
    exec(compile(cell, file, "exec"), notebook)
    blob = pack("twice(1)", notebook)
    del linecache.cache[file]
    twice = unpacked(blob)["twice"]
    assert inspect.getsource(twice) == "def twice(x):\n    return helper(x)\n"
    assert twice(2) == 4 and inspect.getsource(twice.__globals__["helper"]) == "helper = lambda x: 2 * x\n"
    assert b"pa55" not in blob and "pa55" not in "".join(linecache.getlines(file))
    del linecache.cache[file]


def test_a_function_of_transform_that_comes_too_late():
    late = "def train():\n    model.fit(dataset)\nfor x in dataset:\n    pass\ndef decode(x):\n    return x"
    said = one_line(names.NameProblem, names.captured, late, {}, predefined=("dataset",), transform="decode")
    assert said == "line 3: dataset is used before the function decode of --transform is defined: move the function up"


def test_a_variable_called_ddl_is_refused():
    said = one_line(names.NameProblem, names.captured, "x = 1\nddl.split()", {"ddl": "some text"})
    assert (
        said == "line 2: %%distributed defines ddl, and so does the session (it is of type str): rename the session's"
    )
    assert names.captured("ddl = 'a b'\nddl.split()", {"ddl": "some text"}, ()) == {}


OF_CELLS = """
noted, factor, unused, inner = [], {"by": 2}, [], {}
class Base:
    def __init__(self):
        self.own = inner
class Noted(Base):
    def on_epoch_end(self):
        noted.append(1)
    @staticmethod
    def scaled(x):
        return [x * factor["by"] for _ in range(2)]
def wrapped(function):
    return lambda: function()
train = wrapped(lambda: [Noted() for _ in range(2)])
"""


def test_what_functions_of_cells_use_is_known():
    session = {"__name__": "__main__"}
    exec(OF_CELLS, session)
    used = names.used_by_functions({"train": session["train"]}, session)
    assert {name for name in used if not isinstance(used[name], type)} == {"noted", "factor", "inner"}
    assert names.used_by_functions({"callbacks": [session["Noted"]()]}, session).keys() == {"noted", "factor", "inner"}
    for wrap in (functools.partial, tf.function):
        compiled = {"run": wrap(session["Noted"].on_epoch_end)}
        assert names.used_by_functions(compiled, session).keys() == {"noted"}
    assert names.used_by_functions({"len": len, "x": [1, 2.5]}, session) == {}
