"""The constructs of Keras' examples on several workers: each learns what plain Keras learns, or is refused by name."""

import pytest
from support import examples, paths

#: What takes another way each, and little time; all of them with `make test-slow`.
ALWAYS = ("counted_steps", "endpoint_layer", "named_entities", "wasserstein")


def assert_equal_or_refused(learned, plain, of):
    found = [examples.wrong(of[name], learned[name], plain[name]) for name in of]
    assert not any(found), "\n".join(filter(None, found))


@pytest.mark.timeout(300)
def test_some_of_each_kind(rank_pool, tmp_path):
    chosen = {name: one for name, one in examples.found().items() if name in ALWAYS}
    learned = examples.learn(rank_pool(2), chosen.values(), 2)
    assert_equal_or_refused(learned, examples.plain(tmp_path / "plain", chosen.values()), chosen)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return examples.plain(tmp_path_factory.mktemp("plain") / "keras3", examples.found().values())


@pytest.mark.slow
@pytest.mark.timeout(5400)
@pytest.mark.parametrize("workers", [2, 4])
def test_all(spark_cluster, plain, workers):
    every = examples.found()
    assert_equal_or_refused(examples.learn(spark_cluster(workers), every.values(), workers), plain, every)


@pytest.mark.slow
@pytest.mark.keras2
@pytest.mark.timeout(5400)
@pytest.mark.parametrize("workers", [2, 4])
def test_all_with_keras2(spark_cluster, tmp_path, workers):
    every = examples.found(keras2=True)
    learned = examples.learn(spark_cluster(workers, paths.KERAS2_PYTHON), every.values(), workers)
    expected = examples.plain(tmp_path / "keras2", every.values(), python=paths.KERAS2_PYTHON)
    assert_equal_or_refused(learned, expected, every)
