"""Four workers: batches that do not share out evenly, and hosts with several of them."""

import pytest
from support import comparison, hosts

pytestmark = [pytest.mark.executors(4), pytest.mark.timeout(600)]

#: Of the cases, what is cut or weighted otherwise than with two workers; all of them with `make test-slow`.
CASES = ("weighted", "masked_losses", "compiled_many_steps", "tape_of_a_masked_loss")
#: The same of losses and metrics of the whole batch.
CASES += ("own_contrast", "metrics_of_all_kinds")
#: For --sync-batchnorm: two workers have no row of the last batch for its statistics.
NORMALIZED = ("normalized_masked",)


@pytest.mark.slow
def test_the_last_batch_has_two_rows(rank_pool, reference):
    learned = comparison.learn(rank_pool(4), CASES + NORMALIZED, "float64", 4, sync_batchnorm=True)
    comparison.check(learned, reference)


@pytest.mark.skipif(not hosts.can_be_pretended(), reason="hosts are pretended with root's rights, on Linux")
@pytest.mark.parametrize(
    ("a_host", "names"),
    [
        (3, ("adamw_clipnorm", "embedding", "weighted")),
        pytest.param(2, ("sgd_momentum", "embedding"), marks=pytest.mark.slow),
        pytest.param(3, comparison.OVER_HOSTS, marks=pytest.mark.slow),
    ],
)
def test_hosts_have_several_workers(rank_pool, reference, tmp_path, a_host, names):
    """One of three and one of one; two of two."""
    learned = comparison.learn(rank_pool(4, hosts.python(tmp_path, a_host)), names, "float64", 4, hosts.TRANSPORT)
    assert learned.ended.logs().count("transport Hierarchy True") == 4
    comparison.check(learned, reference)
