"""Of several files of this folder."""

import os

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


@pytest.fixture
def spark(spark_cluster):
    return spark_cluster(2)
