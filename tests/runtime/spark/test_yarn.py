"""What YARN says of executors that do not come, by value."""

import pytest

from ddl_magics.runtime.spark import yarn
from ddl_magics.runtime.spark.yarn import Container, Node, Queue

ASKED = Container(1024, 3072, 2)
FULL, FREE = Node(512, 4, 8192), Node(6144, 4, 8192)
QUEUE = Queue("default", 40.0, 100.0)
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


def test_a_full_queue_is_told_from_a_full_cluster():
    assert shortage([FULL, FREE], Queue("small", 100.0, 100.0)) == (
        "YARN has room for an executor of 4.0 GB and 2 cores, but not in this queue (queue small at 100 % of its "
        "capacity): wait, or choose another with spark.yarn.queue"
    )


def test_where_there_is_room_the_containers_log_has_the_reason():
    assert shortage([FULL, FREE]).endswith(f"so they may end as they start: {LOG}")
    said = shortage([FREE], shuffle_service=True)
    assert "set spark.shuffle.service.enabled=false (and spark.dynamicAllocation.shuffleTracking.enabled=true)" in said
    assert said.endswith(LOG)
    assert shortage([]) == "YARN has no running NodeManager"
