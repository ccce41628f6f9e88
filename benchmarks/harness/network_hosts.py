"""Simulated hosts: network namespaces of this machine around a bridge, each behind a link of a given rate."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

#: Of the token bucket of a link, and of its queue, which is short as in a switch.
BURST_BYTES, QUEUE_BYTES = 128 << 10, 1 << 20
#: Linux's default, set here so that the machine's own setting has no influence.
CONGESTION_CONTROL = "cubic"

_NETWORK = "10.213.0.0/24"


def obstacle() -> str:
    """Why this process cannot make hosts and what to do, in one line; empty if it can."""
    missing = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    if missing:
        return f"{', '.join(missing)} not found: install iproute2"
    if os.geteuid():
        return "network namespaces need root: run the command with sudo"
    name = f"ddl{os.getpid()}probe"
    probe = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if probe.returncode:
        return f"cannot make a network namespace ({probe.stderr.strip()}): run with CAP_SYS_ADMIN and CAP_NET_ADMIN"
    _run("ip", "netns", "delete", name)
    return ""


class Hosts:
    """A context manager that makes the hosts and removes them.

    Each host sends through a token bucket and receives through another.

    Args:
        count: number of hosts.
        rate: of each link in each direction, as `tc` writes it ("1gbit").
    """

    def __init__(self, count: int, rate: str) -> None:
        self._count, self._rate = count, rate
        self._prefix = f"ddl{os.getpid() % 100000}"
        self._bridge = f"{self._prefix}br"

    def address(self, host: int) -> str:
        """The IP address of a host (0 to count - 1)."""
        return f"10.213.0.{host + 1}"

    def command(self, host: int) -> list[str]:
        """The beginning of a command line that runs on a host."""
        return ["ip", "netns", "exec", self._name(host)]

    def command_of_machine(self, host: int, boot_id: Path, command: Sequence[str]) -> list[str]:
        """The command line of a process that takes its host for a machine, and shares no memory with other hosts.

        boot_id: a file to be written, which the process sees in the place of this machine's boot id.
        """
        boot_id.write_text(f"{self._name(host)}\n")
        bound = 'mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"'
        return [*self.command(host), "sh", "-c", bound, str(boot_id), *command]

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
            # Deleting one end of the link deletes the other. A namespace that still has processes would keep its end.
            subprocess.run(["ip", "link", "delete", self._name(host)], capture_output=True)
            subprocess.run(["ip", "netns", "delete", self._name(host)], capture_output=True)
        subprocess.run(["ip", "link", "delete", self._bridge], capture_output=True)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr.strip()}")
