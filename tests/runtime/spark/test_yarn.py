"""What YARN says of executors that do not come, by value."""

from types import SimpleNamespace

import pytest

from ddl_magics.runtime.spark import yarn
from ddl_magics.runtime.spark.yarn import Container, Node, Queue

ASKED = Container(1024, 3072, 2)
FULL, FREE = Node(512, 4, 8192), Node(6144, 4, 8192)
QUEUE = Queue("default", 4096, 10240, 10240)
LOG = "`yarn logs -applicationId application_1_2` says why"


def shortage(nodes, queue=QUEUE, shuffle_service=False):
    return yarn.shortage(ASKED, nodes, queue, "application_1_2", shuffle_service)


@pytest.mark.parametrize("full", [FULL, Node(8192, 1, 8192)], ids=["memory", "cores"])
def test_a_cluster_without_room_says_how_much_there_is(full):
    said = shortage([full, full])
    assert said.startswith("YARN has no room for an executor of 4.0 GB and 2 cores (the freest of its nodes has ")
    assert f"{full.free_cores} core" in said and "left, queue default at 40 % of its capacity)" in said
    assert said.endswith(
        "wait until other applications end, or ask for less in spark.executor.memory and memoryOverhead"
    )
    assert "the freest of its nodes has 0.5 GB of 8.0 GB and 4 cores left" in shortage([Node(256, 4, 8192), FULL])


@pytest.mark.parametrize(
    ("queue", "percent"),
    [
        (Queue("small", 4096, 4096, 4096), "100 % of its capacity"),
        (Queue("small", 3072, 4096, 4096), "75 % of its capacity"),  # 4 GB are asked for
        (Queue("small", 5120, 4096, 8192), "125 % of its capacity, of 8.0 GB at most"),
    ],
    ids=["full", "too-little-left", "at-its-most"],
)
def test_a_full_queue_is_told_from_a_full_cluster(queue, percent):
    assert shortage([FULL, FREE], queue) == (
        f"YARN has room for an executor of 4.0 GB and 2 cores, but not in this queue (queue small at {percent}): "
        "wait, or choose another with spark.yarn.queue"
    )


def test_a_queue_beyond_its_capacity_has_what_others_leave_and_users_have_limits():
    said = shortage([FULL, FREE], Queue("elastic", 4096, 4096, 16384))
    assert (
        "but beyond its capacity this queue (queue elastic at 100 % of its capacity, of 16.0 GB at most) gets" in said
    )
    assert "user-limit-factor" in said and said.endswith("spark.yarn.queue")
    assert "they may end as they start" in shortage([FULL, FREE], Queue("elastic", 2048, 6144, 16384))


def queue_info(used, share, limits):
    """A QueueInfo. limits: (capacity, maximum) by label; None as of the FairScheduler."""
    configurations = limits and {
        label: SimpleNamespace(getAbsoluteCapacity=lambda own=own: own, getAbsoluteMaxCapacity=lambda most=most: most)
        for label, (own, most) in limits.items()
    }
    return SimpleNamespace(
        getQueueName=lambda: "q",
        getCapacity=lambda: share,
        getQueueStatistics=lambda: SimpleNamespace(getAllocatedMemoryMB=lambda: used),
        getQueueConfigurations=lambda: configurations,
    )


def test_the_limits_of_a_queue_are_shares_of_the_cluster():
    """`getCapacity` is that of the queue's parent."""
    nested = queue_info(2048, 0.5, {"gpu": (1.0, 1.0), "": (0.25, 0.75)})
    assert yarn._queue(nested, 16384) == Queue("q", 2048, 4096, 12288)


@pytest.mark.parametrize("limits", [None, {}])
def test_a_queue_of_a_fair_scheduler_may_use_the_cluster(limits):
    assert yarn._queue(queue_info(2048, 0.5, limits), 16384) == Queue("q", 2048, 8192, 16384)


def test_the_end_of_an_application_is_said_in_words_of_yarn():
    log = "`yarn logs -applicationId application_1_2` has its logs"
    assert yarn.end_words("Application application_1_2 was killed by user root at 10.1.2.3\n", "application_1_2") == (
        f"YARN: Application application_1_2 was killed by user root at 10.1.2.3; {log}"
    )
    assert yarn.end_words("", "application_1_2") == f"it was application_1_2 on YARN; {log}"


def test_where_there_is_room_the_containers_log_has_the_reason():
    assert shortage([FULL, FREE]).endswith(f"so they may end as they start: {LOG}")
    said = shortage([FREE], shuffle_service=True)
    assert "set spark.shuffle.service.enabled=false (and spark.dynamicAllocation.shuffleTracking.enabled=true)" in said
    assert said.endswith(LOG)
    assert shortage([]) == "YARN has no running NodeManager"
