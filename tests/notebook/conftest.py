"""The fixture of the tests that type into an IPython shell."""

import copy

import pytest
from IPython.core.interactiveshell import InteractiveShell
from support.fake_cluster import FakeCluster
from support.shells import NO_HISTORY, session

from ddl_magics.runs import follower


@pytest.fixture
def shell(tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setattr(follower, "IDLE_POLL_SECONDS", 0.02)
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance(config=copy.deepcopy(NO_HISTORY), colors="nocolor")  # tests set values in it
    shell.run_line_magic("load_ext", "ddl_magics")
    session(shell).cluster = FakeCluster()
    yield shell
    session(shell).close()
    shell.run_line_magic("unload_ext", "ddl_magics")
    InteractiveShell.clear_instance()
