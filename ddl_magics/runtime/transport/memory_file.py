"""Shared memory without a name: the system frees it when the last process that has it open ends, or is killed.

One process creates the memory and offers it; the others open it through the creator's entry in /proc. The system allows
that to processes of the same user in the same PID namespace, so ranks in separate containers cannot. Where they have
user namespaces of their own (files/namespaces.py), they ask the creator for it. A random token at the beginning of the
memory proves that a peer has opened the memory that was offered.
"""

from __future__ import annotations

import contextlib
import functools
import hmac
import mmap
import os
import secrets
import stat
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from . import descriptors

if TYPE_CHECKING:
    import numpy.typing as npt

TOKEN_BYTES = 32


class MemoryOffer(TypedDict):
    """What a peer needs to open the memory, as JSON."""

    path: str  # in /proc
    target: str  # what `path` links to
    size: int  # bytes
    token: str  # hexadecimal
    socket: str  # where the creator hands it out; "" where /proc is open to its peers


class MemoryFile:
    """`size` bytes of shared memory; `bytes` is the memory as a 1-D array of uint8 that begins with the token.

    Raises OSError where the system has no memory to share.
    """

    def __init__(self, size: int) -> None:
        self._descriptor: int | None = _nameless_file()
        self._server: descriptors.DescriptorServer | None = None  # once the memory is offered
        self.size = size
        try:
            # Without this, the first write to a page that the system lacks kills the process with SIGBUS.
            os.posix_fallocate(self._descriptor, 0, size)
            self.bytes = _map(self._descriptor, size)
        except BaseException:
            self.close()
            raise
        self._token = secrets.token_bytes(TOKEN_BYTES)
        self.bytes[:TOKEN_BYTES] = np.frombuffer(self._token, np.uint8)

    def offer(self) -> MemoryOffer:
        """The offer to peers, valid until `close`. Raises ValueError after it."""
        if self._descriptor is None:
            raise ValueError("the memory is closed")
        path, token = "/proc/%d/fd/%d" % (os.getpid(), self._descriptor), self._token.hex()
        self._server = _server()
        if self._server is not None:
            self._server.offer(token, self._descriptor)
        name = "" if self._server is None else self._server.name
        return {"path": path, "target": os.readlink(path), "size": self.size, "token": token, "socket": name}

    def close(self) -> None:
        """Withdraws the offer. The memory stays while a process has it mapped."""
        if self._descriptor is not None:
            if self._server is not None:
                self._server.withdraw(self._token.hex())
            os.close(self._descriptor)
            self._descriptor = None


def attach(offer: MemoryOffer) -> npt.NDArray[np.uint8] | None:
    """The memory that a peer offers, 1-D and writable, or None where this process cannot open it."""
    try:
        descriptor = _open(offer)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size != offer["size"]:
                return None
            memory = _map(descriptor, offer["size"])
        finally:
            os.close(descriptor)
    except (OSError, ValueError):
        return None
    is_token_right = hmac.compare_digest(memory[:TOKEN_BYTES].tobytes(), bytes.fromhex(offer["token"]))
    return memory if is_token_right else None


def _open(offer: MemoryOffer) -> int:
    """A descriptor of what is offered. Raises OSError, and ValueError for an offer that contradicts itself."""
    try:
        # The check comes first: merely opening another process's pipe or device could have an effect on it.
        if os.readlink(offer["path"]) != offer["target"]:
            raise ValueError("%s is not what is offered" % offer["path"])
        return os.open(offer["path"], os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    except PermissionError:
        if not offer["socket"]:
            raise
        return descriptors.fetch(offer["socket"], offer["token"])


@functools.lru_cache(maxsize=None)
def _server_of(pid: int) -> descriptors.DescriptorServer:
    return descriptors.DescriptorServer()


def _server() -> descriptors.DescriptorServer | None:
    """What hands out this process' memory; None for root, whose ranks need no user namespaces."""
    return None if os.geteuid() == 0 else _server_of(os.getpid())


def host_id() -> str:
    """The host's boot id, a space, the PID namespace: processes can share memory only if theirs are equal."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip() + " " + os.readlink("/proc/self/ns/pid")
    except OSError:  # not Linux: nothing can be shared, so the id is unique
        return secrets.token_hex(TOKEN_BYTES)


def _nameless_file() -> int:
    if hasattr(os, "memfd_create"):
        with contextlib.suppress(OSError):  # this container forbids it
            return os.memfd_create("ddl_magics")
    # A Python that was built for an old C library has no memfd_create; O_TMPFILE creates a file without a name too.
    return os.open("/dev/shm", os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)


def _map(descriptor: int, size: int) -> npt.NDArray[np.uint8]:
    return np.frombuffer(mmap.mmap(descriptor, size), np.uint8)
