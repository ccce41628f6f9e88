"""What the words of `%ddl monitor` mean, without a stream."""

import json
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from IPython.core.error import UsageError
from support.fake_cluster import FakeCluster
from support.monitoring_logs import trained

from ddl_magics.clusters.livy import LivyCluster
from ddl_magics.commands import monitor
from ddl_magics.commands.table import BY_VERB


class InKernel(FakeCluster):
    in_kernel = True


def test_labels_are_a_dataframe_or_a_folder_also_by_its_bare_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "labels").mkdir()

    def found(word, names=()):
        return monitor._labels(word, InKernel(), dict.fromkeys(names))

    assert found("labels") == str(tmp_path / "labels")
    assert found("labels", names=["labels"]) == "labels", "a DataFrame before a folder"
    assert found("other/labels") == str(tmp_path / "other" / "labels")
    with pytest.raises(UsageError, match="--labels lables: there is no DataFrame of that name, and it is no folder"):
        found("lables")


def test_a_relative_folder_is_where_the_spark_is_that_reads_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    livy = Mock(LivyCluster, in_kernel=LivyCluster.in_kernel)
    for word, here in [
        ("requests/1", str(tmp_path / "requests" / "1")),
        ("/srv/requests", "/srv/requests"),
        ("abfss://logs@account/requests", "abfss://logs@account/requests"),
        ("kafka://broker:9092/requests", "kafka://broker:9092/requests"),
    ]:
        assert monitor._address(word, InKernel()) == here
        assert monitor._address(word, livy) == word


def test_the_folder_of_a_monitor_is_this_users_alone(data_dir):
    """Spark makes what is in it readable for all, and earlier versions have made `ddl_magics` so, too."""
    (data_dir / "ddl_magics").mkdir(mode=0o755)
    checkpoint = monitor._checkpoint(["run", "log", None, 60.0], InKernel())
    folder = Path(checkpoint.removeprefix("file://"))
    assert folder.parent == data_dir / "ddl_magics" / "monitors"
    assert [path.stat().st_mode for path in (folder, data_dir / "ddl_magics")] == [0o40700] * 2


@pytest.mark.parametrize(
    "address", ["kafka://me:secret@host:9092/a/b", "kafka:me:secret@host", "kafka://me:secret@h/t"]
)
def test_a_password_in_an_address_is_refused_and_not_shown(address):
    for line in (f"energy --log {address}", f"energy --log /log --labels {address}"):
        with pytest.raises(UsageError, match="leave user and password out of the address") as caught:
            BY_VERB["monitor"].read(line.split())
        assert "secret" not in str(caught.value)


def test_a_reference_of_another_form_is_told_in_one_line(tmp_path):
    """An export may be a stranger's, and its reference becomes Spark SQL."""
    description = {"format": "keras", "model": "model.keras", "versions": {}}
    (tmp_path / "ddl_magics.json").write_text(json.dumps(description))
    whole = json.loads(json.dumps(trained(np.random.default_rng(6))))
    (file := tmp_path / "reference.json").write_text(json.dumps(whole))
    assert monitor._reference(str(tmp_path), Mock()) == (whole, None)
    deep = {**whole, "inputs": [{**whole["inputs"][0], "depth": 10**9}]}
    edges = {**whole, "features": [{**feature, "edges": ["1) OR x"]} for feature in whole["features"]]}
    for damaged in ("", "[]", "{}", "[" * 100_000, "\xff", json.dumps(deep), json.dumps(edges)):
        file.write_text(damaged)
        with pytest.raises(
            UsageError, match=r"reference.json is damaged, or of another version: train the model again"
        ):
            monitor._reference(str(tmp_path), Mock())
