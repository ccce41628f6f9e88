"""Handing open files to processes of this host that /proc does not let in: those of another user namespace.

Whoever knows the token of a file gets it, by a socket that has no name on a disk.
"""

from __future__ import annotations

import array
import contextlib
import os
import secrets
import socket
import struct
import threading

TOKEN_DIGITS = 64
SECONDS = 5.0

_SIZE = array.array("i").itemsize


class DescriptorServer:
    """Hands out this process' files for their tokens, which have `TOKEN_DIGITS` digits, until they are withdrawn."""

    def __init__(self) -> None:
        self.name = "ddl-" + secrets.token_hex(16)
        self._files: dict[str, int] = {}
        self._lock = threading.Lock()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind("\0" + self.name)
        self._socket.listen()
        threading.Thread(target=self._run, daemon=True).start()

    def offer(self, token: str, descriptor: int) -> None:
        with self._lock:
            self._files[token] = descriptor

    def withdraw(self, token: str) -> None:
        with self._lock:
            self._files.pop(token, None)

    def _run(self) -> None:
        while True:
            peer, _ = self._socket.accept()
            with peer, contextlib.suppress(OSError):
                peer.settimeout(SECONDS)
                self._serve(peer)

    def _serve(self, peer: socket.socket) -> None:
        credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        if struct.unpack("3i", credentials)[1] != os.geteuid():
            return
        token = peer.recv(TOKEN_DIGITS, socket.MSG_WAITALL).decode("ascii", "replace")
        with self._lock:
            descriptor = self._files.get(token)
            if descriptor is not None:
                rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))
                peer.sendmsg([b"\0"], [rights])


def fetch(name: str, token: str) -> int:
    """The descriptor of the file that the process behind the socket offers. Raises OSError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.settimeout(SECONDS)
        server.connect("\0" + name)
        server.sendall(token.encode())
        _, ancillary, _, _ = server.recvmsg(1, socket.CMSG_SPACE(_SIZE), socket.MSG_CMSG_CLOEXEC)
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS) and len(content) >= _SIZE:
            return array.array("i", content[:_SIZE])[0]
    raise OSError("the file is not offered")
