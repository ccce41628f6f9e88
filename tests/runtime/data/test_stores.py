"""--data, write_tfrecord, --out, --checkpoint and a registry on S3 (moto's server), HDFS (one process) and abfss.

In a Spark of two executors. No server of abfss can be had: to Spark, a folder of this machine has its address.
"""

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
    checkpoints, state = said["checkpoints"]
    assert state == "FINISHED" and checkpoints, said["checkpoints"]
    assert said["registry"] == [{"first": 1, "second": 2}, "first"]
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


def test_an_address_of_azure_that_spark_knows_and_pyarrow_has_no_key_for(tmp_path):
    host = "account.dfs.core.windows.net"
    settings = {
        "spark.hadoop.fs.abfss.impl": "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme",
        f"spark.hadoop.fs.viewfs.mounttable.files@{host}.link./data": f"file://{tmp_path}",
    }
    notices = trial(f"abfss://files@{host}/data", settings)
    for name in ("rows.parquet/*.parquet", "rows.tfrecord/*.tfrecord.gz"):
        (notice,) = notices[name]
        assert f": its rows go through Spark, as the executors cannot read abfss://files@{host}/data/" in notice
