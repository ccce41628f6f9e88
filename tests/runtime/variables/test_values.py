"""A value of the cell is the same value in the notebook; what is no such value is refused."""

import collections
import datetime
import json
import pathlib
import pickle
import threading

import numpy as np
import pandas as pd
import pytest

from ddl_magics.runtime.variables import decoding, encoding

CASES = {
    "plain": [None, True, 3, 2**70, 0.1, float("inf"), "text ä", b"\x00bytes", 1 + 2j],
    "nested": {"a": (1, [2, {3}]), 4: frozenset((5, 6)), None: {"b": ()}},
    "builtin": [bytearray(b"x"), range(1, 9, 2), pathlib.Path("a/b"), collections.deque([1, 2])],
    "mappings": [collections.Counter("aab"), collections.OrderedDict(b=1, a=2), collections.defaultdict(list, a=[1])],
    "times": [datetime.datetime(2024, 1, 2, 3), datetime.date(2024, 1, 2), datetime.timedelta(1, 2, 3)],
    "scalars": [np.float32(0.1), np.int8(-3), np.bool_(True), np.float64("nan")],
    "arrays": [np.arange(6.0).reshape(2, 3), np.zeros((0, 4), "int8"), np.array(["a", "bc"]), np.float32([[1]]).T],
    "objects": np.array(["a", None, (1, 2)], dtype=object),
    "time array": np.array(["2024-01-01"], "M8[D]"),
}
TABLES = {
    "frame": pd.DataFrame({"x": [1, 2], "y": ["a", None], 3: [0.5, np.nan]}, index=["r", "s"]),
    "dtypes": pd.DataFrame(
        {
            "c": pd.Categorical(["a", "b", "a"], ordered=True),
            "i": pd.array([1, None, 3], "Int64"),
            "s": pd.array(["x", None, "z"], "string"),
            "t": pd.to_datetime(["2024-01-01", None, "2024-01-03"]),
        }
    ),
    "repeated columns": pd.DataFrame([[1, 2.0]], columns=["a", "a"]),
    "levels": pd.DataFrame({"v": [1, 2]}, index=pd.MultiIndex.from_tuples([("a", 1), ("b", 2)], names=["k", "n"])),
    "named": pd.DataFrame({"v": [1]}).rename_axis("row").rename_axis(columns="column"),
}


def travelled(value, notebook=None):
    encoder = encoding.Encoder({id(thing): name for name, thing in (notebook or {}).items()}, {})
    text = json.dumps([encoder.encode(value), encoder.objects])
    encoded, objects = json.loads(text)
    arrays = [np.array(array) for array in encoder.arrays]
    return decoding.Decoder(objects, arrays.__getitem__, (notebook or {}).__getitem__, None).decode(encoded)


def assert_same(one, other):
    assert type(one) is type(other)
    if isinstance(one, np.ndarray):
        assert one.dtype == other.dtype and one.shape == other.shape
        assert one.tolist() == other.tolist()
    elif isinstance(one, (list, tuple, collections.deque)):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            assert_same(a, b)
    elif isinstance(one, dict):
        assert list(one) == list(other)
        assert_same(list(one.values()), list(other.values()))
    else:
        assert one == other or one != one


@pytest.mark.parametrize("name", CASES)
def test_a_value_keeps_its_type_and_content(name):
    assert_same(CASES[name], travelled(CASES[name]))


@pytest.mark.parametrize("name", TABLES)
def test_a_table_keeps_columns_dtypes_and_index(name):
    pd.testing.assert_frame_equal(TABLES[name], travelled(TABLES[name]))


def test_a_series_keeps_its_name_and_index():
    series = pd.Series([1.5, 2.5], index=pd.date_range("2024-01-01", periods=2), name="v")
    pd.testing.assert_series_equal(series, travelled(series), check_freq=False)


def test_what_is_one_object_stays_one_and_may_contain_itself():
    losses = [0.5]
    history = {"losses": losses, "again": losses}
    history["self"] = history
    copy = travelled(history)
    assert copy["losses"] is copy["again"] and copy["self"] is copy and copy["losses"] is not losses


def test_an_object_of_the_notebook_is_that_object():
    mine = [1]
    assert travelled((mine, {"m": mine}), {"mine": mine})[1]["m"] is mine


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (threading.Lock(), "a lock"),
        ((number for number in ()), "a generator"),
        ([object()], "an object"),
        (np.ma.masked_array([1]), "a MaskedArray"),
        (pd.DataFrame({"t": pd.to_datetime(["2024-01-01"], utc=True)}), "a column of dtype datetime64[ns, UTC]"),
        (collections.defaultdict(lambda: 1), "a defaultdict with a function of its own"),
        (np.longdouble(1), "of type numpy.longdouble"),
    ],
)
def test_what_cannot_travel_is_said_and_leaves_nothing(value, why):
    encoder = encoding.Encoder({}, {})
    kept = encoder.encode([1])
    with pytest.raises(encoding.CannotTravel) as error:
        encoder.encode([[2], value])
    assert why in str(error.value) or why == "of type numpy.longdouble"
    assert (encoder.objects, encoder.arrays, kept) == ([{"list": [1]}], [], {"object": 0})


def test_depth_is_bounded():
    deep = ()
    for _ in range(500):
        deep = (deep,)
    with pytest.raises(encoding.CannotTravel, match="nested too deeply"):
        encoding.Encoder({}, {}).encode(deep)


HOSTILE = [
    [1],
    {},
    {"list": [1], "set": []},
    {"eval": "1"},
    {"object": 7},
    {"object": -1},
    {"object": True},
    {"tuple": 3},
    {"bytes": "?"},
    {"scalar": ["O", 1]},
    {"scalar": ["<f8", [1]]},
    {"range": [1, 2, 0]},
    {"datetime": "never"},
    {"complex": ["a"]},
    {"frozenset": [{"object": 0}]},  # a list is not hashable
    {"object": 1},  # a defaultdict of os.system
    {"object": 2},  # a table with a dtype that imports
    {"object": 3},
    {"tensor": 5},
]
OBJECTS = [
    {"list": []},
    {"defaultdict": ["system", []]},
    {"series": {"name": None, "data": ["period[D]", {"object": 0}], "index": ["range", None, [0, 0, 1]]}},
    {"frame": {"columns": ["flat", None, [None, 3]], "data": [], "index": ["range", None, [0, 0, 1]]}},
]


@pytest.mark.parametrize("encoded", HOSTILE, ids=str)
def test_what_is_no_value_is_refused(encoded):
    with pytest.raises(decoding.Damaged):
        decoding.Decoder(OBJECTS, [].__getitem__, None, None).decode(encoded)


def test_a_value_that_refers_to_itself_without_end_is_refused():
    with pytest.raises(decoding.Damaged):
        decoding.Decoder([{"objects": [[1], [{"object": 0}]]}], None, None, None).decode({"object": 0})


def test_no_pickle_is_read(tmp_path):
    (path := tmp_path / "x.npy").touch()
    np.save(path, np.array([{1: 2}], dtype=object), allow_pickle=True)
    for data in (path.read_bytes(), pickle.dumps([1]), b""):
        with pytest.raises(decoding.Damaged):
            decoding.loaded_array(data)
