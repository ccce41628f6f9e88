"""A Livy of one session in this process: statements and side-channel jobs are executed by this Python, without Spark.

For faults that must come at a certain request; what a real Livy does is tested on one.
"""

import base64
import contextlib
import io
import json
import pickle
import sys
import threading
import traceback

from ddl_magics.clusters import shipping
from support.stand_ins import Handler, StandIn

#: `redirect_stdout` is for the whole process: two statements at once would mix what they print.
_one_at_a_time = threading.Lock()

#: What the runtime's `driver.remote` has besides the functions that are called.
_REMOTE = """
BESIDE = CALLS = {name: value for name, value in globals().items() if callable(value)}
def job(request):
    request = json.loads(request)
    return lambda context: BESIDE[request["function"]](request["argument"])
"""


@contextlib.contextmanager
def driver(folder, functions):
    """A package with these functions in the place of the runtime's, which need no Spark."""
    (folder / "driver").mkdir()
    for package in (folder, folder / "driver"):
        (package / "__init__.py").write_text("")
    (folder / "driver" / "remote.py").write_text(f"import json\n{functions}{_REMOTE}")
    runtime = shipping.pack(folder)
    yield runtime
    forget(runtime)


def forget(runtime):
    """As in the Python of another session, which has not imported it."""
    for name in [name for name in sys.modules if name.startswith(runtime.module)]:
        del sys.modules[name]


class FakeLivy(StandIn):
    """`faults` maps "METHOD /path" to answers (status, body) that are given once each, before the real one."""

    def __init__(self, side_channel=True, csrf=False):
        self.side_channel = side_channel
        self.csrf = csrf
        self.about = {}  # what Livy tells of the session beyond its id, state and kind
        self.state = "idle"
        self.deaf = ""  # how the session of a driver that has died answers: "accepts", or "fails"
        self.log = []
        self.names = {}
        self.created = []  # the bodies of the requests for a session
        self.statements, self.jobs = [], {}
        self.batches = []  # the bodies of the requests for a batch
        self.batch = [("success", [])]  # states of batch 3 and its log, one after the other; the last one stays
        self.faults = {}
        super().__init__(_Handler)

    def answer(self, method, path, body):
        """(status, JSON) of a request."""
        parts = path.partition("?")[0].strip("/").split("/")
        if path == "/version":
            return 200, {"version": "0.0"}
        if parts == ["sessions"]:
            return self._sessions(method, body)
        if parts[0] == "batches":
            return self._batches(method, parts[1:], body)
        if self.state == "gone" or parts[1] != "7":
            return 404, {"msg": f"Session '{parts[1]}' not found."}
        rest = parts[2:]
        if method == "DELETE" and not rest:
            self.state = "gone"
            return 200, {"msg": "deleted"}
        if rest == ["state"] or not rest:
            return 200, {"id": 7, "state": self.state, "kind": "pyspark", **self.about}
        if rest == ["log"]:
            return 200, {"log": self.log}
        if rest == ["connect"]:
            return 200, None
        if self.deaf:
            return self._deaf(method, rest)
        if rest == ["statements"]:
            self.statements.append(self._execute(body["code"]))
            return 201, {"id": len(self.statements) - 1, "state": "running"}
        if rest[0] == "statements":
            return 200, {"state": "available", "output": self.statements[int(rest[1])]}
        if rest == ["submit-job"] and self.side_channel:
            self.jobs[str(len(self.seen))] = self._job(body)
            return 201, {"id": len(self.seen)}
        if rest[0] == "jobs" and rest[1] in self.jobs:
            return 200, self.jobs.pop(rest[1])
        if rest[0] == "jobs":
            return 500, "java.util.NoSuchElementException"
        return 404, None

    def _sessions(self, method, body):
        """Another session is of the same number, but has a name of its own."""
        if method == "POST":
            self.state, self.about = "idle", {"name": body.get("name")}
            self.created.append(body)
            return 201, {"id": 7, "state": "starting", "kind": body.get("kind"), **self.about}
        listed = [] if self.state == "gone" else [{"id": 7, "state": self.state, "kind": "pyspark", **self.about}]
        return 200, {"from": 0, "total": len(listed), "sessions": listed}

    def _batches(self, method, rest, body):
        if method == "POST":
            self.batches.append(body)
            return 201, {"id": 3, "state": "starting", "name": body["name"], "log": []}
        if not rest:
            return 200, {"sessions": [{"id": 3, "state": "running", "name": body["name"]} for body in self.batches]}
        if (rest != ["3"] and rest != ["3", "log"]) or not self.batches:
            return 404, {"msg": f"Session '{rest[0]}' not found."}
        if method == "DELETE":
            self.batches.clear()
            return 200, {"msg": "deleted"}
        state, log = self.batch[0]
        if rest == ["3"]:
            return 200, {"id": 3, "state": state}
        if len(self.batch) > 1:  # its state has been asked for before
            del self.batch[0]
        return 200, {"id": 3, "log": log}

    def _deaf(self, method, rest):
        if self.deaf == "fails":
            return 500, "java.util.concurrent.ExecutionException: java.net.ConnectException: Connection refused"
        state = "SENT" if rest[0] in ("jobs", "submit-job") else "waiting"
        return 201 if method == "POST" else 200, {"id": 99, "state": state}

    def _execute(self, code):
        printed = io.StringIO()
        try:
            with _one_at_a_time, contextlib.redirect_stdout(printed):
                eval(compile(code, "<statement>", "eval"), self.names)
            return {"status": "ok", "data": {"text/plain": "warning: something\n" + printed.getvalue()}}
        except Exception as error:
            return {"status": "error", "ename": type(error).__name__, "evalue": str(error)}

    def _job(self, body):
        assert body["jobType"] == "pyspark"
        try:
            value = pickle.loads(base64.b64decode(body["job"]), encoding="bytes")(object())
        except Exception:
            return {"state": "FAILED", "error": "Client job error:" + traceback.format_exc()}
        return {"state": "SUCCEEDED", "result": base64.b64encode(base64.b64encode(pickle.dumps(value))).decode()}


class _Handler(Handler):
    def _serve(self):
        livy, body = self.stand_in, self.json_body()
        key = next((k for k in livy.faults if f"{self.command} {self.path}".startswith(k) and livy.faults[k]), None)
        if livy.csrf and self.command != "GET" and not self.headers.get("X-Requested-By"):
            status, reply = 400, b"<html>Missing Required Header for CSRF protection.</html>"
        else:
            status, reply = livy.faults[key].pop(0) if key else livy.answer(self.command, self.path, body)
        raw = reply if isinstance(reply, bytes) else b"" if reply is None else json.dumps(reply).encode()
        cut = status < 0  # a status below zero: half of the answer, and the connection closed
        self.send_response(abs(status))
        self.send_header("Content-Length", str(len(raw) * (2 if cut else 1)))
        self.end_headers()
        self.wfile.write(raw)
        self.close_connection = cut

    do_GET = do_POST = do_DELETE = _serve
