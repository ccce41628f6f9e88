"""What a served model answers: latency of single rows at a given rate, and rows/s of requests with many rows.

    python -m benchmarks.serving [--quick] [--rounds N]

Three servers on this machine, a process each, with the same small dense model of 31 numbers: "ours" is what
`%ddl serve` starts; "MLServer's MLflow" is MLServer with its own runtime for MLflow models, on the same folder;
"FastAPI" is a plain application that calls `model.predict`, one request after the other. All run in the environment of
`make serve-bench-env`. Rounds alternate between them. In a round, requests with one row are sent at 50 a second,
whether or not the last one is answered; then two clients send requests of 1000 rows, one after the other. Latencies
count from the moment when a request is due.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from ddl_magics.serving import launch
from ddl_magics.serving.environment import SETTING

from .harness import command, report
from .harness.rounds import rotated

PYTHON = Path(__file__).resolve().parent.parent / ".venv-serve-bench" / "bin" / "python"
ROUNDS, QUICK_ROUNDS = 4, 1
RATE, RATE_SECONDS = 50, 10.0
BATCH_ROWS, CLIENTS, BATCH_SECONDS = 1000, 2, 5.0
WIDTH = 31
OURS, MLFLOW, FASTAPI = "ours", "MLServer's MLflow", "FastAPI"
START_SECONDS = 180.0

_APPLICATION = """
import sys
import keras, numpy as np, uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

model = keras.models.load_model(sys.argv[1])
app = FastAPI()

class Rows(BaseModel):
    inputs: list[list[float]]

@app.get("/ready")
def ready():
    return {}

@app.post("/predict")
async def predict(rows: Rows):
    return {"predictions": model.predict(np.array(rows.inputs, "float32"), verbose=0).tolist()}

uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), log_level="warning")
"""


def export(folder: Path) -> Path:
    """An MLflow folder of a small dense model."""
    import keras

    from ddl_magics.models.export import Trained
    from ddl_magics.models.export import export as write

    model = keras.Sequential(
        [keras.Input((WIDTH,)), keras.layers.Dense(64, "relu"), keras.layers.Dense(64, "relu"), keras.layers.Dense(1)]
    )
    file = folder / "model.keras"
    model.save(file)
    return write(Trained(file, lambda: model, {"name": "small"}), folder / "export")


class Server:
    """Where a server is, and how it wants rows."""

    def __init__(self, port: int, path: str, body: Callable[[Any], Any]) -> None:
        self.port, self._path, self._body = port, path, body

    def prepared(self, rows: int) -> bytes:
        """The body of a request with so many rows."""
        import numpy as np

        return json.dumps(self._body(np.random.default_rng(rows).normal(size=(rows, WIDTH)).round(6))).encode()

    def ask(self, connection: http.client.HTTPConnection, body: bytes) -> None:
        """Send a request and read the answer."""
        connection.request("POST", self._path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{answer.status}: {content[:300]!r}")


def of_protocol(rows: Any) -> Any:
    """A request of the Open Inference Protocol."""
    tensor = {"name": "input", "shape": list(rows.shape), "datatype": "FP32", "data": rows.ravel().tolist()}
    return {"inputs": [tensor]}


@contextmanager
def process(arguments: list[str], folder: Path, port: int, ready: str) -> Iterator[None]:
    """A server's process, which answers before the block begins."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
    with (folder / "output.txt").open("wb") as output:
        started = subprocess.Popen(arguments, cwd=folder, stdout=output, stderr=output, env=environment)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not _is_ready(port, ready):
            if started.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((folder / "output.txt").read_text()[-2000:])
            time.sleep(0.2)
        yield
    finally:
        started.kill()
        started.wait()


def _is_ready(port: int, path: str) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


