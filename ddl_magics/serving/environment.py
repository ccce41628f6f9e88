"""The environment of MLServer, made once in Jupyter's data folder: MLServer, TensorFlow, Keras and a client of Kafka.

MLServer cannot share the notebook's: it needs an older protobuf. `DDL_MAGICS_SERVE_PYTHON` names a Python that has one.
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
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from jupyter_core.paths import jupyter_data_dir

from ddl_magics.errors import CannotServe
from ddl_magics.serving import file_lock

#: The environment variable with the path of a Python that has MLServer, TensorFlow and Keras.
SETTING = "DDL_MAGICS_SERVE_PYTHON"
#: Versions of everything, which hold for this Python.
CONSTRAINTS = Path(__file__).parent / "constraints.txt"
FROZEN_ON = (3, 11)
#: How long making one may take, and how long another process waits for it.
MAKE_SECONDS = 1200.0
_PINNED = re.compile(r"^(mlserver|keras|tensorflow-cpu|confluent-kafka)==(\S+)", re.MULTILINE)


def python(keras: str | None, tell: Callable[[str], None]) -> Path:
    """The Python that serves a model.

    Args:
        keras: the version of Keras that has saved the model, if that is known.
        tell: is called with lines about the progress, where the environment is made.

    Raises:
        CannotServe: one line; it cannot be made, or the one of `SETTING` lacks MLServer.
    """
    given = os.environ.get(SETTING)
    if given:
        return _checked(Path(given).expanduser())
    wanted = requirements(keras)
    key = hashlib.sha256("\n".join([sys.version, *wanted, CONSTRAINTS.read_text()]).encode()).hexdigest()[:10]
    folder = Path(jupyter_data_dir()) / "ddl_magics" / "environments" / f"serving-{key}"
    found = folder / "bin" / "python"
    if not (folder / ".ready").exists():
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with file_lock.held(folder.with_suffix(".lock"), MAKE_SECONDS, "making MLServer's environment", tell):
            if not (folder / ".ready").exists():
                _make(folder, wanted, tell)
    return found


def requirements(keras: str | None) -> list[str]:
    """What is installed: the pinned versions, or a newer Keras that the model needs.

    Raises:
        CannotServe: the model is one of Keras 2.
    """
    pinned = dict(_PINNED.findall(CONSTRAINTS.read_text()))
    if keras is not None and _numbers(keras) < (3,):
        raise CannotServe(
            f"the model was saved by Keras {keras}, and MLServer's environment has Keras 3: "
            "export it with run.export(path, 'saved_model'), and serve that folder"
        )
    if keras is not None and _numbers(keras) > _numbers(pinned["keras"]):
        pinned["keras"] = keras
    return [f"{name}=={number}" for name, number in sorted(pinned.items())]


def keras_here() -> str | None:
    """The version of this environment's Keras."""
    with contextlib.suppress(PackageNotFoundError):
        return version("keras")
    return None


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"[0-9]+", text)[:3])


def _checked(found: Path) -> Path:
    try:
        subprocess.run(
            [
                found,
                "-c",
                "import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, ('mlserver', 'keras'))))",
            ],
            check=True,
            capture_output=True,
            timeout=60,
        )
    except (OSError, subprocess.SubprocessError):
        raise CannotServe(f"{SETTING} is {found}, which is no Python with MLServer and Keras: unset it") from None
    return found


def _make(folder: Path, wanted: list[str], tell: Callable[[str], None]) -> None:
    tell(f"making MLServer's environment, once: {', '.join(wanted)} (2 GB, some minutes)")
    began = time.monotonic()
    shutil.rmtree(folder, ignore_errors=True)
    constraints: list[str] = []
    if sys.version_info[:2] == FROZEN_ON:
        pins = folder.with_suffix(".txt")
        names = {each.partition("==")[0] for each in wanted}
        lines = CONSTRAINTS.read_text().splitlines()
        pins.write_text("\n".join(line for line in lines if line.partition("==")[0] not in names) + "\n")
        constraints = ["-c", str(pins)]
    try:
        _run([sys.executable, "-m", "venv", str(folder)], began, tell)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
        _run([*pip, "--progress-bar", "off", *constraints, *wanted], began, tell)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    (folder / ".ready").touch()
    tell(f"MLServer's environment is made: {time.monotonic() - began:.0f} s")


def _run(command: list[str], began: float, tell: Callable[[str], None]) -> None:
    """Run a command to its end; says what it downloads and installs, and what it fails with."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    assert process.stdout is not None
    last, rest, found, told_at = "", b"", 0, time.monotonic()
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
                *lines, rest = (rest + data).split(b"\n")
                for line in (each.decode(errors="replace").strip() for each in lines):
                    found += line.startswith("Collecting ")
                    last = line if line.startswith("ERROR") or not last.startswith("ERROR") else last
                    if line.startswith("Installing collected") or time.monotonic() - told_at > 10:
                        doing = "installing" if line.startswith("Installing") else "found"
                        tell(f"  {time.monotonic() - began:3.0f} s: {doing} {found} packages")
                        told_at = time.monotonic()
        if process.wait():
            raise CannotServe(f"MLServer's environment cannot be made: {last or process.returncode}")
    finally:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
