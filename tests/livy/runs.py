"""Runs on a Livy from the process of the tests, without a kernel."""

import dataclasses

from support import trainings

from ddl_magics.clusters import livy_session
from ddl_magics.clusters.livy import LivyCluster
from ddl_magics.clusters.livy_http import Connection, LivyHttp
from ddl_magics.options.parsing import parse
from ddl_magics.session.session import Session


def create(livy, **how):
    """A new session of the Livy, as the cluster that it is."""
    return LivyCluster(livy_session.create(LivyHttp(Connection(livy.url)), {}, report=lambda line: None, **how))


def submit(cluster, epochs, pause=0.2):
    """Start the small training; `run` of its answer is followed by a thread."""
    spec = dataclasses.replace(parse("--name run --seed 7"), cell=trainings.source(epochs, pause))
    return Session(cluster).submit(spec, {})


def assert_whole(run, epochs):
    """Nothing of its history is missing, doubled or out of order."""
    assert [event["epoch"] for event in run.events if event["kind"] == "epoch"] == list(range(epochs))
    assert [event["seq"] for event in run.events] == list(range(1, len(run.events) + 1))
    assert len(run.history["loss"]) == epochs


def assert_equal(run, other):
    """History and weights are the same to the last bit."""
    assert run.history == other.history
    assert all((one == another).all() for one, another in zip(run.weights(), other.weights(), strict=True))
