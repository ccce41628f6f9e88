"""A real MLServer, in the environment that `make serve-env` builds."""

import pytest
from support.paths import SERVE_PYTHON

from ddl_magics.serving.environment import SETTING


@pytest.fixture(scope="session")
def serve_python():
    assert SERVE_PYTHON.exists(), "make serve-env builds MLServer's environment"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SETTING, str(SERVE_PYTHON))
        yield SERVE_PYTHON
