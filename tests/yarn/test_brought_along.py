"""What sessions on a real YARN bring along or leave to Spark: a packed Python, and dynamic allocation."""

import sys
import sysconfig
import tarfile
from pathlib import Path

import pytest
from yarn.session import MARKS, TRAINS, Session

from ddl_magics.runtime.histories import histories

pytestmark = MARKS

TELLS_PYTHON = TRAINS + 'print("trained by", __import__("sys").executable)\n'
CHOSEN = {"strategy": "single", "workers": 1}


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    """An archive of an environment as venv-pack writes it, but that its packages are where they are."""
    archive = tmp_path_factory.mktemp("packed") / "training.tar.gz"
    packages = Path(sysconfig.get_path("purelib"))
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(Path(sys.prefix) / "pyvenv.cfg", "pyvenv.cfg")
        for name, target in (
            ("bin/python", Path(sys.base_prefix) / "bin" / Path(sys.executable).resolve().name),
            (f"lib/{packages.parent.name}/site-packages", packages),
        ):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, str(target)
            tar.addfile(link)
    return archive


def test_workers_and_prewarmed_processes_start_from_a_python_that_the_session_brings(yarn, packed):
    session = Session(
        yarn, **{"spark.yarn.dist.archives": f"{packed}#training", "spark.pyspark.python": "./training/bin/python"}
    )
    try:
        for _ in range(2):  # the second one takes the prewarmed processes
            run = session.run(TELLS_PYTHON)
            assert run.end() == ("FINISHED", "all workers finished")
            said = [event["text"] for event in run.of_kind("log")]
            assert len(said) == 2 and all("/training/bin/python" in text and "container_" in text for text in said)
    finally:
        session.end()


@pytest.fixture(scope="module")
def elastic(yarn):
    """Dynamic allocation as it is without a shuffle service in the nodes."""
    names = {"enabled": "true", "shuffleTracking.enabled": "true", "minExecutors": "0", "maxExecutors": "2"}
    settings = {f"spark.dynamicAllocation.{name}": value for name, value in names.items()}
    session = Session(yarn, **settings)
    yield session
    session.end()


def test_with_dynamic_allocation_all_reduce_says_what_to_set(elastic):
    state, message = elastic.run(TRAINS).end()
    assert state == "REFUSED" and "spark.dynamicAllocation.enabled=false, or use --strategy ps" in message


@pytest.mark.parametrize("spec", [{"strategy": "ps"}, CHOSEN, {"strategy": "ensemble"}], ids=lambda s: s["strategy"])
def test_with_dynamic_allocation_strategies_run_whose_workers_may_come_one_by_one(elastic, spec):
    run = elastic.run(TRAINS, **spec)
    assert run.end() == ("FINISHED", "all workers finished")
    assert len(histories(run.events)[0]["loss"]) == 2
