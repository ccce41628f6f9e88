"""Hosts for a campaign: a network namespace each, with a link, a boot id and a disk of its own. Needs root, and Linux.

Spark's executors start there, because `java` is a script that enters the namespace. The driver is outside.
"""

import contextlib
import functools
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

BOOT_ID = "/proc/sys/kernel/random/boot_id"
DISK_BYTES = 96 << 20
#: An address that nobody has: what is sent to it is lost, and neither side learns of it.
_NOBODY = "02:00:00:00:00:99"
#: The driver's number among the addresses of the hosts.
_DRIVER = 253

#: The first executor of one of Spark's workers takes a host that is free; those that replace it get the same one.
_JAVA = """#!/bin/bash
for word in "$@"; do [[ $word == spark://Worker@* ]] && worker=${{word##*:}}; done
for (( host = 0; host < {count}; host++ )); do
  [[ $(cat {base}/taken-$host 2>/dev/null) == $worker ]] && mine=$host
done
if [[ -z $mine ]]; then
  for (( host = 0; host < {count}; host++ )); do
    if (set -o noclobber; echo $worker > {base}/taken-$host) 2>/dev/null; then mine=$host; break; fi
  done
fi
words=()
for word in "$@"; do
  [[ $last == --hostname ]] && word={net}.$((mine + 1))
  words+=("$word"); last=$word
done
export TMPDIR={base}/disk-$mine SPARK_LOCAL_IP={net}.$((mine + 1)) SPARK_LOCAL_HOSTNAME={net}.$((mine + 1))
exec ip netns exec {name}$mine sh -c 'mount --bind "$0" {boot_id} && exec "$@"' \\
  {base}/boot-$mine {java} "${{words[@]}}"
"""


@functools.cache
def obstacle():
    """Why there can be no such hosts, in one line; "" if there can."""
    if os.geteuid() or not sys.platform.startswith("linux"):
        return "network namespaces need Linux and root's rights"
    missing = [tool for tool in ("ip", "tc", "mount") if shutil.which(tool) is None]
    if missing:
        return f"{', '.join(missing)} not found: install iproute2"
    name = f"ddlp{os.getpid()}"
    for words in (("netns", "add", name), ("link", "add", name, "type", "veth")):
        probe = subprocess.run(["ip", *words], capture_output=True, text=True)
        if probe.returncode:
            return f"cannot make a host ({probe.stderr.strip()}): run with CAP_SYS_ADMIN and CAP_NET_ADMIN"
        subprocess.run(["ip", words[0], "del", name], check=True)
    return ""


