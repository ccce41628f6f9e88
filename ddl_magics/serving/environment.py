"""The environment of MLServer, created once in Jupyter's data folder: MLServer, TensorFlow, Keras and a Kafka client.

MLServer needs an older protobuf than the notebook. `DDL_MAGICS_SERVE_PYTHON` names a Python to use instead.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from jupyter_core.paths import jupyter_data_dir

from ddl_magics.clusters.machine import version_numbers
from ddl_magics.errors import CannotServe
from ddl_magics.serving import file_lock
from ddl_magics.store.files import make_private

#: The environment variable with the path of a Python that has MLServer, TensorFlow and Keras.
SETTING = "DDL_MAGICS_SERVE_PYTHON"
#: Pinned versions of all packages, for the Python of `FROZEN_ON`.
CONSTRAINTS = Path(__file__).parent / "constraints.txt"
FROZEN_ON = (3, 11)
#: How long the installation may take, and how long another process waits for it.
MAKE_SECONDS = 1200.0
_FIND_PACKAGES = "import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, ('mlserver', 'keras'))))"
_PINNED = re.compile(r"^(mlserver|keras|tensorflow-cpu|confluent-kafka)==(\S+)", re.MULTILINE)


def python(keras: str | None, report: Callable[[str], None]) -> Path:
    """The Python that serves a model.

    Args:
        keras: the version of Keras that saved the model, if known.
        report: called with lines of progress while the environment is created.

    Raises:
        CannotServe: one line; it cannot be created, or the Python of `SETTING` lacks MLServer.
    """
    configured = os.environ.get(SETTING)
    if configured:
        return _checked(Path(configured).expanduser())
    packages = requirements(keras)
    key = hashlib.sha256("\n".join([sys.version, *packages, CONSTRAINTS.read_text()]).encode()).hexdigest()[:10]
    folder = Path(jupyter_data_dir()) / "ddl_magics" / "environments" / f"serving-{key}"
    interpreter = folder / "bin" / "python"
    if not (folder / ".ready").exists():
        make_private(folder.parent)
        with file_lock.locked(folder.with_suffix(".lock"), MAKE_SECONDS, "making MLServer's environment", report):
            if not (folder / ".ready").exists():
                _make(folder, packages, report)
    return interpreter


def requirements(keras: str | None) -> list[str]:
    """The packages to install: the pinned versions, with the model's Keras if that is newer.

    Raises:
        CannotServe: Keras 2 saved the model.
    """
    pinned = dict(_PINNED.findall(CONSTRAINTS.read_text()))
    if keras is not None and version_numbers(keras) < (3,):
        raise CannotServe(
            f"the model was saved by Keras {keras}, and MLServer's environment has Keras 3: "
            "export it with run.export(path, 'saved_model'), and serve that folder"
        )
    if keras is not None and version_numbers(keras, 3) > version_numbers(pinned["keras"], 3):
        pinned["keras"] = keras
    return [f"{name}=={number}" for name, number in sorted(pinned.items())]


def _checked(interpreter: Path) -> Path:
    try:
        subprocess.run([interpreter, "-c", _FIND_PACKAGES], check=True, capture_output=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        raise CannotServe(f"{SETTING} is {interpreter}, which is no Python with MLServer and Keras: unset it") from None
    return interpreter


def _make(folder: Path, packages: list[str], report: Callable[[str], None]) -> None:
    report(f"making MLServer's environment, once: {', '.join(packages)} (2 GB, some minutes)")
    began = time.monotonic()
    shutil.rmtree(folder, ignore_errors=True)
    constraints: list[str] = []
    if sys.version_info[:2] == FROZEN_ON:
        pins = folder.with_suffix(".txt")
        names = {package.partition("==")[0] for package in packages}
        lines = CONSTRAINTS.read_text().splitlines()
        pins.write_text("\n".join(line for line in lines if line.partition("==")[0] not in names) + "\n")
        constraints = ["-c", str(pins)]
    try:
        # Isolated (-I): the notebook's folder, which may hold a stranger's files, has no modules for these processes.
        # Wheels alone: a source distribution is a program that pip would run.
        _run([sys.executable, "-I", "-m", "venv", str(folder)], began, report)
        pip = [str(folder / "bin" / "python"), "-I", "-m", "pip", "install", "--disable-pip-version-check"]
        options = ["--no-input", "--progress-bar", "off", "--only-binary", ":all:"]
        _run([*pip, *options, *constraints, "--", *packages], began, report)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    (folder / ".ready").touch()
    report(f"MLServer's environment is made: {time.monotonic() - began:.0f} s")


def _run(command: list[str], began: float, report: Callable[[str], None]) -> None:
    """Run a command and report its progress. Raises CannotServe with its error."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    assert process.stdout is not None
    message, incomplete_line, collected, reported_at = "", b"", 0, time.monotonic()
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while True:
                if time.monotonic() - began > MAKE_SECONDS:
                    raise CannotServe(f"MLServer's environment was not made within {MAKE_SECONDS / 60:.0f} minutes")
                if not selector.select(1.0):
                    continue
                data = os.read(process.stdout.fileno(), 65536)
                if not data:
                    break
                *lines, incomplete_line = (incomplete_line + data).split(b"\n")
                for line in (raw_line.decode(errors="replace").strip() for raw_line in lines):
                    collected += line.startswith("Collecting ")
                    message = line if line.startswith("ERROR") or not message.startswith("ERROR") else message
                    if line.startswith("Installing collected") or time.monotonic() - reported_at > 10:
                        doing = "installing" if line.startswith("Installing") else "found"
                        report(f"  {time.monotonic() - began:3.0f} s: {doing} {collected} packages")
                        reported_at = time.monotonic()
        if process.wait():
            raise CannotServe(f"MLServer's environment cannot be made: {message or process.returncode}")
    finally:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
