"""What the words of `%ddl monitor` mean, without a stream."""

import pytest
from IPython.core.error import UsageError
from support.fake_cluster import FakeCluster

from ddl_magics.notebook import monitor_command


def test_labels_are_a_dataframe_or_a_folder_also_by_its_bare_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "labels").mkdir()

    def found(word, names=()):
        return monitor_command._labels(word, FakeCluster(), dict.fromkeys(names))

    assert found("labels") == str(tmp_path / "labels")
    assert found("labels", names=["labels"]) == "labels", "a DataFrame before a folder"
    assert found("other/labels") == str(tmp_path / "other" / "labels")
    with pytest.raises(UsageError, match="--labels lables: there is no DataFrame of that name, and it is no folder"):
        found("lables")
