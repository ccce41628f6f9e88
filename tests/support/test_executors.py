"""The executors without Spark: what stays between runs, and what does not."""

import pytest

from support import launch

pytestmark = pytest.mark.timeout(300)

CELL = """
import builtins, os
found = hasattr(builtins, "left_behind")
builtins.left_behind = True
ddl.log(pid=os.getpid(), parent=os.getppid())
found
"""


def test_each_rank_is_a_new_process_and_what_they_are_forked_from_stays(rank_pool):
    launch.run_cell(rank_pool(2), CELL, workers=2)  # has the executors prewarm
    two, one = (launch.run_cell(rank_pool(size), CELL, workers=size) for size in (2, 1))
    assert two.state == one.state == "FINISHED" and two.result is one.result is False
    assert len({*two.logged("pid"), *one.logged("pid")}) == 3
    assert set(one.logged("parent")) < set(two.logged("parent"))


def test_a_run_that_fails_or_whose_rank_dies_leaves_executors_for_the_next(rank_pool):
    failed = launch.run_cell(rank_pool(2), "if ddl.rank: raise ValueError('mine')")
    assert failed.state == "FAILED" and failed.failure["rank"] == 1 and "mine" in failed.message
    died = launch.run_cell(rank_pool(2), "import os, time\nif ddl.rank: os._exit(3)\ntime.sleep(60)", attempts=1)
    assert died.state == "FAILED" and "exit status 3" in died.message
    assert launch.run_cell(rank_pool(2), CELL).state == "FINISHED"
