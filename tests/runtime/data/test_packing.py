"""Rows become arrays at once, exactly as value by value, and what is wrong in them is told in the same words."""

from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from ddl_magics.runtime.data import columns, packing

LARGE = 2**53 + 1


def column(dtype, depth=0, name="x"):
    return {"name": name, "dtype": dtype, "depth": depth, "vector": False}


def both(monkeypatch, rows, columns, tensors):
    """(report, arrays) of rows that are packed at once where that can be, which must be those of the other way."""
    report, blob = packing.packed(packing.row_arrays, rows, columns, tensors)
    with monkeypatch.context() as patch:
        patch.setattr(packing, "at_once", lambda *_: None)
        patch.setattr(packing, "matrix_at_once", lambda *_: None)
        other_report, other = packing.packed(packing.row_arrays, rows, columns, tensors)
    assert report == other_report
    assert blob == other
    return report, packing.decode(blob)[1] if blob else []


@pytest.mark.parametrize(
    ("dtypes", "rows"),
    [
        (["f4", "f4"], [(0.1, 1e38), (-0.0, 3)]),
        (["f8", "f8"], [(Decimal("0.1"), 2), (LARGE, 4.5)]),
        (["f8", "i8"], [(0.5, LARGE), (1.5, 3)]),
        (["i8", "i8"], [(LARGE, -1), (2, 3)]),
        (["i8", "i8"], [(LARGE, None), (2, 3)]),
        (["i4", "i4"], [(2**40, 1), (2, 3)]),
        (["f8", "f8"], [(0.5, None), (float("nan"), 3)]),
        (["f8", "f8"], [(0.5, float("nan")), (float("-inf"), 3)]),
        (["?", "?"], [(True, False), (False, None)]),
        (["?", "?"], [(True, False), (False, True)]),
        (["f8", "f8"], [("a", 1.0), (2.0, 3.0)]),
        (["f4", "f4"], [(float("nan"), float("inf")), (2.0, 3.0)]),
        (["f4", "f4"], [(1e39, 1.0), (2.0, 3.0)]),
        (["u8", "u8"], [(2**64 - 1, 1), (2, 3)]),
    ],
)
def test_a_matrix_of_scalars(monkeypatch, dtypes, rows):
    columns = [column(dtype, name=f"x{index}") for index, dtype in enumerate(dtypes)]
    both(monkeypatch, rows, columns, [[0, 1]])
    both(monkeypatch, rows, columns, [[1, 0]])
    both(monkeypatch, rows, columns, [[0], [1]])


@pytest.mark.parametrize(
    ("dtype", "depth", "values"),
    [
        ("f8", 1, [[1.0, 2.0], [3.0, 4.0]]),
        ("f8", 1, [[1.0, 2.0], [3.0]]),
        ("f8", 1, [[1.0, None], [3.0, 4.0]]),
        ("f8", 1, [[1.0, 2.0], None]),
        ("f4", 1, [[], []]),
        ("i8", 2, [[[1, LARGE]], [[3, 4]]]),
        ("i8", 2, [[[1, 2], [3, 4]], [[1, 2], [3]]]),
        ("i8", 2, [[[1, 2], [3, 4]], [[1, 2], [3, None]]]),
        ("S", 0, ["a", "bcd"]),
        ("S", 1, [["a", "bcd"], ["", "ü"]]),
    ],
)
def test_arrays_and_text(monkeypatch, dtype, depth, values):
    both(monkeypatch, [(value,) for value in values], [column(dtype, depth)], [[0]])


def test_what_is_reported(monkeypatch):
    rows = [(1.0, float("inf"), [float("nan")]), (float("nan"), 2.0, [3.0])]
    columns = [column("f8", name="a"), column("f8", name="b"), column("f8", 1, "c")]
    report, arrays = both(monkeypatch, rows, columns, [[0, 1], [2]])
    assert (report["nan"], report["inf"], report["rows"], report["shapes"]) == (["a", "c"], ["b"], 2, [[2], [1]])
    np.testing.assert_array_equal(arrays[0], [[1.0, np.inf], [np.nan, 2.0]])
    report, _ = both(monkeypatch, [(1,), (None,)], [column("i8")], [[0]])
    assert report["error"] == "column 'x': it has empty values (null): fill them or drop their rows first"


