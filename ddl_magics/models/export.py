"""A trained model as a folder that other programs read: MLflow, TensorFlow Serving, ONNX, Keras and LiteRT.

Whatever the format, `ddl_magics.json` in the folder says which run has made the model, with which versions, what it
takes and gives, and an example of it. A folder gets its name only when it is complete.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import shutil
import stat
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from ddl_magics._version import __version__
from ddl_magics.clusters import machine
from ddl_magics.clusters.scoring import DESCRIPTION
from ddl_magics.errors import CannotExport
from ddl_magics.models import conversion
from ddl_magics.models.signature import Example, Signature, Tensor, example_for, input_specs, signature_of
from ddl_magics.runtime.monitoring.sources import REFERENCE_FILE
from ddl_magics.store.files import reason_of, remove_left, synchronize_folder, synchronize_tree
from ddl_magics.wording import first_line, nearest, plain

#: Where the folder of a format has the model.
FILES = {
    "mlflow": "data/model.keras",
    "saved_model": "saved_model.pb",
    "onnx": "model.onnx",
    "keras": "model.keras",
    "litert": "model.tflite",
}
FORMATS = tuple(FILES)
_INSTALL = {
    "mlflow": "pip install mlflow-skinny",
    "onnx": "pip install onnx tf2onnx",
}
_VERSIONS = ("keras", "tensorflow", "tensorflow-cpu", "numpy")


@dataclass(frozen=True)
class Trained:
    """A trained model and where it comes from.

    Attributes:
        file: its `.keras` file.
        load: returns the Keras model; called only for formats that need it.
        about: what the description says of its run, as JSON.
        inputs: how columns become its inputs, as `ddl_magics.runtime.data.records.Inputs` says; None if unknown.
        reference: the file that says how its data was distributed, for `%ddl monitor`; None without it.
    """

    file: Path
    load: Callable[[], Any]
    run_description: Mapping[str, Any]
    inputs: Any = None
    reference: Path | None = None


def export(trained: Trained, path: str | Path, format: str = "keras", example: Example | None = None) -> Path:
    """Write a trained model to a new folder, and return its path.

    Args:
        trained: the model.
        path: the folder, which must not exist yet; its parents are made.
        format: one of `FORMATS`.
        example: rows as the model takes them, an array or a dict of arrays, for the description; zeros if left out.

    Raises:
        CannotExport: one line; a library is missing, the folder is there, or the model does not fit into the format.
    """
    target = local_path(path)
    with new_folder(target) as folder:
        write(trained, folder, format, example)
    return target


def write(trained: Trained, folder: Path, format: str, example: Example | None = None) -> None:
    """Write the files of an export into an empty folder; as `export`."""
    if format not in FORMATS:
        raise CannotExport(f"there is no format {format}; write {', '.join(FORMATS)}.{nearest(format, FORMATS)}")
    description: dict[str, Any] = {
        **trained.run_description,
        "format": format,
        "model": FILES[format],
        "inputs": trained.inputs,
        "versions": _versions(),
    }
    if format == "keras":  # needs no Keras here
        shutil.copyfile(trained.file, folder / FILES["keras"])
        if example is not None:
            description["example"] = example
    else:
        model = trained.load()
        example = example_for(model, trained.inputs) if example is None else example
        signature = signature_of(model, example, trained.inputs)
        description |= {"signature": asdict(signature), "example": example}
        with _explained(format):
            if format == "mlflow":
                _write_mlflow(model, folder, signature, example, description)
            else:
                path = folder if format == "saved_model" else folder / FILES[format]
                conversion.write(model, path, format, input_specs(model, example))
    if trained.reference is not None:
        shutil.copyfile(trained.reference, folder / REFERENCE_FILE)
    (folder / DESCRIPTION).write_text(json.dumps(_as_json(description), indent=1) + "\n", encoding="utf-8")


def local_path(path: str | Path) -> Path:
    """The path of a folder on this machine, which may be given as a file: URI."""
    uri = urlsplit(str(path))
    if uri.scheme in ("", "file"):
        return Path(uri.path if uri.scheme else path).expanduser()
    raise CannotExport(f"{path} is not on this machine: export to a folder here, and copy it there")


@contextlib.contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """An empty folder, which becomes `target` where the block ends well."""
    if target.exists():
        raise CannotExport(f"{target} is there already: name another folder, or remove it")
    unfinished = target.parent / f".{target.name}.{uuid.uuid4().hex}.part"
    remove_left(target.parent, re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{32}}\.part"))
    try:
        unfinished.mkdir(parents=True)
    except OSError as error:
        raise CannotExport(f"{target.parent} cannot be written to: {error.strerror}") from None
    try:
        yield unfinished
        synchronize_tree(unfinished)
        os.rename(unfinished, target)
        synchronize_folder(target.parent)
    except OSError as error:
        if target.exists():
            raise CannotExport(f"{target} is there already: name another folder, or remove it") from None
        raise CannotExport(f"{target} cannot be written: {reason_of(error)}") from None
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def copy(export_folder: Path, target: Path) -> None:
    """Copy an export, which may be a stranger's: folders and files, into a folder that is there.

    Raises:
        CannotExport: one line; it has a link, which may lead anywhere, or a pipe or device, or cannot be copied.
    """
    try:
        for path, folders, names in os.walk(export_folder):
            for name in [*folders, *names]:
                mode = os.lstat(entry := os.path.join(path, name)).st_mode
                if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
                    inside = plain(os.path.relpath(entry, export_folder))
                    raise CannotExport(f"{export_folder} has {inside}, which is a link or no file: remove it first")
        shutil.copytree(export_folder, target, dirs_exist_ok=True, symlinks=True)
    except OSError as error:
        raise CannotExport(f"{export_folder} cannot be copied: {reason_of(error)}") from None


def _write_mlflow(
    model: Any, folder: Path, signature: Signature, example: Example, description: Mapping[str, Any]
) -> None:
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # it would report each call to a host on the internet
    import mlflow.tensorflow
    from mlflow.models import ModelSignature
    from mlflow.types import Schema, TensorSpec

    inputs, outputs = (
        Schema([TensorSpec(np.dtype(tensor.dtype), _mlflow_shape(tensor), tensor.name or None) for tensor in tensors])
        for tensors in (signature.inputs, signature.outputs)
    )
    versions = description["versions"]
    folder.rmdir()  # MLflow makes it
    mlflow.tensorflow.save_model(
        model,
        path=str(folder),
        signature=ModelSignature(inputs, outputs),
        input_example=example,
        # Found out by MLflow itself, they are those of a Python process more.
        pip_requirements=[f"{name}=={versions[name]}" for name in _VERSIONS if name in versions],
        metadata={name: value for name, value in description.items() if name in ("run", "name", "ddl_magics")},
    )


def _mlflow_shape(tensor: Tensor) -> tuple[int, ...]:
    return (-1, *(-1 if size is None else size for size in tensor.shape))


@contextlib.contextmanager
def _explained(format: str) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        install = _INSTALL.get(format, "pip install tensorflow")
        raise CannotExport(f"the format {format} needs {error.name or error}: {install}") from None
    except (CannotExport, OSError):
        raise
    except Exception as error:  # of TensorFlow, MLflow and tf2onnx, of many kinds
        raise CannotExport(f"the model cannot be exported as {format}: {first_line(error)}") from error


def _versions() -> dict[str, str]:
    packages = {name: version for name in _VERSIONS if (version := machine.installed(name)) is not None}
    return {"python": platform.python_version(), "ddl_magics": __version__, **packages}


def _as_json(value: Any) -> Any:
    """What JSON can hold: lists for arrays, text for bytes, null for numbers that are not finite."""
    if isinstance(value, Mapping):
        return {name: _as_json(element) for name, element in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(part) for part in value]
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, str | int | None):
        return value
    return _as_json(np.asarray(value).tolist())
