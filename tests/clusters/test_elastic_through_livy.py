"""A Livy session under dynamic allocation, from no executor: one is lost in a run, and all are given back after it."""

import time

import pytest
from livy.endpoint import Endpoint
from support import come_and_go, sparkmagic_kernels
from support.cluster_notebooks import Notebook
from support.until import until

pytestmark = [pytest.mark.spark, pytest.mark.livy, pytest.mark.slow, pytest.mark.timeout(400)]

SETTINGS = {"enabled": "true", "shuffleTracking.enabled": "true", "minExecutors": "0", "maxExecutors": "2"}
SETTINGS["executorIdleTimeout"] = "10s"


class DynamicNotebook(Notebook):
    def open(self, **variables):
        conf = {f"spark.dynamicAllocation.{name}": value for name, value in SETTINGS.items()}
        given = {"session_configs": {"conf": conf}}
        self._environment = sparkmagic_kernels.configuration(self.folder, self._door.url, **given)
        super().open(**variables)


@pytest.fixture
def notebook(livy_server, tmp_path):
    notebook = DynamicNotebook("ipython", tmp_path, Endpoint(livy_server.url, rig=livy_server))
    yield notebook
    notebook.close()


def test_workers_come_and_go_and_all_executors_are_given_back(notebook):
    text = notebook.run(f"%%distributed --workers 1..2 --name changed{come_and_go.OF_EXECUTOR}", timeout=300).text
    ended = time.monotonic()
    assert "FINISHED" in text, text
    come_and_go.assert_changed_in(notebook, "changed")
    until(lambda: notebook.remote("print(sc._jsc.sc().getExecutorIds().size())").text.strip() == "0", 100)
    print(f"no executor {time.monotonic() - ended:.1f} s after the run")
