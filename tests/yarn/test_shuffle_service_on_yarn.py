"""Dynamic allocation on a real YARN with Spark's external shuffle service in the NodeManagers."""

import pytest
from yarn.session import MARKS, SEARCHES, TRAINS, Session, changes_and_gives_back

from ddl_magics.runtime.histories import histories

pytestmark = [*MARKS, pytest.mark.slow]
IDLE = "10s"


@pytest.fixture(scope="module")
def session(yarn):
    names = ("dynamicAllocation.enabled", "shuffle.service.enabled")
    settings = {"spark.dynamicAllocation.minExecutors": "0", "spark.dynamicAllocation.maxExecutors": "2"}
    settings["spark.dynamicAllocation.executorIdleTimeout"] = IDLE
    session = Session(yarn, **{f"spark.{name}": "true" for name in names}, **settings)
    yield session
    session.end()


def test_all_reduce_says_what_to_set(session):
    state, message = session.run(TRAINS).end()
    assert state == "REFUSED" and "spark.dynamicAllocation.enabled=false, or use --strategy ps" in message


@pytest.mark.parametrize(
    "spec",
    [{"strategy": "ps"}, {"strategy": "single", "workers": 1}, {"strategy": "ensemble"}],
    ids=lambda spec: spec["strategy"],
)
def test_strategies_run_whose_workers_may_come_one_by_one(yarn, session, spec):
    run = session.run(TRAINS, **spec)
    assert run.end() == ("FINISHED", "all workers finished"), run.messages()
    assert len(histories(run.events)[0]["loss"]) == 2
    assert sum(yarn.shuffles(node) for node in yarn.nodes), "Spark went without the service"


def test_a_search_ends_with_all_its_trials(session):
    state, trials, executors = session.here(SEARCHES)
    assert (state, trials) == ("FINISHED", ["finished"] * 3) and executors


def test_workers_come_and_go_and_all_executors_are_given_back(session):
    changes_and_gives_back(session)