@contextmanager
def servers(folder: Path) -> Iterator[dict[str, Server]]:
    """The three of them."""
    exported = export(folder)
    with ExitStack() as stack:
        import shutil

        def copy(target: Path) -> None:
            shutil.copytree(exported, target, dirs_exist_ok=True)

        served = launch.serve(launch.Request("small", copy), lambda line: print(line, file=sys.stderr))
        stack.callback(served.stop)
        found = {OURS: Server(int(served.settings["http_port"]), "/v2/models/small/infer", of_protocol)}

        own = folder / "mlserver"
        own.mkdir()
        ports = [launch._free_port(None) for _ in range(3)]
        names = ("http_port", "grpc_port", "metrics_port")
        settings = {"host": "127.0.0.1", "parallel_workers": 0, "debug": False, **dict(zip(names, ports, strict=True))}
        (own / "settings.json").write_text(json.dumps(settings))
        model = {
            "name": "small",
            "implementation": "mlserver_mlflow.MLflowRuntime",
            "parameters": {"uri": str(exported)},
        }
        (own / "model-settings.json").write_text(json.dumps(model))
        start = [str(PYTHON), "-c", "import sys; from mlserver.cli import main; main()", "start", "."]
        stack.enter_context(process(start, own, ports[0], "/v2/health/ready"))
        found[MLFLOW] = Server(ports[0], "/v2/models/small/infer", of_protocol)

        plain, port = folder / "fastapi", launch._free_port(None)
        plain.mkdir()
        (plain / "application.py").write_text(_APPLICATION)
        start = [str(PYTHON), "application.py", str(folder / "model.keras"), str(port)]
        stack.enter_context(process(start, plain, port, "/ready"))
        found[FASTAPI] = Server(port, "/predict", lambda rows: {"inputs": rows.tolist()})
        yield found


def single_rows(server: Server, seconds: float) -> list[float]:
    """Latencies in ms of single rows, sent at RATE a second."""
    body, local = server.prepared(1), threading.local()
    begin = time.perf_counter() + 0.2

    def ask(number: int) -> float:
        due = begin + number / RATE
        time.sleep(max(0.0, due - time.perf_counter()))
        if not hasattr(local, "connection"):
            local.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        server.ask(local.connection, body)
        return (time.perf_counter() - due) * 1e3

    with ThreadPoolExecutor(16) as threads:
        return list(threads.map(ask, range(int(seconds * RATE))))


def batches(server: Server, seconds: float) -> float:
    """Thousands of rows a second, in requests of BATCH_ROWS."""
    body = server.prepared(BATCH_ROWS)
    end = time.perf_counter() + seconds

    def ask(_: int) -> tuple[int, float]:
        connection, count = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60), 0
        while time.perf_counter() < end:
            server.ask(connection, body)
            count += 1
        connection.close()
        return count, time.perf_counter()

    begin = time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as threads:
        found = list(threads.map(ask, range(CLIENTS)))
    return sum(count for count, _ in found) * BATCH_ROWS / (max(at for _, at in found) - begin) / 1e3


def measure(rounds: int, share: float) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """(latencies of single rows in ms, thousands of rows/s), by server."""
    latencies: dict[str, list[float]] = {}
    rows: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder, servers(Path(folder)) as found:
        for number in range(-1, rounds):  # the first round warms up
            for name in rotated(found, number):
                taken = single_rows(found[name], RATE_SECONDS * share if number >= 0 else 1.0)
                speed = batches(found[name], BATCH_SECONDS * share if number >= 0 else 1.0)
                if number >= 0:
                    latencies.setdefault(name, []).extend(taken)
                    rows.setdefault(name, []).append(speed)
            print(f"round {number + 1} of {rounds}", file=sys.stderr)
    return latencies, rows


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = command.parser("serving", __doc__, "one short round")
    command.add_rounds(parser, ROUNDS)
    options = parser.parse_args(arguments)
    before = report.machine()
    os.environ[SETTING] = str(PYTHON)
    with tempfile.TemporaryDirectory() as data:
        os.environ["JUPYTER_DATA_DIR"] = data
        latencies, rows = measure(command.rounds(options, ROUNDS, QUICK_ROUNDS), 0.2 if options.quick else 1.0)
    print(report.spread(latencies, "ms"), "\n")
    print(report.spread(rows, "k rows/s"), "\n")
    goals = []
    for other in (MLFLOW, FASTAPI):
        slower = report.quantile(latencies[OURS], 0.95) / report.quantile(latencies[other], 0.95)
        goals.append(report.at_most(f"p95 of a single row at {RATE}/s: ours over {other}", slower, 1.0))
        faster = median(rows[OURS]) / median(rows[other])
        goals.append(report.at_least(f"rows/s in requests of {BATCH_ROWS}: ours over {other}", faster, 1.0))
    samples = {f"{name}, ms": values for name, values in latencies.items()}
    report.finish(
        {**samples, **{f"{name}, k rows/s": values for name, values in rows.items()}}, goals, machine_before=before
    )


if __name__ == "__main__":
    main()
