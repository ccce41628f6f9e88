"""The rooms of the code: imports point down, between folders and between files, inside functions as well."""

import pytest
from support.rooms import FLOORS, IMPORTS, MODULES, RUNTIME_FLOORS, arrows, rooms


@pytest.mark.parametrize(("floors", "inside"), [(FLOORS, False), (RUNTIME_FLOORS, True)], ids=["package", "runtime"])
def test_imports_point_down(floors, inside):
    order = list(floors)
    upward = [arrow for above, below, arrow in arrows(inside) if order.index(above) > order.index(below)]
    assert not upward, "a room may import only what stands below it: " + "; ".join(upward)


@pytest.mark.parametrize(("floors", "inside"), [(FLOORS, False), (RUNTIME_FLOORS, True)], ids=["package", "runtime"])
def test_every_room_has_its_floor(floors, inside):
    assert rooms(inside) == set(floors), "tests/support/rooms.py lists the rooms"


def test_no_file_imports_itself_by_way_of_others():
    entered, left = [], set()

    def enter(module):
        assert module not in entered, "a circle: " + " -> ".join([*entered[entered.index(module) :], module])
        if module in left:
            return
        entered.append(module)
        for target in sorted(IMPORTS[module]):
            if not target.endswith("__init__"):  # a front door names files of its own room
                enter(target)
        entered.pop()
        left.add(module)

    for module in MODULES:
        enter(module)


def test_the_control_finds_what_is_inside_functions():
    assert "ddl_magics.runtime.collectives.rendezvous" in IMPORTS["ddl_magics.runtime.executor.startup"]
