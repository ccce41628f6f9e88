"""A spec as JSON: what comes back, and what is refused."""

import json

import pytest

from ddl_magics.runtime.rank.config import JobConfig
from ddl_magics.runtime.run_spec import ErrorMetric, MonitorSpec, RunSpec
from ddl_magics.runtime.transport.credentials import Credentials

MONITOR = {"reference": {"outputs": []}, "log": "/log", "checkpoint": "/c", "window": 60.0, "delay": "600 seconds"}


def read_back(spec):
    return RunSpec.from_record(json.loads(json.dumps(spec.to_record())))


def test_a_spec_comes_back_as_it_was():
    spec = RunSpec(run="r", cell="x", features=("a", "b"), conf={"spark.a": "1"}, validation=0.5, seed=3)
    assert read_back(spec) == spec
    spec = RunSpec(strategy="monitor", workers=0, monitor=MonitorSpec(**MONITOR, error=ErrorMetric("wrong", "e", 0.1)))
    assert read_back(spec) == spec
    assert MonitorSpec.from_record({**MONITOR, "error": {}, "of_a_later_version": 1}) == MonitorSpec(**MONITOR)


def test_ranks_get_the_spec_with_their_configuration():
    spec = RunSpec(workers=3, seed=5, rule="easgd", compression="topk:0.5", target="loss:0.1", sync_batchnorm=True)
    config = JobConfig(spec, Credentials("r", b""), ("h", 1), "3", executor_cores=1)
    again = JobConfig.from_json(config.to_json())
    assert again == config and again.spec.sync_batchnorm
    assert (again.workers, again.seed, again.rule.name, again.compression.share) == (3, 5, "easgd", 0.5)
    assert JobConfig(RunSpec(strategy="single"), *list(vars(config).values())[1:5]).workers == 1


@pytest.mark.parametrize(
    "record",
    [
        {"workers": "2"},
        {"workers": True},
        {"workers": None},
        {"features": "a"},
        {"features": ["a", 1]},
        {"conf": []},
        {"monitor": 3},
        {"monitor": {**MONITOR, "once": "yes"}},
        {"monitor": {**MONITOR, "error": {"before": "low"}}},
        {"monitor": {**MONITOR, "log": None}},
    ],
)
def test_values_of_other_types_are_refused(record):
    with pytest.raises(ValueError, match=" cannot be "):
        RunSpec.from_record(record)
