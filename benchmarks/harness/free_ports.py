"""Ports for servers that cannot choose one by themselves."""

from __future__ import annotations

import socket


def free_addresses(count: int) -> list[str]:
    """`count` different addresses, "127.0.0.1:PORT", that nobody listens at now; another process may still take one."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    return addresses
