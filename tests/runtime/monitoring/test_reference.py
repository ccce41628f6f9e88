"""The reference of a run's data: deciles, values, texts, and ranks' sketches merged."""

import numpy as np

from ddl_magics.runtime import events
from ddl_magics.runtime.monitoring import at_training, reference, watched

RANDOM = np.random.default_rng(5)


def feature_of(parts, text=False):
    return reference.merged("f", [reference.sketch(part, 401) for part in parts], text)


def test_a_number_has_deciles_of_all_ranks_together():
    parts = [RANDOM.normal(0, 1, 5000), RANDOM.normal(4, 1, 5000)]
    feature, together = feature_of(parts), np.concatenate(parts)
    np.testing.assert_allclose(feature["edges"], np.quantile(together, np.linspace(0.1, 0.9, 9)), atol=0.06)
    true = np.bincount(np.searchsorted(feature["edges"], together, side="right"), minlength=10)
    np.testing.assert_allclose(feature["counts"], true, atol=60)
    assert sum(feature["counts"]) == 10_000
    np.testing.assert_allclose([feature["mean"], feature["std"]], [together.mean(), together.std()], rtol=1e-6)


def test_a_number_of_few_values_has_a_bin_for_each_and_one_beyond_each_end():
    feature = feature_of([np.array([1.0, 2.0, 2.0]), np.array([5.0])])
    assert feature["labels"] == ["lower", "1", "2", "5", "higher"]
    assert feature["counts"] == [0, 1, 2, 1, 0]
    assert feature["edges"] == [0.5, 1.5, 3.5, 6.5]


def test_missing_numbers_are_counted_apart():
    feature = feature_of([np.array([np.nan, 1.0, np.inf, 2.0])])
    assert feature["nulls"] == 2
    assert feature["mean"] == 1.5


def test_texts_are_counted_by_value_and_rare_ones_together():
    words = np.array([b"a"] * 50 + [b"b"] * 30 + [f"rare{i}".encode() for i in range(40)], object)
    feature = feature_of([words, words], text=True)
    assert feature["labels"][:3] == ["other", "a", "b"]
    assert feature["counts"][1:3] == [100, 60]
    assert sum(feature["counts"]) == 240


def test_nothing_but_missing_values_has_no_bins():
    assert feature_of([np.array([np.nan, np.nan])])["counts"] == []


def test_a_window_counts_by_its_newest_row():
    tensor = watched.of_input("", "load", (2,), False, windowed=True)
    rows = np.arange(24.0).reshape(3, 4, 2)
    assert [values.tolist() for values in watched.values(tensor, rows)] == [[6, 14, 22], [7, 15, 23]]


def test_an_image_counts_by_its_mean():
    tensor = watched.of_input("", "pixels", (28, 28), False, windowed=False)
    assert tensor["named"] == ["mean of pixels"]
    assert watched.values(tensor, np.ones((2, 28, 28)))[0].tolist() == [1, 1]


def test_classes_count_by_the_most_likely_one():
    tensor = watched.of_output("", (3,))
    mean, largest = watched.values(tensor, np.array([[0.1, 0.2, 0.7], [0.5, 0.4, 0.1]]))
    assert largest.tolist() == [2, 0]
    assert len(mean) == 2


def test_columns_have_the_names_of_the_data():
    sketches = reference.Sketches()
    tensor = watched.of_input("", "features", (2,), False, False)
    rows = RANDOM.normal(size=(300, 2))
    for rank in range(2):
        made = [reference.sketch(values, 101) for values in rows.T]
        event = events.make("reference", rank, rows=300, inputs=[tensor], outputs=[], sketches=made, output_sketches=[])
        sketches.add(events.parse(event))
    made_of = {"columns": [{"name": "load"}, {"name": "heat"}], "tensors": [[0, 1]], "features": 0}
    found = sketches.reference("run", made_of)
    assert [feature["name"] for feature in found["features"]] == ["load", "heat"]
    assert found["rows"] == 600


def test_no_more_elements_are_watched_than_the_bound():
    """Whole inputs, the first ones; no sparse ones, and no arrays of text."""
    vector, large = {"use": "array", "shape": [250], "dtype": "<f4"}, {"use": "array", "shape": [257], "dtype": "<f4"}
    tensors = [{**tensor, "name": f"t{number}"} for number, tensor in enumerate([vector, vector, vector, large])]
    tensors.append({"use": "sparse", "shape": [3], "dtype": "<f4", "name": "s"})
    manifest = {"features": {tensor["name"]: number for number, tensor in enumerate(tensors)}, "tensors": tensors}
    found = at_training._inputs(manifest)
    assert [(tensor["name"], len(tensor["named"])) for tensor in found] == [("t0", 250), ("t1", 250)]
    manifest["features"] = {"t3": 3, "t0": 0}
    assert [len(tensor["named"]) for tensor in at_training._inputs(manifest)] == [1, 250], "a longer vector by its mean"
