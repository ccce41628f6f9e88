import pytest
from support.paths import KERAS2_PYTHON as PYTHON
from support import comparison

pytestmark = pytest.mark.timeout(900)


def test_k2(spark_cluster, keras2_reference):
    comparison.check(
        comparison.learn(spark_cluster(2, PYTHON), comparison.LENGTHS + ("ragged_inputs",), "float64", 2),
        keras2_reference,
    )
