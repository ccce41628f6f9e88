"""The YARN of the tests of this folder: it takes a minute or two to come up."""

import signal

import pytest
from yarn import rig


@pytest.fixture(scope="session")
def yarn(tmp_path_factory):
    """SIGTERM ends the tests as an interrupt does, while its daemons are there: they would outlive this process."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    with rig.Yarn(tmp_path_factory.mktemp("yarn") / "rig") as yarn:
        yield yarn
    signal.signal(signal.SIGTERM, before)
