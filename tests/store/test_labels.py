"""What people add to a run, at the bounds of what is allowed."""

import pytest

from ddl_magics.store import labels
from ddl_magics.store.labels import InvalidLabels, Labels


def test_tags_are_stripped_sorted_and_each_once():
    assert labels.tags([" good ", "good", "für später", "a" * 40]) == ["a" * 40, "für später", "good"]
    assert labels.tags([]) == [] and labels.tags(f"{number:02}" for number in range(20))[-1] == "19"


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ("good", "labels must be a list of texts"),
        (b"good", "labels must be a list of texts"),
        (3, "labels must be a list of texts"),
        ([3], "a label must be one line of 1 to 40 characters"),
        ([" "], "a label must be one line of 1 to 40 characters"),
        (["a\nb"], "a label must be one line of 1 to 40 characters"),
        (["a" * 41], "a label must be one line of 1 to 40 characters"),
        (["a"] * 21, "labels must be a list of at most 20"),
    ],
)
def test_what_are_no_tags_is_refused(values, says):
    with pytest.raises(InvalidLabels, match=says):
        labels.tags(values)


def test_a_title_is_a_line_and_a_note_a_text():
    assert labels.title(f" {'a' * 98} ") == "a" * 98 and labels.title("") == ""
    assert labels.note(f"a\n\tb{'c' * 3996}") == f"a\n\tb{'c' * 3996}" and labels.note(" ") == ""
    for title in ("a" * 101, "a\nb", None, "a\x07"):
        with pytest.raises(InvalidLabels, match="title must be one line of at most 100 characters"):
            labels.title(title)
    for note in ("a" * 4001, None, "a\x07"):
        with pytest.raises(InvalidLabels, match="note must be a text of at most 4000 characters"):
            labels.note(note)


def test_what_is_invalid_in_a_file_is_left_out():
    stored = {"title": "a" * 100, "labels": ["a", 3, "b" * 41, "c"], "note": "d" * 4000}
    assert Labels.read(stored) == Labels("a" * 100, ("a", "c"), "d" * 4000)
    assert Labels.read({"title": "a" * 101, "labels": "a", "note": "d" * 4001}) == Labels()
    assert Labels.read({}) == Labels()