def test_batches_of_arrow_are_packed_as_rows():
    """The same blobs, and for what cannot be packed the same words."""
    pyarrow = pytest.importorskip("pyarrow")
    kinds = {
        "f4": (pyarrow.float32(), [0.5, -1.5, float("nan"), 3.0]),
        "f8": (pyarrow.float64(), [0.1, float("inf"), -0.0, 3.0]),
        "i8": (pyarrow.int64(), [LARGE, -1, 0, 3]),
        "i2": (pyarrow.int16(), [1, -1, 0, 3]),
        "?": (pyarrow.bool_(), [True, False, True, True]),
    }
    decimals = [Decimal("0.1"), Decimal("-3.25"), Decimal("0.3"), Decimal("7")]
    lists = [[1.5, 2.5], [3.5, 4.5], [5.5, 6.5], [7.5, 8.5]]
    nested = [[[1, 2]], [[3, 4]], [[5, 6]], [[7, 8]]]
    of_lists, of_nested = pyarrow.list_(pyarrow.float32()), pyarrow.list_(pyarrow.list_(pyarrow.int32()))
    given = [(column(dtype, name=dtype), *about) for dtype, about in kinds.items()]
    given += [
        (column("f8", name="decimal"), pyarrow.decimal128(5, 2), decimals),
        (column("f4", 1, "list"), of_lists, lists),
        (column("i4", 2, "nested"), of_nested, nested),
    ]

    def both_ways(given, tensors, size=3):
        columns = [each for each, _, _ in given]
        arrays = [pyarrow.array(values, kind) for _, kind, values in given]
        table = pyarrow.table(arrays, [each["name"] for each in columns])
        rows = list(zip(*(values for _, _, values in given), strict=True))
        batches = list(table.to_batches(size))
        by_arrow = list(packing.pack_batches(5, batches, columns, tensors))
        by_rows = [
            packing.packed(packing.row_arrays, rows[first : first + size], columns, tensors)
            for first in range(0, len(rows), size)
        ]
        return by_arrow, [(5, chunk, report, blob) for chunk, (report, blob) in enumerate(by_rows)]

    by_arrow, by_rows = both_ways(given, [[0, 1, 2], [3], [4], [5], [6], [7]])
    assert by_arrow == by_rows and len(by_rows) == 2
    for missing in (
        (column("f8"), pyarrow.float64(), [1.0, None]),
        (column("f4", 1), of_lists, [[1.0, 2.0], [3.0]]),
        (column("f4", 1), of_lists, [[1.0, 2.0], None]),
        (column("f4", 1), of_lists, [[1.0, 2.0], [1.0, None]]),
        (column("i4", 2), of_nested, [[[1]], [[1], [2]]]),
        (column("f4", 1), of_lists, [[], []]),
        (column("i4", 2), of_nested, [[], []]),
    ):
        by_arrow, by_rows = both_ways([missing], [[0]])
        assert by_arrow == by_rows
    assert by_rows[0][2]["error"].endswith("its arrays are empty: drop these rows, or leave it out of --features")


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([1, 2.5], "<f8"),
        ([[0, 0.25], [1, 0.75]], "<f8"),
        ([[0, 1], [1.5, 2]], "<f8"),
        ([True, 2], "<i8"),
        ([1, 2**40], "<i8"),
    ],
)
def test_a_column_of_objects_has_the_type_of_all_its_values(values, dtype):
    frame = pd.DataFrame({"v": pd.Series(values, dtype=object)})
    known = columns.describe("df", frame, "v")
    assert known["dtype"] == dtype
    np.testing.assert_array_equal(packing.as_array(list(frame["v"]), known), np.array(values, dtype))


