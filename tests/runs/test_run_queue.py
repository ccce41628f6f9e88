"""Which runs of a kernel need a cluster, and which may start."""

from ddl_magics.runs.run_queue import RunQueue


def test_the_cluster_is_needed_until_the_results_are_here():
    queue = RunQueue()
    queue.join("a"), queue.join("b")
    assert queue.take("a", 2, 2, 2) and not queue.take("b", 2, 2, 2)
    queue.free("a")
    assert queue.take("b", 2, 2, 2), "the slots are free"
    queue.leave("b")
    assert not queue.idle, "a is being fetched"
    queue.leave("a")
    assert queue.idle
