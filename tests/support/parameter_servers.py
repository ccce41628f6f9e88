"""Parameter servers in processes of their own, as the driver starts them, and clients of them."""

import contextlib
import json
import subprocess
import sys

import numpy as np

from ddl_magics.runtime.parameter_server.client import Client
from ddl_magics.runtime.transport.credentials import Credentials

RUN = "run-1"
CREDENTIALS = Credentials(RUN, b"s" * 32)
MODULE = "ddl_magics.runtime.parameter_server.server"


class ServerProcess:
    def __init__(self, size, **changes):
        config = {"credentials": CREDENTIALS.to_json(), "host": "127.0.0.1", "size": size}
        config.update({"attempt": 1, "rule": "adag", "options": {}}, **changes)
        self.process = subprocess.Popen(
            [sys.executable, "-m", MODULE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self.process.stdin.write(json.dumps(config).encode() + b"\n")
        self.process.stdin.flush()
        self.port = json.loads(self.process.stdout.readline())["port"]
        self._clients = []

    def client(self, rank, attempt=1, credentials=CREDENTIALS, timeout=20):
        client = Client(("127.0.0.1", self.port), credentials, rank, attempt, timeout)
        self._clients.append(client)
        return client

    def begun(self, count, size=1):
        """The clients of so many ranks, in a fit that has begun at zero."""
        clients = [self.client(rank) for rank in range(count)]
        for client in clients:
            client.begin(0, None if client.rank else np.zeros(size), np.float64, size)
        return clients

    def close(self):
        for client in self._clients:
            client._channel.close(0)
        if self.process.poll() is None:
            self.process.stdin.close()
            self.process.wait(10)
        self.process.stdout.close()
        self.process.stderr.close()


@contextlib.contextmanager
def starting():
    """A function that starts a `ServerProcess`; all of them are ended behind the block."""
    servers = []

    def start(size, **changes):
        servers.append(ServerProcess(size, **changes))
        return servers[-1]

    yield start
    for server in servers:
        server.close()
