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


def test_slots_count_as_taken_from_the_launch_on():
    queue = RunQueue()
    for run in "abc":
        queue.join(run)
    assert not queue.take("b", 1, 4, 4), "a is before it"
    assert queue.take("a", 3, 4, 4)
    assert not queue.take("b", 2, 4, 4), "the cluster's own count lags behind"
    assert queue.ahead("c") == ["a", "b"]
    queue.leave("a")
    assert not queue.take("b", 2, 4, 1), "somebody else's job"
    assert queue.take("b", 2, 4, 4)


def test_a_run_that_starts_the_cluster_anew_waits_until_nobody_needs_what_is_there():
    queue = RunQueue()
    for run in ("small", "large"):
        queue.join(run)
    assert not queue.take_alone("large", 8), "another is first"
    assert queue.take("small", 2, slots=2, free=2)
    assert not queue.take_alone("large", 8)
    queue.free("small")
    assert not queue.take_alone("large", 8), "its results are still being fetched"
    queue.leave("small")
    assert queue.take_alone("large", 8)
