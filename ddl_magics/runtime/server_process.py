"""The parameter servers' processes, as the driver sees them: started, asked for their ports, watched, ended.

Processes of their own: in the driver's they would share the interpreter's lock with the user's cells.
"""

import json
import os
import select
import subprocess
import sys
import threading

START_SECONDS = 30.0
#: How long rank 0, once it has died, may take to be started again.
REJOIN_SECONDS = 300.0
CLOSE_SECONDS = 5.0


class Servers:
    """The servers of a run, as many as its `ps` says. `addresses`: [host, port] of each.

    `on_death(message)` is called if one ends before `close`.
    """

    def __init__(self, spec, secret, host, advertised, on_death):
        config = {
            "run": spec["run"],
            "secret": secret.hex(),
            "host": host,
            "size": spec["workers"],
            "attempt": 1,
            "rule": spec["rule"],
        }
        self._processes = []
        try:
            for _ in range(spec.get("ps") or 1):
                self._processes.append(_Process(dict(config, options={"rejoin_seconds": REJOIN_SECONDS})))
            self.addresses = [[advertised, process.port()] for process in self._processes]
        except BaseException:
            self.close()
            raise
        for process in self._processes:
            process.watch(on_death)

    def close(self):
        for process in self._processes:
            process.ask_to_end()
        for process in self._processes:
            process.end()


class _Process:
    def __init__(self, config):
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
        self._process.stdin.write(json.dumps(config).encode() + b"\n")
        self._process.stdin.flush()

    def port(self):
        """Waits for the server to tell it."""
        ready, _, _ = select.select([self._process.stdout], [], [], START_SECONDS)
        line = self._process.stdout.readline() if ready else b""
        if not line:
            raise RuntimeError("the parameter server did not start within %g s" % START_SECONDS)
        return json.loads(line.decode())["port"]

    def watch(self, on_death):
        threading.Thread(target=self._watch, args=(on_death,), daemon=True).start()

    def _watch(self, on_death):
        status = self._process.wait()
        if not self._closing:
            on_death("the parameter server (process %d) ended with status %s" % (self._process.pid, status))

    def ask_to_end(self):
        self._closing = True
        self._process.stdin.close()

    def end(self):
        try:
            self._process.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
