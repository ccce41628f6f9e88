"""Executors that seem to be on different hosts, for tests of what travels between hosts.

Ranks are on one host if they read the same boot id. Each executor's Python gets a mount namespace of its own, in which
another file has the place of the boot id. This needs root, and Linux.
"""

import os
import shutil
import subprocess
import sys

_BOOT_ID = "/proc/sys/kernel/random/boot_id"

#: An executor of Spark's local-cluster works in a folder that is named by its number.
_PYTHON = """#!/bin/sh
host=$(( ${{PWD##*/}} / {executors} ))
exec unshare --mount sh -c 'mount --bind "$0" {boot_id} && exec "$@"' {folder}/boot-$host {python} "$@"
"""


#: Code before a cell that prints the transport of a rank.
TRANSPORT = """
ring = ddl._peers.ring
print("transport", type(ring).__name__, ring.crosses_network)
"""


def can_be_pretended():
    if os.geteuid() or not shutil.which("unshare") or not os.path.exists(_BOOT_ID):
        return False
    command = ["unshare", "--mount", "mount", "--bind", os.devnull, _BOOT_ID]
    return subprocess.run(command, capture_output=True).returncode == 0


def python(folder, executors, hosts=100, command=sys.executable):
    """The Python for executors, of which each host has `executors`; it is `command` there.

    hosts: more than a test needs, as Spark counts on where executors replace others.
    """
    for host in range(hosts):
        (folder / f"boot-{host}").write_text(f"host-{host}\n")
    script = folder / f"python-{executors}"
    script.write_text(_PYTHON.format(executors=executors, boot_id=_BOOT_ID, folder=folder, python=command))
    script.chmod(0o755)
    return script