class Hosts:
    """`count` hosts around a bridge; `java_home` starts executors on them. Files of theirs are in the folder `base`."""

    def __init__(self, count, base, java):
        """java: the real Java's command."""
        self.count, self.base = count, Path(base)
        self._name = f"ddlc{os.getpid() % 100000}h"
        self._bridge = f"ddlc{os.getpid() % 100000}b"
        self._net = f"10.{100 + os.getpid() % 100}.{os.getpid() // 100 % 250}"
        self.driver_address = self.address(_DRIVER)
        self.java_home = self.base / "java"
        self._java = java

    def __enter__(self):
        try:
            self._make()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *error):
        self._remove()

    def release(self):
        """The executors have ended: others may take the hosts."""
        for host in range(self.count):
            (self.base / f"taken-{host}").unlink(missing_ok=True)

    def disk(self, host):
        """The folder for temporary files, a small file system of its own."""
        return self.base / f"disk-{host}"

    def link(self, host):
        """The interface of this machine at the other end of the host's link: all that the host sends and gets."""
        return f"{self._name}{host}"

    def address(self, host):
        return f"{self._net}.{host + 1}"

    def prefix(self, host):
        """Before a command that runs on the host."""
        return ["ip", "netns", "exec", f"{self._name}{host}"]

    def command(self, host, *words):
        """A command that runs on the host, and reads the host's boot id there."""
        script = f'mount --bind "$0" {BOOT_ID} && exec "$@"'
        return [*self.prefix(host), "sh", "-c", script, str(self.base / f"boot-{host}"), *words]

    def kill(self, host):
        """End all processes of the host."""
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it ended meanwhile
                if os.readlink(folder / "ns" / "net") == self.namespace(host):
                    os.kill(int(folder.name), signal.SIGKILL)

    def namespace(self, host):
        """What /proc/PID/ns/net of its processes leads to."""
        return f"net:[{os.stat(f'/run/netns/{self._name}{host}').st_ino}]"

    # -- what happens to links

    def cut(self, host):
        """Nothing that the host sends arrives, and nothing arrives there; nobody is told."""
        self._ip("neigh", "replace", self.address(host), "lladdr", _NOBODY, "nud", "permanent", "dev", self._bridge)
        for other in [*range(self.count), _DRIVER]:
            if other != host:
                self._inside(host, "neigh", "replace", self.address(other), "lladdr", _NOBODY, "nud", "permanent")
                if other != _DRIVER:
                    self._inside(other, "neigh", "replace", self.address(host), "lladdr", _NOBODY, "nud", "permanent")

    def mend(self, host):
        """End of `cut`."""
        with contextlib.suppress(subprocess.CalledProcessError):
            self._ip("neigh", "del", self.address(host), "dev", self._bridge)
        for one in range(self.count):
            for other in [*range(self.count), _DRIVER]:
                if host in (one, other) and one != other:
                    with contextlib.suppress(subprocess.CalledProcessError):
                        self._inside(one, "neigh", "del", self.address(other))

    def shape(self, host, rate, queue):
        """The link carries `rate`, as tc writes it, each way; of what waits, more than `queue` bytes are lost."""
        bucket = ("root", "tbf", "rate", rate, "burst", "4kb", "limit", str(queue))
        self._run("tc", "qdisc", "replace", "dev", f"{self._name}{host}", *bucket)
        self._run(*self.prefix(host), "tc", "qdisc", "replace", "dev", "eth0", *bucket)

    def unshape(self, host):
        """End of `shape`."""
        for prefix, device in ((), f"{self._name}{host}"), (self.prefix(host), "eth0"):
            with contextlib.suppress(subprocess.CalledProcessError):
                self._run(*prefix, "tc", "qdisc", "del", "dev", device, "root")

    # -- how they are made

    def _make(self):
        self.base.mkdir(parents=True, exist_ok=True)
        self._ip("link", "add", self._bridge, "type", "bridge")
        self._ip("addr", "add", f"{self.driver_address}/24", "dev", self._bridge)
        self._ip("link", "set", self._bridge, "up")
        for host in range(self.count):
            name = f"{self._name}{host}"
            self._ip("netns", "add", name)
            self._ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
            self._ip("link", "set", name, "master", self._bridge, "up")
            self._ip("-n", name, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                self._ip("-n", name, "link", "set", device, "up")
            (self.base / f"boot-{host}").write_text(f"{name}\n")
            mount(self.disk(host), DISK_BYTES)
        script = self.java_home / "bin" / "java"
        script.parent.mkdir(parents=True, exist_ok=True)
        about = {"count": self.count, "base": self.base, "net": self._net, "name": self._name}
        script.write_text(_JAVA.format(**about, java=self._java, boot_id=BOOT_ID))
        script.chmod(0o755)

    def _remove(self):
        for host in range(self.count):
            for words in (("link", "del", f"{self._name}{host}"), ("netns", "del", f"{self._name}{host}")):
                with contextlib.suppress(subprocess.CalledProcessError):
                    self._ip(*words)
            unmount(self.disk(host))
        with contextlib.suppress(subprocess.CalledProcessError):
            self._ip("link", "del", self._bridge)

    def _inside(self, host, *words):
        self._ip("-n", f"{self._name}{host}", *words, "dev", "eth0")

    def _ip(self, *words):
        self._run("ip", *words)

    @staticmethod
    def _run(*words):
        subprocess.run(words, check=True, capture_output=True, text=True)


def mount(folder, size):
    """A file system of `size` bytes in memory."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)], check=True)


def unmount(folder):
    subprocess.run(["umount", "--lazy", str(folder)], capture_output=True)
