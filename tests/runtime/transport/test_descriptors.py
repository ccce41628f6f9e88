"""A file is handed to whoever knows its token, until it is withdrawn."""

import os

import pytest

from ddl_magics.runtime.transport import descriptors


@pytest.fixture(scope="module")
def server():
    return descriptors.DescriptorServer()


@pytest.fixture
def offered(server, tmp_path):
    """The token of a file that says so."""
    token = os.urandom(32).hex()
    with open(tmp_path / "file", "wb+", buffering=0) as file:
        file.write(b"the file")
        server.offer(token, file.fileno())
        yield token
        server.withdraw(token)


def test_a_file_is_fetched_with_its_token(server, offered):
    for _ in range(2):
        descriptor = descriptors.fetch(server.name, offered)
        try:
            assert os.pread(descriptor, 99, 0) == b"the file" and not os.get_inheritable(descriptor)
        finally:
            os.close(descriptor)


@pytest.mark.parametrize("token", ["0" * 64, "", "é" * 32, "0" * 999])
def test_another_token_gets_nothing_and_the_server_stays(server, offered, token, monkeypatch):
    monkeypatch.setattr(descriptors, "SECONDS", 0.2)
    with pytest.raises(OSError):
        descriptors.fetch(server.name, token)
    os.close(descriptors.fetch(server.name, offered))


def test_what_is_withdrawn_is_not_offered(server, offered):
    server.withdraw(offered)
    server.withdraw(offered)
    with pytest.raises(OSError, match="the file is not offered"):
        descriptors.fetch(server.name, offered)


def test_another_user_gets_nothing(server, offered, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1)
    with pytest.raises(OSError):
        descriptors.fetch(server.name, offered)
