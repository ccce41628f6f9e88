"""A served model in the store without MLServer: a process that ends when asked to, and counts that a test sets."""

import json
import shutil
import subprocess
import sys
import time

from ddl_magics.serving import servers
from ddl_magics.store import owner

_PROGRAM = "import pathlib, sys, time\nwhile not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.05)"


class InventedServer:
    """What `list_served` finds until it is stopped."""

    def __init__(self, name="digits", version="1", **settings):
        self.name = name
        self.folder = servers.servers_folder() / name
        (self.folder / "control").mkdir(parents=True)
        stop = str(self.folder / "control" / "stop")
        self.process = subprocess.Popen([sys.executable, "-c", _PROGRAM, stop])
        known = {
            "name": name,
            "version": version,
            "http_port": 18080,
            "grpc_port": 18081,
            "detached": False,
            "log": None,
        }
        self._write("settings.json", {**known, **settings})
        owned = {**owner.this_process(), "pid": self.process.pid, "start": owner.started(self.process.pid)}
        self._write("owner.json", owned)
        self.count()

    def count(self, rate=0.0, requests=0, errors=0, version=None, latency=(None, None, None), rates=(), dropped=0):
        """What the server has counted."""
        latencies = dict(zip(("p50", "p95", "p99"), latency, strict=True))
        counts = {"rate": rate, "requests": requests, "errors": errors, "recent_errors": errors, "rates": list(rates)}
        self._write(
            "status.json",
            {"time": time.time(), "version": version, "dropped": dropped, "latency": latencies, **counts},
        )

    def kill(self):
        """As the kernel of this machine does when memory is short."""
        self.process.kill()
        self.process.wait()

    def end(self):
        """Leaves nothing of it."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _write(self, name, value):
        (self.folder / name).write_text(json.dumps(value))
