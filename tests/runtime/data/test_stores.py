"""--data, write_tfrecord and --out on S3 (moto's server) and HDFS (one process), in a Spark of two executors."""

import json
import subprocess
import sys

import pytest
from stores import rig
from support import paths

pytestmark = [pytest.mark.slow, pytest.mark.timeout(500)]

ROWS = [number / 2 for number in range(300)]


def trial(uri, settings):
    """What stores/trial.py says."""
    command = [sys.executable, "-m", "stores.trial", uri, json.dumps(settings)]
    environment = {name: value for name, value in paths.environment().items() if not name.startswith("AWS_")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["written"] == 300
    for name, run in said["runs"].items():
        assert run["state"] == "FINISHED", (name, run["message"])
        assert run["rows"] == ROWS, name
    assert all("history.json" in names and len(names) > 1 for names in said["out"]), said["out"]
    return {name: [line for line in run["notices"] if "Spark" in line] for name, run in said["runs"].items()}


def test_s3_whose_keys_and_address_are_in_the_executors_environment(tmp_path):
    with rig.s3(tmp_path) as url:
        notices = trial("s3a://bucket", rig.settings(url))
        log = (tmp_path / "moto.log").read_text()
    assert notices == {"rows.parquet/*.parquet": [], "rows.tfrecord/*.tfrecord.gz": [], "rows.csv": []}
    assert "GET /bucket/rows.parquet/part-" in log


def test_hdfs_which_pyarrow_reaches_with_hadoops_library_alone(tmp_path):
    with rig.hdfs(tmp_path) as uri:
        notices = trial(uri, {})
    for name in ("rows.parquet/*.parquet", "rows.tfrecord/*.tfrecord.gz"):
        (notice,) = notices[name]
        assert f": its rows go through Spark, as the executors cannot read {uri}/" in notice
        assert "libhdfs" in notice
