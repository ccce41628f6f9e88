"""The parameter server's process, as the driver sees it: started, asked for its port, watched, ended.

A process of its own: in the driver's it would share the interpreter's lock with the user's cells.
"""

import json
import os
import select
import subprocess
import sys
import threading

START_SECONDS = 30.0
CLOSE_SECONDS = 5.0


class ServerProcess:
    """`address` is [host, port]. `on_death(message)` is called if the server ends before `close`."""

    def __init__(self, spec, secret, host, advertised, on_death):
        package = os.path.dirname(os.path.abspath(__file__))
        environment = dict(os.environ)
        environment["PYTHONPATH"] = os.pathsep.join([os.path.dirname(package)] + [p for p in sys.path if p])
        self._process = subprocess.Popen(
            [sys.executable, "-m", __package__ + ".parameter_server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # never the driver's own: a write to its real output ends a Livy session
            env=environment,
            start_new_session=True,
        )
        self._closing = False
        config = {
            "run": spec["run"],
            "secret": secret.hex(),
            "host": host,
            "size": spec["workers"],
            "attempt": 1,
            "rule": spec["rule"],
            "options": {},
        }
        self._process.stdin.write(json.dumps(config).encode() + b"\n")
        self._process.stdin.flush()
        self.address = [advertised, self._read_port()]
        threading.Thread(target=self._watch, args=(on_death,), daemon=True).start()

    def _read_port(self):
        ready, _, _ = select.select([self._process.stdout], [], [], START_SECONDS)
        line = self._process.stdout.readline() if ready else b""
        if not line:
            self._process.kill()
            raise RuntimeError("the parameter server did not start within %g s" % START_SECONDS)
        return json.loads(line.decode())["port"]

    def _watch(self, on_death):
        status = self._process.wait()
        if not self._closing:
            on_death("the parameter server (process %d) ended with status %s" % (self._process.pid, status))

    def close(self):
        self._closing = True
        self._process.stdin.close()
        try:
            self._process.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
