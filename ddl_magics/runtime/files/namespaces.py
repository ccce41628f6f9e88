"""A mount namespace of this process' own: what it mounts, it and the processes that it starts see, and nobody else.

Root makes one by itself. Others need a user namespace too, in which they have the rights of root until they give them
up: their user and group stay what they are, and files of other users seem to be nobody's.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re

# Of sched.h and mount.h.
_NEW_MOUNTS, _NEW_USERS = 0x20000, 0x10000000
_RECURSIVE, _SLAVE, _DETACH = 0x4000, 1 << 19, 2
#: The kernel from which a process without rights may mount an overlay in its user namespace.
_OVERLAY_FOR_USERS = (5, 11)
#: Version 3 of capset(2).
_CAPABILITY_VERSION = 0x20080522

#: Whether this process has a mount namespace of its own, or of the process that has forked it.
own = False
_in_user_namespace = False


def separate() -> None:
    """Give this process namespaces of its own, where the system lets it. It must have one thread, but for root."""
    global own, _in_user_namespace
    try:
        if not _unshare(_NEW_MOUNTS):
            if os.geteuid() == 0 or not _may_have_users():
                return
            _enter_user_namespace()
            _in_user_namespace = True
        mount("none", "/", "", _RECURSIVE | _SLAVE)  # nothing of it reaches the system's
    except (OSError, AttributeError, TypeError):  # no Linux: there is no such function, or no such library
        return
    own = True


def mount(source: str, target: str, kind: str, flags: int = 0, options: str = "") -> None:
    """mount(2). Raises OSError."""
    arguments = (os.fsencode(text) for text in (source, target, kind))
    if _libc().mount(*arguments, ctypes.c_ulong(flags), os.fsencode(options)):
        raise OSError(ctypes.get_errno(), "mount: " + os.strerror(ctypes.get_errno()), target)


def unmount(target: str) -> None:
    """Take a mount of this namespace away."""
    _libc().umount2(os.fsencode(target), _DETACH)


def give_up_rights() -> None:
    """Have no more rights in the user namespace than outside of it: root's would read and write what is forbidden."""
    if _in_user_namespace:
        header, no_rights = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0), (ctypes.c_uint32 * 6)()
        if _libc().capset(header, no_rights):
            raise OSError(ctypes.get_errno(), "capset: " + os.strerror(ctypes.get_errno()))


def _unshare(flags: int) -> bool:
    """unshare(2); False where this is not permitted."""
    if _libc().unshare(flags) == 0:
        return True
    if ctypes.get_errno() in (errno.EPERM, errno.EINVAL, errno.ENOSYS, errno.ENOSPC):
        return False
    raise OSError(ctypes.get_errno(), "unshare: " + os.strerror(ctypes.get_errno()))


def _enter_user_namespace() -> None:
    user, group = os.geteuid(), os.getegid()
    if not _unshare(_NEW_USERS | _NEW_MOUNTS):
        raise OSError(errno.EPERM, "unshare")
    maps = {"setgroups": "deny", "uid_map": "%d %d 1" % (user, user), "gid_map": "%d %d 1" % (group, group)}
    for name, text in maps.items():
        with open("/proc/self/" + name, "w") as file:
            file.write(text)


def _may_have_users() -> bool:
    """Whether a child comes into a user namespace. AppArmor may let it in without a user, and there is no way back."""
    version = re.match(r"(\d+)\.(\d+)", os.uname().release)
    if version is None or tuple(map(int, version.groups())) < _OVERLAY_FOR_USERS:
        return False
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            _enter_user_namespace()
            mount("none", "/", "", _RECURSIVE | _SLAVE)
            os._exit(0)
        os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
