"""A real TensorBoard, and what it has read, as its own page asks for it."""

import contextlib
import json
import os
import subprocess
import sys
import urllib.request

from support.ports import free_port
from support.until import until


class TensorBoard:
    """TensorBoard over a folder of logs."""

    def __init__(self, url):
        self.url = url

    def get(self, path, body=None):
        """What its page gets at this path; None while there is no answer."""
        kind = {"Content-Type": "application/json"} if body is not None else {}
        try:
            with urllib.request.urlopen(
                urllib.request.Request(f"{self.url}/data/{path}", body, kind), timeout=10
            ) as file:
                return json.load(file)
        except OSError:
            return None

    def tags(self):
        """Run -> the names of its scalars."""
        return self.get("plugin/scalars/tags") or {}

    def points(self, run, tag):
        """(step, value) of a scalar."""
        found = self.get(f"plugin/scalars/scalars?run={run}&tag={tag}") or []
        return [tuple(point[1:]) for point in found]

    def parameters(self):
        """(names of the hyperparameters, names of the metrics)."""
        experiment = self.get("plugin/hparams/experiment", b"{}") or {}
        infos = experiment.get("hparamInfos", ()), experiment.get("metricInfos", ())
        return {info["name"] for info in infos[0]}, {info["name"]["tag"] for info in infos[1]}


@contextlib.contextmanager
def tensorboard(logs):
    """A TensorBoard over the folder `logs`, which reads it every second."""
    port = free_port()
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(logs), "--port", str(port)]
    options = ["--host", "127.0.0.1", "--load_fast=false", "--reload_interval=1"]
    environment = {**os.environ, "TENSORBOARD_NO_UPDATE": "1"}
    with subprocess.Popen([*command, *options], env=environment) as server:
        try:
            board = TensorBoard(f"http://127.0.0.1:{port}")
            until(lambda: board.get("runs") is not None, 60)
            yield board
        finally:
            server.terminate()
