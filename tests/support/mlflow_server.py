"""A real tracking server of MLflow, from an environment of its own: `make mlflow-env`."""

import contextlib
import os
import signal
import subprocess

from support.paths import ROOT
from support.ports import answers, free_port
from support.until import until

PYTHON = ROOT / ".venv-mlflow" / "bin" / "python"


@contextlib.contextmanager
def mlflow_server(folder):
    """The address of a server that keeps its runs below `folder`."""
    assert PYTHON.exists(), "make mlflow-env makes the environment of MLflow's server"
    port = free_port()
    command = [str(PYTHON), "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    stores = ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--artifacts-destination", f"{folder}/artifacts"]
    environment = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    url = f"http://127.0.0.1:{port}"
    with (
        open(folder / "server.log", "wb") as log,
        subprocess.Popen([*command, *stores], env=environment, stdout=log, stderr=log, start_new_session=True) as it,
    ):
        try:
            until(lambda: answers(f"{url}/health"), 100)
            yield url
        finally:
            os.killpg(it.pid, signal.SIGTERM)  # it has children
