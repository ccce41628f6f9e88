"""The rooms of the code: imports, in functions and for type checkers as well, point down and are in no circle."""

import pytest
from support.rooms import FLOORS, IMPORTS, RUNTIME_FLOORS, arrows, circles, rooms, without_front_doors


@pytest.mark.parametrize(("floors", "inside"), [(FLOORS, False), (RUNTIME_FLOORS, True)], ids=["package", "runtime"])
def test_imports_point_down(floors, inside):
    order = list(floors)
    upward = [arrow for above, below, arrow in arrows(inside) if order.index(above) > order.index(below)]
    assert not upward, "a room may import only what stands below it: " + "; ".join(upward)


@pytest.mark.parametrize(("floors", "inside"), [(FLOORS, False), (RUNTIME_FLOORS, True)], ids=["package", "runtime"])
def test_every_room_has_its_floor(floors, inside):
    assert rooms(inside) == set(floors), "tests/support/rooms.py lists the rooms"


#: Circles that are not mended yet.
CIRCLES = [
    [
        "ddl_magics.runtime.rank.rank",
        "ddl_magics.runtime.tf_distribute.cluster",
        "ddl_magics.runtime.tf_distribute.fit",
        "ddl_magics.runtime.training.checkpointing",
        "ddl_magics.runtime.training.fit_in_progress",
        "ddl_magics.runtime.training.monitor",
        "ddl_magics.runtime.training.step_buckets",
    ],
]


def test_no_file_imports_itself_by_way_of_others():
    unlisted = [
        circle
        for circle in circles(without_front_doors(IMPORTS))
        if not any(set(circle) <= set(listed) for listed in CIRCLES)
    ]
    assert not unlisted, "these files import one another: " + "; ".join(map(", ".join, unlisted))


def test_the_control_finds_circles():
    graph = {"a": {"b"}, "b": {"c", "d"}, "c": {"a"}, "d": {"e"}, "e": {"d"}, "f": {"a"}}
    assert circles(graph) == [["a", "b", "c"], ["d", "e"]]
    assert circles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_the_control_finds_what_is_inside_functions_and_for_type_checkers():
    assert "ddl_magics.runtime.collectives.rendezvous" in IMPORTS["ddl_magics.runtime.executor.startup"]
    assert "ddl_magics.runs.follower" in IMPORTS["ddl_magics.runs.run"]
