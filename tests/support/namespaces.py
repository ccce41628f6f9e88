"""A second host for tests: a network namespace that a veth pair joins to this one, and whose link can be cut.

This needs root, and Linux with `ip`. A cut is silent: each side sends to a hardware address that nobody has, so neither
system learns of it.
"""

import contextlib
import os
import shutil
import subprocess
import uuid

_NOBODY = "02:00:00:00:00:99"


def can_be_made():
    if os.geteuid() or not shutil.which("ip"):
        return False
    name = "ddl-" + uuid.uuid4().hex[:8]
    if subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode:
        return False
    made = subprocess.run(["ip", "link", "add", name[:10] + "a", "type", "veth"], capture_output=True).returncode == 0
    if made:
        _ip("link", "del", name[:10] + "a")
    _ip("netns", "del", name)
    return made


def _ip(*words):
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


class Namespace:
    """`here` and `there`: the addresses of this side and of the namespace. `prefix`: of a command that runs there."""

    def __init__(self):
        self._name = "ddl-" + uuid.uuid4().hex[:8]
        self._link, self._peer = self._name[:12] + "h", self._name[:12] + "t"
        net = uuid.uuid4().bytes
        self.here, self.there = (f"10.{200 + net[0] % 50}.{net[1]}.{last}" for last in (1, 2))
        self.prefix = ["ip", "netns", "exec", self._name]

    def open(self):
        _ip("netns", "add", self._name)
        _ip("link", "add", self._link, "type", "veth", "peer", "name", self._peer, "netns", self._name)
        _ip("addr", "add", f"{self.here}/24", "dev", self._link)
        _ip("link", "set", self._link, "up")
        self._there("addr", "add", f"{self.there}/24", "dev", self._peer)
        for device in ("lo", self._peer):
            self._there("link", "set", device, "up")

    def cut(self):
        _ip("neigh", "replace", self.there, "lladdr", _NOBODY, "nud", "permanent", "dev", self._link)
        self._there("neigh", "replace", self.here, "lladdr", _NOBODY, "nud", "permanent", "dev", self._peer)

    def mend(self):
        _ip("neigh", "del", self.there, "dev", self._link)
        self._there("neigh", "del", self.here, "dev", self._peer)

    def close(self):
        for words in (("link", "del", self._link), ("netns", "del", self._name)):
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip(*words)

    def _there(self, *words):
        _ip("-n", self._name, *words)


@contextlib.contextmanager
def namespace():
    made = Namespace()
    try:
        made.open()
        yield made
    finally:
        made.close()
