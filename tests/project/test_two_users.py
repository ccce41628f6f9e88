"""Two users of one host train at the same time, as under a JupyterHub: neither stops, reads or sees the other.

Needs root, and a Python that every user can execute.
"""

import json
import os
import pwd
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from support.paths import ROOT, TESTS

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

#: Users that every Debian has. Hadoop lets nobody in who has no name.
USERS = ("nobody", "daemon")


def _as(user):
    """What makes a process that of a user."""
    return {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}


def _python():
    """A Python of this version that other users can execute, or None."""
    for python in (sys.executable, f"/usr/bin/python{sys.version_info[0]}.{sys.version_info[1]}"):
        try:
            if subprocess.run([python, "-c", "1"], **_as(USERS[0])).returncode == 0:
                return python
        except OSError:  # it is missing, or in a folder of another user
            continue
    return None


@pytest.mark.skipif(os.getuid() != 0, reason="to be two users, a test has to be root")
def test_two_users_train_at_once_and_cannot_read_each_others_runs():
    python = _python()
    if python is None:
        pytest.skip("no Python here that other users can execute")
    homes = [Path("/tmp") / f"ddl-test-user-{os.getpid()}-{user}" for user in USERS]
    started = []
    for user, home in zip(USERS, homes, strict=True):
        home.mkdir(mode=0o755)
        shutil.chown(home, user)
        environment = {
            "HOME": str(home),
            "PATH": os.environ["PATH"],
            "JUPYTER_DATA_DIR": str(home / "data"),
            "IPYTHONDIR": str(home / "ipython"),
            "TMPDIR": "/tmp",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(TESTS), sysconfig.get_path("purelib")]),
        }
        one = [python, "-m", "support.one_user"]
        process = subprocess.Popen(one, **_as(user), env=environment, stdout=subprocess.PIPE, text=True)
        started.append(process)
    try:
        first, second = (json.loads(process.communicate(timeout=500)[0].splitlines()[-1]) for process in started)
        for user, other in zip(USERS, (second, first), strict=True):
            listed = subprocess.run(["/bin/ls", other["runs"]], **_as(user), capture_output=True, text=True)
            assert listed.returncode != 0 and "Permission denied" in listed.stderr
    finally:
        for process, home in zip(started, homes, strict=True):
            process.kill()
            shutil.rmtree(home, ignore_errors=True)
    assert first["state"] == second["state"] == "FINISHED"
    assert first["history"] == second["history"], "each is what it would be alone"
    assert first["mode"] == second["mode"] == 0o700
