"""Memory that processes of one host share and that has no name: nothing of it is left when they are gone, or killed.

Its maker offers it, and peers open it through the maker's entry in /proc. The system allows that to processes of the
same user that see the same process numbers, which is what ranks on one host are unless containers part them. A random
token in the memory proves to a peer that it has opened what was offered, and not what another process has there.
"""

import hmac
import mmap
import os
import secrets
import stat
from typing import Any, Dict, Optional

import numpy as np

TOKEN_BYTES = 32


class MemoryFile:
    """`size` bytes of memory as `bytes`, an array of uint8 that begins with the token.

    Raises OSError where the system does not give any.
    """

    def __init__(self, size: int) -> None:
        self._descriptor: Optional[int] = _nameless_file()
        self.size = size
        try:
            os.posix_fallocate(self._descriptor, 0, size)  # memory that is missing only when it is used kills its user
            self.bytes = _map(self._descriptor, size)
        except BaseException:
            self.close()
            raise
        self._token = secrets.token_bytes(TOKEN_BYTES)
        self.bytes[:TOKEN_BYTES] = np.frombuffer(self._token, np.uint8)

    def offer(self) -> Dict[str, Any]:
        """What a peer needs to open this memory, as JSON."""
        path = "/proc/%d/fd/%d" % (os.getpid(), self._descriptor)
        return {"path": path, "target": os.readlink(path), "size": self.size, "token": self._token.hex()}

    def close(self) -> None:
        """Ends the offer; the memory lives for as long as somebody has it open."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def attach(offer: Dict[str, Any]) -> Optional[np.ndarray]:
    """The memory that a peer offers, or None where this process cannot have it."""
    try:
        if (
            os.readlink(offer["path"]) != offer["target"]
        ):  # to open a stranger's pipe or device could do something to it
            return None
        descriptor = os.open(offer["path"], os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size != offer["size"]:
                return None
            memory = _map(descriptor, offer["size"])
        finally:
            os.close(descriptor)
    except (OSError, ValueError):
        return None
    same = hmac.compare_digest(memory[:TOKEN_BYTES].tobytes(), bytes.fromhex(offer["token"]))
    return memory if same else None


def host_id() -> str:
    """Equal for processes that may be able to share memory: the host's boot, and the space of process numbers."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip() + " " + os.readlink("/proc/self/ns/pid")
    except OSError:  # no Linux: alone
        return secrets.token_hex(TOKEN_BYTES)


def _nameless_file() -> int:
    if hasattr(os, "memfd_create"):
        try:
            return os.memfd_create("ddl_magics")
        except OSError:
            pass  # forbidden to this container
    # Pythons built for an old C library have no memfd_create; a file that never gets a name is as good.
    return os.open("/dev/shm", os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)


def _map(descriptor: int, size: int) -> np.ndarray:
    return np.frombuffer(mmap.mmap(descriptor, size), np.uint8)
