"""Requests to a served model, one after the other or from several threads at once."""

import contextlib
import json
import threading
import time
import urllib.error
import urllib.request


def post(url, body):
    """(status, the JSON that was answered)."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read() or b"null")


def infer(served, rows, name="input", path=""):
    """(status, the answer) of the Open Inference Protocol, for rows of numbers in an array."""
    tensor = {"name": name, "shape": list(rows.shape), "datatype": "FP32", "data": rows.ravel().tolist()}
    return post(f"{served.url}/v2/models/{served.name}{path}/infer", {"inputs": [tensor]})


class Load:
    """Asks for predictions all the time, from so many threads, while the block runs.

    `answers` has (status, version, values) of each request, or (0, the exception, []).
    """

    def __init__(self, served, rows, threads=4, pause=0.005):
        self.answers = []
        self._served, self._rows, self._pause = served, rows, pause
        self._threads = [threading.Thread(target=self._ask) for _ in range(threads)]
        self._over = threading.Event()

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exception):
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _ask(self):
        while not self._over.is_set():
            try:
                status, answer = infer(self._served, self._rows)
                found = answer["outputs"][0]["data"] if status == 200 else []
                self.answers.append((status, answer.get("model_version"), found))
            except Exception as error:
                self.answers.append((0, error, []))
            time.sleep(self._pause)


def end(served):
    """Stop it, if it lives."""
    with contextlib.suppress(Exception):
        served.stop()
