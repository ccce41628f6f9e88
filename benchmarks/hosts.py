"""Hosts on this machine: network namespaces around a bridge, each behind a line of its own of a given rate."""

from __future__ import annotations

import os
import shutil
import subprocess
from types import TracebackType

#: What a line takes at once, and how much may wait for it: as in a switch, little beside what is under way.
BURST_BYTES, QUEUE_BYTES = 128 << 10, 1 << 20
#: How the senders of a data centre behave unless told otherwise.
CONGESTION_CONTROL = "cubic"

_NETWORK = "10.213.0.0/24"


def obstacle() -> str:
    """Why this process cannot make hosts, in one line; empty where it can."""
    missing = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    if missing:
        return f"{', '.join(missing)} not found: install iproute2"
    if os.geteuid():
        return "network namespaces need root: run it with sudo"
    name = f"ddl{os.getpid()}probe"
    probe = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if probe.returncode:
        return f"no network namespaces here ({probe.stderr.strip()}): it needs CAP_SYS_ADMIN and CAP_NET_ADMIN"
    _run("ip", "netns", "delete", name)
    return ""


class Hosts:
    """`with Hosts(3, "1gbit") as hosts`: `hosts.command(1)` begins a command line on host 1, at `hosts.address(1)`.

    Each host sends through a token bucket and receives through another. Leaving takes all of it away.
    """

    def __init__(self, count: int, rate: str) -> None:
        self._count, self._rate = count, rate
        self._prefix = f"ddl{os.getpid() % 100000}"
        self._bridge = f"{self._prefix}br"

    def address(self, host: int) -> str:
        return f"10.213.0.{host + 1}"

    def command(self, host: int) -> list[str]:
        return ["ip", "netns", "exec", self._name(host)]

    def __enter__(self) -> Hosts:
        try:
            _run("ip", "link", "add", self._bridge, "type", "bridge")
            _run("ip", "link", "set", self._bridge, "up")
            for host in range(self._count):
                self._make(host)
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._remove()

    def _name(self, host: int) -> str:
        return f"{self._prefix}h{host}"

    def _make(self, host: int) -> None:
        name = self._name(host)
        inside = self.command(host)
        _run("ip", "netns", "add", name)
        _run("ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
        _run("ip", "link", "set", name, "master", self._bridge, "up")
        _run(*inside, "ip", "address", "add", f"{self.address(host)}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _run(*inside, "ip", "link", "set", device, "up")
        _run(*inside, "ip", "route", "replace", _NETWORK, "dev", "eth0", "congctl", CONGESTION_CONTROL)
        line = ("root", "tbf", "rate", self._rate, "burst", str(BURST_BYTES), "limit", str(QUEUE_BYTES))
        _run(*inside, "tc", "qdisc", "add", "dev", "eth0", *line)
        _run("tc", "qdisc", "add", "dev", name, *line)

    def _remove(self) -> None:
        for host in range(self._count):
            # A namespace takes its device along, once its processes have ended; that of this side is its other end.
            subprocess.run(["ip", "link", "delete", self._name(host)], capture_output=True)
            subprocess.run(["ip", "netns", "delete", self._name(host)], capture_output=True)
        subprocess.run(["ip", "link", "delete", self._bridge], capture_output=True)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr.strip()}")
