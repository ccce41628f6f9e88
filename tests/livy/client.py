"""The least client that the tests of the rig need: requests by hand, with what came back."""

import base64
import json
import pickle
import ssl
import time
import urllib.error
import urllib.request
from dataclasses import dataclass

from support.until import until

#: A driver and two executors start in 10 s on an idle machine, and in a minute on a busy one.
STARTED_WITHIN_SECONDS = 100
ENDED_WITHIN_SECONDS = 60


@dataclass(frozen=True)
class Reply:
    """Status and text of an answer; `json` reads it."""

    status: int
    text: str

    @property
    def json(self):
        return json.loads(self.text)


class Client:
    """Requests to one Livy. `credentials` is (user, password), `ca` the file that checks a gateway's certificate."""

    def __init__(self, url, credentials=None, ca=None, requested_by="tests"):
        self.url = url
        self.headers = {"Content-Type": "application/json"}
        if requested_by:
            self.headers["X-Requested-By"] = requested_by
        if credentials:
            self.headers["Authorization"] = "Basic " + base64.b64encode(":".join(credentials).encode()).decode()
        self.context = ssl.create_default_context(cafile=ca) if ca else None

    def request(self, method, path, body=None, timeout=60):
        """A Reply, whatever its status. Raises OSError or http.client.HTTPException where none came."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, self.headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=timeout, context=self.context) as reply:
                return Reply(reply.status, reply.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                return Reply(error.code, error.read().decode())

    def get(self, path):
        return self.request("GET", path)

    def post(self, path, body=None):
        return self.request("POST", path, {} if body is None else body)

    def delete(self, path):
        return self.request("DELETE", path)

    def create(self, **options):
        """A new session of kind pyspark, still starting."""
        reply = self.post("/sessions", {"kind": "pyspark", **options})
        assert reply.status == 201, reply
        return Session(self, reply.json["id"])


class Session:
    """One interactive session."""

    def __init__(self, client, number):
        self.client = client
        self.path = f"/sessions/{number}"

    @property
    def state(self):
        return self.client.get(f"{self.path}/state").json["state"]

    def until(self, *states, seconds=STARTED_WITHIN_SECONDS):
        """Wait for one of the states; fail with the session's log."""
        deadline = time.monotonic() + seconds
        while (state := self.state) not in states:
            if time.monotonic() > deadline or state in ("dead", "killed"):
                log = self.client.get(f"{self.path}/log?size=50").json["log"]
                raise AssertionError(f"the session is {state}, not {states}:\n" + "\n".join(log))
            time.sleep(0.2)
        return state

    def start(self, code):
        """Send a statement; return its number."""
        reply = self.client.post(f"{self.path}/statements", {"code": code})
        assert reply.status == 201, reply
        return reply.json["id"]

    def statement(self, number):
        return self.client.get(f"{self.path}/statements/{number}").json

    def ended(self, number, seconds=ENDED_WITHIN_SECONDS):
        """The statement when it has ended, with its output.

        Livy reads a statement while it may end: the answer can have the new state and no output yet.
        """

        def ended():
            statement = self.statement(number)
            with_output = statement["state"] in ("available", "error") and statement["output"] is not None
            return statement if statement["state"] == "cancelled" or with_output else None

        return until(ended, seconds, lambda: self.statement(number), pause=0.02)

    def runs(self, number):
        """Wait until the statement is running."""
        until(lambda: self.statement(number)["state"] == "running", 20, pause=0.05)

    def run(self, code, seconds=ENDED_WITHIN_SECONDS):
        """Send a statement, wait for its end; return its output."""
        return self.ended(self.start(code), seconds)["output"]

    def text(self, code):
        """The text that a statement gives, which must be ok."""
        output = self.run(code)
        assert output["status"] == "ok", output
        return output["data"]["text/plain"]

    def submit(self, pickled):
        """Start a side-channel job; return its number."""
        body = {"job": base64.b64encode(pickled).decode(), "jobType": "pyspark"}
        reply = self.client.post(f"{self.path}/submit-job", body)
        assert reply.status == 201, reply
        return reply.json["id"]

    def job(self, pickled):
        """Run a side-channel job to its end; return Livy's answer."""
        return self.job_ended(self.submit(pickled))

    def job_ended(self, number):
        """Livy's answer about the job when it has ended, which it gives once."""

        def ended():
            answer = self.client.get(f"{self.path}/jobs/{number}").json
            return answer if answer["state"] in ("SUCCEEDED", "FAILED") else None

        return until(ended, 20, pause=0.01)


def value(answer):
    """What a side-channel job has returned. Our own server's pickles only."""
    assert answer["state"] == "SUCCEEDED", answer
    return pickle.loads(base64.b64decode(base64.b64decode(answer["result"])))
