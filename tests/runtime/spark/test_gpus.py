"""--gpus: each rank is kept to the GPUs that Spark gave its task, and what Spark does not manage is refused."""

import json
from types import SimpleNamespace

import pytest
from support import listed_executors
from support.processes import output_of

from ddl_magics.clusters.embedded import EmbeddedCluster
from ddl_magics.options.parsing import parse
from ddl_magics.runtime.executor import telemetry
from ddl_magics.runtime.spark import gpus, slots


def on_fake_gpus(folder, runs, *settings):
    """What `support.gpu_cluster` prints, in a process of its own."""
    printed = output_of("support.gpu_cluster", folder, json.dumps(runs), *settings, timeout=110, cwd=folder)
    return json.loads(printed.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.spark
def test_each_rank_sees_only_its_own_gpus(tmp_path):
    runs = [{"workers": 2}, {"workers": 1, "gpus": 2}, {"workers": 2, "gpus": 2}]
    answer = on_fake_gpus(tmp_path, runs, "spark.task.resource.gpu.amount=1")
    assert answer["info"] == {"executor_gpus": 2, "task_gpus": 1.0, "slots": 2}
    given, both, refused = answer["runs"]
    assert given["ranks"] == ["0 PCI_BUS_ID", "1 PCI_BUS_ID"]
    assert any("Spark gave this worker GPU 1, and TensorFlow sees none" in warning for warning in given["warned"])
    assert both["ranks"] == ["0,1 PCI_BUS_ID"], "another number than the session's, for this stage"
    assert refused.startswith("--workers 2 asks for more than the 1 slot of local-cluster")


@pytest.mark.slow
@pytest.mark.spark
def test_executors_with_gpus_that_tasks_must_request(tmp_path):
    runs = [{"workers": 1}, {"workers": 2, "gpus": 1}, {"workers": 1, "gpus": 3}]
    plain, asked, many = on_fake_gpus(tmp_path, runs)["runs"]
    assert plain["ranks"] == ["None None"]
    assert asked["ranks"] == ["0 PCI_BUS_ID", "1 PCI_BUS_ID"]
    assert many == "--gpus 3 asks for more than the 2 that an executor has (spark.executor.resource.gpu.amount)"


def context(master="yarn", executors=2, **conf):
    """A SparkContext as far as its settings go; a stage cannot ask for GPUs of its own."""
    conf = {key.replace("_", "."): value for key, value in conf.items()}
    status = listed_executors.context(range(executors))
    return SimpleNamespace(
        master=master,
        version="3.3.4",
        defaultParallelism=4,
        _conf=conf,
        _jsc=SimpleNamespace(sc=lambda: status),
        parallelize=lambda *_: SimpleNamespace(context=context(master, executors, **conf)),
    )


def test_a_session_without_managed_gpus_refuses_them_in_one_line(monkeypatch):
    for master in ("yarn", "local[4]"):
        problem = gpus.problem(context(master), 1)
        assert problem.startswith(
            f"--gpus 1: Spark manages no GPUs in this session ({master}): start it with spark.exec"
        )
        assert "\n" not in problem and gpus.problem(context(master), None) is None
    local = context("local[4]", spark_executor_resource_gpu_amount="2")
    assert gpus.per_executor(local) == 0, "in local mode the setting does nothing"
    monkeypatch.setattr(EmbeddedCluster, "_session", lambda self: None)  # other tests may have a Spark running
    refused = EmbeddedCluster(dict).check(parse("--gpus 1"), {})
    assert refused.message.startswith("--gpus is for clusters where Spark manages GPUs")


def test_gpus_other_than_the_sessions_need_spark_34_or_its_setting():
    four = {"spark_executor_resource_gpu_amount": "4", "spark_task_resource_gpu_amount": "1"}
    assert gpus.problem(context(**four), 1) is None
    problem = gpus.problem(context(**four), 2)
    assert problem.startswith("--gpus 2: here a task gets 1, and this Spark (3.3.4) changes that for no single stage")
    assert problem.endswith("start the session with spark.task.resource.gpu.amount=2")


@pytest.mark.parametrize(
    ("task", "wanted", "each"),
    [("1", None, 4), ("2", None, 2), ("0.5", None, 6), ("0.3", None, 6), ("1", 3, 1), ("0", 2, 2), ("0", None, 6)],
)
def test_slots_are_counted_by_cores_and_gpus(task, wanted, each):
    settings = {"spark_executor_resource_gpu_amount": "4", "spark_executor_cores": "6"}
    if task != "0":
        settings["spark_task_resource_gpu_amount"] = task
    sc = context(**settings)
    assert slots.registered_slots(sc, wanted) == 2 * each and slots.total(sc, wanted) == 2 * each


@pytest.mark.parametrize(
    ("found", "given", "local_size", "shares"),
    [
        (["0", "1"], None, 2, [["0"], ["1"]]),
        (["2", "MIG-5"], None, 3, [["2"], ["MIG-5"], ["2"]]),
        (["0", "1"], ["1"], 2, [None, None]),  # Spark has assigned them
        (["0"], None, 2, [None, None]),
        (["0", "1"], None, 1, [None]),
        ([], None, 2, [None, None]),
    ],
)
def test_ranks_of_a_host_take_its_gpus_in_turn(found, given, local_size, shares):
    peers = [{"local_size": local_size, "local_rank": local_rank} for local_rank in range(local_size)]
    assert [gpus.round_robin(found, given, each) for each in peers] == shares


def test_only_the_ranks_own_gpus_are_sampled():
    assert telemetry.visible_gpus(gpus.environment(["1", "MIG-3"])) == ["1", "MIG-3"]
    assert telemetry.visible_gpus({"CUDA_VISIBLE_DEVICES": " 1 ,"}) == ["1"] and telemetry.visible_gpus({}) is None
    assert gpus.environment(None) == {} and gpus.environment([])["CUDA_VISIBLE_DEVICES"] == ""
