"""scripts/counts.py: what it counts, in code of a few lines, and the bounds that the package keeps."""

import ast
from pathlib import Path

import pytest
from support.rooms import counts, trees

PACKAGE = Path(counts.PACKAGE)


def _trees(**files):
    return {PACKAGE / f"{name}.py": ast.parse(text) for name, text in files.items()}


def test_a_name_counts_once_in_each_scope():
    (tree,) = _trees(
        a="""
found = found = 1
def read(given, *, each):
    found = [part for part in given]
    self._known = lambda one: one
class Other: pass
"""
    ).values()
    names = [name for name, _, _ in counts.bound_names(tree)]
    assert sorted(names) == ["Other", "_known", "each", "found", "found", "given", "one", "part", "read"]


@pytest.mark.parametrize(
    ("name", "vague"),
    [
        ("found", True),
        ("_known", True),
        ("EACH", True),
        ("known_names", False),
        ("__all__", False),
        ("gradients", False),
    ],
)
def test_a_vague_name_is_one_word_that_names_nothing(name, vague):
    assert counts.is_vague(name) is vague


def test_two_words_that_tell_two_things_apart_are_not_vague():
    (tree,) = _trees(a="def merge(first, second): pass\ndef take(first, found): pass").values()
    assert [name for name, _, vague in counts.bound_names(tree) if vague] == ["first", "found"]


CIRCLE = {
    "a": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ddl_magics import b",
    "b": "def late():\n    from ddl_magics import c",
    "c": "from . import a",
    "d": "import ddl_magics.a",
}


@pytest.mark.parametrize(
    ("typing", "functions", "groups"),
    [
        (True, True, [["ddl_magics.a", "ddl_magics.b", "ddl_magics.c"]]),
        (True, False, []),
        (False, True, []),
    ],
)
def test_a_circle_may_be_closed_by_an_import_inside_a_function_or_for_type_checkers(typing, functions, groups):
    assert counts.circles(counts.imports(_trees(**CIRCLE), typing, functions)) == groups


def test_circles_of_several_files_are_groups():
    graph = {"a": {"b"}, "b": {"c", "d"}, "c": {"a"}, "d": {"e"}, "e": {"d"}, "f": {"a"}}
    assert sorted(counts.circles(graph)) == [["a", "b", "c"], ["d", "e"]]
    assert counts.circles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_reads_by_key_of_events_and_specs_are_counted_and_others_are_not():
    trees = _trees(a='event["loss"]; self.spec.get("workers"); record["loss"]; event["loss"] = 1; event[0]')
    assert counts.loose_reads(trees) == 2


def test_checks_of_a_clusters_class_are_counted_outside_of_clusters():
    text = "isinstance(cluster, LivyCluster); isinstance(x, (A, clusters.EmbeddedCluster)); isinstance(x, int)"
    trees = {PACKAGE / "runs" / "a.py": ast.parse(text), PACKAGE / "clusters" / "b.py": ast.parse(text)}
    assert counts.cluster_checks(trees) == ["ddl_magics/runs/a.py:1"] * 2


def test_only_the_clusters_know_which_kind_they_are():
    assert counts.cluster_checks(trees()) == []


def test_loose_dicts_are_counted():
    trees = _trees(
        a="def f() -> dict[str, Any]: ...\ndef g() -> Mapping[str, Any]: ...\ndef h() -> dict[str, int]: ..."
    )
    assert counts.dict_returns(trees) == 2


#: Of a hundred names that a room, or the package, binds.
MOST_VAGUE_OF_ROOM, MOST_VAGUE = 2.0, 1.0


def test_names_say_what_they_stand_for():
    names = counts.vague_names(trees())
    shares = {room: 100 * vague / bound for room, (vague, bound) in names.items() if bound}
    high = {room: share for room, share in shares.items() if share > MOST_VAGUE_OF_ROOM}
    assert not high, f"python scripts/counts.py --names {' '.join(high)}"
    vague, bound = (sum(column) for column in zip(*names.values(), strict=True))
    assert 100 * vague / bound <= MOST_VAGUE
