"""Who trains together when ranks come and go."""

import pytest

from ddl_magics.runtime.driver.group import Group


@pytest.fixture
def group():
    group = Group(attempt=2)
    group.begin([2, 0, 1])
    return group


def lost(group, *ranks):
    for rank in ranks:
        group.wait(rank, joins=None, welcomes=None)


def test_a_group_is_formed_once_all_that_live_wait(group):
    lost(group, 0)
    assert group.formed() is None
    group.leave(1)
    assert group.formed() is None
    lost(group, 2)
    assert group.formed() == [0, 2] and group.number == 20_001


def test_ranks_that_join_are_taken_in_between_two_steps_alone(group):
    group.wait(3, joins=5, welcomes=None)
    lost(group, 0, 1, 2)
    assert group.formed() == [0, 1, 2]
    for rank in (0, 1, 2):
        group.wait(rank, joins=None, welcomes=5)
    assert group.formed() == [0, 1, 2, 3]


def test_who_wants_to_join_in_another_fit_is_not_taken_in(group):
    group.wait(3, joins=4, welcomes=None)
    group.wait(4, joins=5, welcomes=None)
    for rank in (0, 1, 2):
        group.wait(rank, joins=None, welcomes=5)
    assert group.formed() == [0, 1, 2, 4]
    assert (group.joining, group.fit) == ({3: 4}, 5)


def test_one_that_has_not_welcomed_them_keeps_those_that_join_out(group):
    group.wait(3, joins=5, welcomes=None)
    group.wait(0, joins=None, welcomes=5)
    lost(group, 1, 2)
    assert group.formed() == [0, 1, 2]


def test_addresses_are_known_once_all_have_told_theirs(group):
    lost(group, 0, 1, 2)
    group.formed()
    assert group.meet(0, 20_001, ("a", 1)) is None
    assert group.meet(1, 20_000, ("b", 1)) is None, "of an earlier group"
    assert group.meet(1, 20_001, ("b", 2)) is None
    assert group.meet(2, 20_001, ("c", 3)) == [("a", 1), ("b", 2), ("c", 3)]


def test_a_death_while_they_meet_has_the_others_meet_again(group):
    lost(group, 0, 1, 2)
    group.formed()
    group.meet(0, 20_001, ("a", 1))
    group.leave(2)
    assert group.formed() == [0, 1] and group.number == 20_002
    assert group.meet(0, 20_001, ("a", 1)) is None
    group.meet(0, 20_002, ("a", 2))
    assert group.meet(1, 20_002, ("b", 2)) == [("a", 2), ("b", 2)]


def test_one_that_joins_again_is_no_member(group):
    for rank in (0, 1, 2):
        group.wait(rank, joins=None, welcomes=5)
    group.wait(3, joins=5, welcomes=None)
    assert group.formed() == [0, 1, 2, 3]
    group.wait(3, joins=5, welcomes=None)
    lost(group, 0, 1, 2)
    assert group.formed() == [0, 1, 2]
