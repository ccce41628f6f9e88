"""Where a rank's model files go. A rank works in a folder of its own, so relative paths never collide.

All ranks of a host would write an absolute path at once: ranks other than the chief write, and later read, a file of
the same name in their mirror. The chief alone writes URIs.
"""

from __future__ import annotations

import os
from types import ModuleType
from typing import Any, Callable

import tensorflow as tf

from ..files.paths import Paths
from ..trial.patching import wrap


def install(paths: Paths, keras: ModuleType) -> None:
    """Redirect what the package `keras` saves and loads, and the folders of its callbacks."""
    redirect = _Redirect(paths)
    redirect.folder(keras.callbacks.TensorBoard, "log_dir")
    redirect.folder(keras.callbacks.BackupAndRestore, "backup_dir")
    for owner, name in ((keras.Model, "save"), (keras.Model, "save_weights")):
        redirect.writing(owner, name, 1)
    redirect.reading(keras.Model, "load_weights", 1)
    also = tf.keras if tf.keras.Model is keras.Model else keras  # the same functions in modules of its own
    modules = [getattr(package, name, None) for package in (keras, also) for name in ("models", "saving")]
    for owner in {id(module): module for module in modules if module}.values():
        redirect.writing(owner, "save_model", 1)
        redirect.reading(owner, "load_model", 0)


def is_uri(path: str) -> bool:
    return "://" in path


class _Redirect:
    def __init__(self, paths: Paths) -> None:
        self._paths = paths

    def writing(self, owner: Any, name: str, position: int) -> None:
        def change(path: str) -> str | None:
            if not is_uri(path):
                return self._paths.apart(path)
            return path if self._paths.is_chief() else None

        self._wrap(owner, name, position, change)

    def reading(self, owner: Any, name: str, position: int) -> None:
        self._wrap(owner, name, position, lambda path: path if is_uri(path) else self._paths.read_apart(path))

    def folder(self, owner: Any, parameter: str) -> None:
        """The folder, or file, that a callback is made with."""

        def init(original: Callable[..., None], callback: Any, *args: Any, **kwargs: Any) -> None:
            path = args[0] if args else kwargs.get(parameter)
            if isinstance(path, (str, os.PathLike)) and not is_uri(os.fspath(path)):
                path = self._paths.apart(os.fspath(path))
                args, kwargs = ((path, *args[1:]), kwargs) if args else (args, dict(kwargs, **{parameter: path}))
            original(callback, *args, **kwargs)

        wrap(owner, "__init__", init)

    @staticmethod
    def _wrap(owner: Any, name: str, position: int, change: Callable[[str], str | None]) -> None:
        def redirected(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            if len(args) > position:
                path = change(os.fspath(args[position]))
                args = args[:position] + (path,) + args[position + 1 :]
            else:
                path = kwargs["filepath"] = change(os.fspath(kwargs["filepath"]))
            return None if path is None else original(*args, **kwargs)

        wrap(owner, name, redirected)
