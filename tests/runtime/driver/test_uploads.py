"""The parts of --files on the driver: in any order, more than once, and never too much."""

import pytest

from ddl_magics.runtime.driver import uploads


@pytest.fixture(autouse=True)
def nothing_kept():
    yield
    for run in list(uploads._chunks):
        uploads._forget(run)


def test_parts_in_any_order_and_twice():
    for index, part in ((1, b"b"), (0, b"a"), (1, b"b")):
        uploads.keep("run", index, 2, part)
    assert uploads.take("run") == b"ab"
    with pytest.raises(uploads.UploadProblem, match="did not arrive"):
        uploads.take("run")


def test_a_part_is_missing():
    uploads.keep("run", 0, 2, b"a")
    with pytest.raises(uploads.UploadProblem, match="did not arrive: run the cell again"):
        uploads.take("run")


def test_what_is_kept_is_bounded(monkeypatch):
    monkeypatch.setattr(uploads, "MAX_BYTES", 3)
    uploads.keep("large", 0, 2, b"aaa")
    with pytest.raises(uploads.UploadProblem, match="too large"):
        uploads.keep("large", 1, 2, b"a")
    for number in range(uploads.MAX_RUNS + 1):
        uploads.keep(f"run {number}", 0, 1, b"a")
    assert len(uploads._chunks) == uploads.MAX_RUNS and uploads._chunks.keys().isdisjoint({"run 0", "large"})
    with pytest.raises(uploads.UploadProblem):
        uploads.keep("run", 2, 2, b"a")
