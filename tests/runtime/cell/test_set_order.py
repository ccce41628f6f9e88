"""Sets of texts of the notebook, whose order the workers do not know."""

import pytest

from ddl_magics.runtime.cell import set_order

LABELS = {"cat", "dog", "cow"}


@pytest.mark.parametrize(
    "source",
    [
        "index = {label: i for i, label in enumerate(labels)}",
        "for label in labels:\n    print(label)",
        "classes = list(labels)",
        "def f(x):\n    return dict(zip(labels, x))",
    ],
)
def test_a_cell_that_uses_the_order(source):
    assert set_order.iterated(source, {"labels": LABELS}) == ["labels"]
    assert set_order.iterated(source, {"labels": frozenset((b"a", b"b"))}) == ["labels"]
    for of_one_order in ({1, 2, 3}, {"cat"}, ["cat", "dog"], None):
        assert set_order.iterated(source, {"labels": of_one_order}) == []


@pytest.mark.parametrize(
    "source",
    [
        "classes = sorted(labels)",
        "units = len(labels)",
        "rows = [row for row in rows if row in labels]",
        "kept = labels | {'hen'}",
        "labels.add('hen')",
        "labels = []",
    ],
)
def test_a_cell_that_does_not(source):
    assert set_order.iterated(source, {"labels": LABELS}) == []
