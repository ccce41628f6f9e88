"""What tests of the parameter server share: servers in processes of their own."""

import pytest
from support.parameter_servers import starting


@pytest.fixture
def start():
    with starting() as start:
        yield start
