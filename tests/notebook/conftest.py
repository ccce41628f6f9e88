"""The fixture of the tests that type into an IPython shell."""

import pytest
from support import shells
from support.fake_cluster import FakeCluster

from ddl_magics.runs import follower


@pytest.fixture
def shell(data_dir, tmp_path, monkeypatch):
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setattr(follower, "IDLE_POLL_SECONDS", 0.02)
    with shells.loaded(FakeCluster()) as shell:
        yield shell
