"""Which model files this user's runs have trained: of no others is the code of Lambda layers loaded.

A run that this user launches leaves lines in the file `trained-models` of Jupyter's data folder: one for the run, and
one for each model with the SHA-256 that its driver reports. A line ends in a MAC under a key that only this user can
read, so that neither an archive, nor a file beside it, nor a copied line vouches for other bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jupyter_core.paths import jupyter_data_dir

from ddl_magics.errors import UnsafeKey
from ddl_magics.runtime import events as ev
from ddl_magics.runtime.lambda_layers import functions_in
from ddl_magics.store.files import make_private

_KEY_BYTES = 32


def sign_run(run: str) -> None:
    """This user launches the run. Raises OSError where that cannot be written."""
    _sign(f"run {run} launched")


def sign_models(run: str, events: Iterable[ev.RawEvent]) -> None:
    """The models of a run are this user's, if the run is. Raises OSError where that cannot be written."""
    events = list(events)
    versions = next((worker.versions for worker in ev.select(ev.Worker, events) if worker.versions), {})
    python = ".".join(versions.get("python", "").split(".")[:2])
    models = [artifact.sha256 for artifact in ev.select(ev.Artifact, events) if artifact.name.endswith(".keras")]
    if models and python and _signed(f"run {run} "):
        for sha256 in models:
            _sign(f"model {sha256} {python}")


def python_of(model: bytes) -> str | None:
    """The version of Python, as "3.11", whose bytecode a trusted `.keras` file may have; None for any other file."""
    codes, functions = functions_in(model)
    if not codes and not functions:  # there is nothing to trust
        return None
    return _signed(f"model {hashlib.sha256(model).hexdigest()} ")


def trust(file: Path) -> dict[str, Any] | None:
    """What the driver gets to know of a trusted file: {"sha256", "python"}; None for any other file.

    Raises OSError where the file cannot be read.
    """
    if functions_in(str(file)) == ([], []):
        return None
    content = file.read_bytes()
    python = python_of(content)
    return None if python is None else {"sha256": hashlib.sha256(content).hexdigest(), "python": python}


def _folder() -> Path:
    return Path(jupyter_data_dir()) / "ddl_magics"


def _sign(text: str) -> None:
    key = _key(create=True)
    line = f"{text} {_mac(key, text)}\n".encode()
    opened = os.open(_folder() / "trained-models", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with open(opened, "wb", buffering=0) as file:
        file.write(line)  # at once: other kernels append, too


def _signed(words: str) -> str | None:
    """What follows these words in a line whose MAC is right; None without such a line."""
    with contextlib.suppress(FileNotFoundError):
        key, lines = _key(), (_folder() / "trained-models").read_text(encoding="ascii", errors="replace").splitlines()
        for text, _, mac in (line.rpartition(" ") for line in lines if line.startswith(words)):
            if hmac.compare_digest(mac.encode(), _mac(key, text).encode()):
                return text[len(words) :]
    return None


def _mac(key: bytes, text: str) -> str:
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _key(create: bool = False) -> bytes:
    """This user's key.

    Raises:
        UnsafeKey: others may know it, or have put it there.
        OSError: there is none.
    """
    path = _folder() / "trained-models.key"
    if create and not path.exists():
        make_private(path.parent)
        opened, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # which only this user may read
        try:
            with open(opened, "wb") as file:
                file.write(secrets.token_bytes(_KEY_BYTES))
            with contextlib.suppress(FileExistsError):  # of another kernel, just now
                os.link(temporary, path)
        finally:
            os.unlink(temporary)
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
        status = os.fstat(file.fileno())
        if status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise UnsafeKey(f"{path} is not this user's alone: remove it, and train again")
        key = file.read()
    if len(key) != _KEY_BYTES:
        raise UnsafeKey(f"{path} is damaged: remove it, and train again")
    return key
