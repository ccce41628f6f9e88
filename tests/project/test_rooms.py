"""The rooms of the code: imports, in functions and for type checkers as well, point down and are in no circle."""

import pytest
from support.rooms import FLOORS, RUNTIME_FLOORS, arrows, counts, imports, rooms


@pytest.mark.parametrize(("floors", "inside"), [(FLOORS, False), (RUNTIME_FLOORS, True)], ids=["package", "runtime"])
def test_every_room_has_its_floor_and_imports_point_down(floors, inside):
    assert rooms(inside) == set(floors), "tests/support/rooms.py lists the rooms"
    order = list(floors)
    upward = [arrow for above, below, arrow in arrows(inside) if order.index(above) > order.index(below)]
    assert not upward, "a room may import only what stands below it: " + "; ".join(upward)


def test_no_file_imports_itself_by_way_of_others():
    assert not counts.circles(imports(packages=False)), "these files import one another"


def test_the_control_finds_what_is_inside_functions_and_for_type_checkers():
    assert "ddl_magics.runtime.collectives.rendezvous" in imports(packages=False)["ddl_magics.runtime.executor.startup"]
    assert "ddl_magics.runs.follower" in imports(packages=False)["ddl_magics.runs.run"]