def test_a_number_among_texts_is_refused_by_its_value():
    known = columns.describe("df", pd.DataFrame({"zip": ["94105-1", 94105]}), "zip")
    with pytest.raises(ValueError, match="it has text, and 94105, which is a int: make all values text"):
        packing.as_array(["94105-1", 94105], known)


@pytest.mark.parametrize("values", [[1, "5"], [1.5, b"5"], [True, "5"], [[1, 2], [3, "5"]], [[1], [2, "5"]]])
def test_a_text_among_numbers_is_refused_though_numpy_would_make_a_number_of_it(values):
    series = pd.Series(values, dtype=object)
    known = columns.describe("df", pd.DataFrame({"v": series}), "v")
    known = {**known, "ragged": "if needed"} if known["depth"] else known
    with pytest.raises(ValueError, match=r"^column 'v': it has b?'5', a text in place of a number: make all values"):
        packing.column_arrays([columns.pandas_values(series)], [known], [[0]])


def test_texts_of_digits_are_texts():
    frame = pd.DataFrame({"zip": ["5", "6"]})
    array = packing.as_array(columns.pandas_values(frame["zip"]), columns.describe("df", frame, "zip"))
    assert array.tolist() == [b"5", b"6"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([[[1, 2], [3]], [[1, 2], [3, 4]]], "its lengths differ"),
        ([[1, 2], [1]], "its lengths differ"),
        ([[1, 2], [1, None]], "it has empty values"),
        ([[1, None], [1, 2]], "it has empty values"),
    ],
)
def test_lists_that_make_no_array_are_refused_in_words(values, message):
    known = columns.describe("df", pd.DataFrame({"v": values}), "v")
    with pytest.raises(ValueError, match=message):
        packing.as_array(values, known)


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([1, 2**32 + 3], "i4"),
        ([1, -1], "u1"),
        ([1.0, 1e39], "f4"),
        ([1.0, float("nan")], "i8"),
        ([1.0, 2.0**63], "i8"),
        ([2**64 - 1, 0], "i8"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_a_number_that_its_type_does_not_hold_is_refused(values, dtype):
    """NumPy makes 3 of 2**32 + 3, and infinity of 1e39: scoring would go on with them."""
    pyarrow = pytest.importorskip("pyarrow")
    message = f"column 'x': it has .*, which {np.dtype(dtype).name} does not hold: drop these rows, or train"
    array = np.array(values)
    frames = [[array], packing.batch_values([pyarrow.array(array)], [column(dtype)])]
    if dtype != "i8":  # Spark gives no other numbers for a column of that type
        frames.append([values])
    for frame in frames:
        with pytest.raises(ValueError, match=message):
            packing.column_arrays(frame, [column(dtype)], [[0]])
    large = np.array([1.5, np.inf])
    np.testing.assert_array_equal(packing.as_array(large, column("f4")), large.astype("f4"))


@pytest.mark.filterwarnings("error")
def test_vectors_that_the_type_does_not_hold_are_refused():
    vectors = [[1.0, 1e39]]
    with pytest.raises(ValueError, match="it has 1e\\+39, which float32 does not hold"):
        packing.as_array(vectors, {**column("f4", 1), "vector": True})
    sparse = [np.array([2, 0], np.int64).tobytes() + np.array([1e39]).tobytes()]
    with pytest.raises(ValueError, match="it has 1e\\+39, which float32 does not hold"):
        packing.sparse_arrays(sparse, np.dtype("float32"))
    assert packing.sparse_arrays(sparse, np.dtype("float64"))[1] == [1e39]


@pytest.mark.parametrize(
    ("values", "dtype", "scale", "rounds"),
    [
        ([1, 2**24, -(2**24)], "i8", 0, None),
        ([2**24 + 1, 0], "i8", 0, "float32"),
        ([2**30], "i8", 0, None),
        ([2**53 + 1], "i8", 0, "float64"),
        ([2**64 - 1], "u8", 0, "float64"),
        ([0.1, 0.5, 0.07, 12345.67], "f8", 2, None),
        ([0.1], "f8", 18, None),
        ([0.5, 12345678.91], "f8", 2, "float32"),
        ([0.5, 2**24 + 1], "f8", 1, "float32"),
        ([1 / 3], "f8", 18, "float32"),
        ([2.0**53], "f8", 0, "float64"),
    ],
)
def test_which_floats_round_whole_numbers_and_decimals(values, dtype, scale, rounds):
    """Decimals are float64 here, as NumPy has none. 0.1 has one digit as float32 as well."""
    array, known = np.array(values, dtype), {**column(dtype), "scale": scale}
    losses = dict(packing.rounding_floats(array, [known] if dtype == "f8" else []))
    matrix = dict(packing.rounding_floats(np.stack([array, array], axis=1), [known, column("f4", name="other")]))
    assert matrix == ({} if rounds is None else {"x": rounds})
    assert losses == (matrix if dtype == "f8" else {})


def test_what_keras_floats_round_is_one_notice():
    report = packing.packed(
        packing.row_arrays, [(1, 2**24 + 1, 2**53 + 1)], [column("i8", name=n) for n in "abc"], [[0, 1, 2]]
    )[0]
    losses = packing.merged([packing.EMPTY_REPORT, report, {"rounded": {"c": "float32"}, "too_large": []}])
    assert losses == {"rounded": {"b": "float32", "c": "float64"}, "too_large": []}
    assert packing.about_losses("df", losses, "float32") == [
        "--data df: float32 rounds numbers of 'b', 'c': call keras.backend.set_floatx('float64') in a cell before this "
        "one; make a text of 'c', which float64 rounds as well, if all of its digits count"
    ]
    assert packing.about_losses("df", losses, "float64") == [
        "--data df: float64 rounds numbers of 'c': make a text of 'c', which float64 rounds as well, if all of its "
        "digits count"
    ]


SERIES = {"groups": 1, "order_by": "t"}


def reported(rows):
    """The reports about rows of x, city, t and whether they are early, packed in both ways."""
    import pyarrow as pa

    columns, tensors = [column("f8")], [[0]]
    by_row = [report for *_, report, _ in packing.pack(0, rows, columns, tensors, SERIES)]
    batch = pa.RecordBatch.from_arrays([pa.array(values) for values in zip(*rows, strict=True)], names=list("xcte"))
    by_batch = [report for *_, report, _ in packing.pack_batches(0, [batch], columns, tensors, SERIES)]
    assert [(each["error"], each.get("series")) for each in by_row] == [
        (each["error"], each.get("series")) for each in by_batch
    ]
    return by_row


def test_rows_of_series_report_where_each_begins_and_ends():
    rows = [(1.0, "a", 1, True), (2.0, "a", 2, True), (3.0, "a", 3, False), (4.0, "b", 1, True)]
    (report,) = reported(rows)
    assert report["series"] == {
        "first_key": (("a",), 1),
        "last_key": (("b",), 1),
        "segments": [(3, 2), (1, 1)],
    }


@pytest.mark.parametrize(
    ("rows", "error"),
    [
        ([(1.0, "a", None, True)], "column 't' or --group-by: rows without a value have no order: drop them first"),
        ([(1.0, None, 1, True)], "column 't' or --group-by: rows without a value have no order: drop them first"),
        (
            [(1.0, "a", 1, True), (2.0, "b", 1, True), (3.0, "b", 1, True)],
            "column 't': two rows of b have the same value, and so no order: keep one of them",
        ),
    ],
)
def test_rows_without_an_order_are_an_error_of_the_report(rows, error):
    assert [report["error"] for report in reported(rows)] == [error]
