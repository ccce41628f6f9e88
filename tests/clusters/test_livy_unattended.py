"""`ddl-magics run` on a real Livy: the session is made for it, and ends with it."""

import json
import os
import subprocess
import sys

import pytest
from livy.client import Client
from support import sparkmagic_kernels, trainings
from support.paths import ROOT


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_script_is_trained_on_a_livy(livy_server, data_dir, tmp_path):
    (tmp_path / "train.py").write_text(trainings.source())
    configured = sparkmagic_kernels.configuration(tmp_path / "sparkmagic", livy_server.url)
    command = [sys.executable, "-m", "ddl_magics", "run", "train.py", "--cluster", livy_server.url, "--json"]
    done = subprocess.run(
        [*command, "--", "--name", "far", "--workers", "2"],
        cwd=tmp_path,
        env={**os.environ, **configured, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=380,
    )
    assert done.returncode == 0, done.stderr
    (run,) = json.loads(done.stdout)["runs"]
    assert (run["name"], run["state"], run["workers"]) == ("far", "FINISHED", 2)
    assert run["cluster"].startswith("Livy session ") and "trained by 0" in done.stderr
    assert Client(livy_server.url).get("/sessions").json["sessions"] == [], "it ended with the kernel"
