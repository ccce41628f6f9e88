"""The collector of garbage rests while TensorFlow is imported, and works afterwards."""

import gc

import pytest

from ddl_magics.runtime.executor.loading import without_collection


@pytest.fixture(autouse=True)
def thawed():
    yield
    gc.unfreeze()


def test_it_rests_and_leaves_out_what_was_there():
    with without_collection():
        assert not gc.isenabled()
        made = [[]]
    assert gc.isenabled() and not any(each is made for each in gc.get_objects())


def test_an_import_that_fails_turns_it_on_again():
    with pytest.raises(ImportError), without_collection():
        raise ImportError
    assert gc.isenabled()
