"""The YARN of the tests of this folder: it takes a minute or two to come up."""

import pytest
from yarn import rig


@pytest.fixture(scope="session")
def yarn(tmp_path_factory):
    with rig.Yarn(tmp_path_factory.mktemp("yarn") / "rig") as yarn:
        yield yarn
