"""Where a rank's model files go. A rank works in a scratch folder of its own, so relative paths never meet.

An absolute path would be written by all ranks of a host at once: ranks other than the chief write, and later read, a
file of the same name below their scratch folder. URIs are written by the chief alone.
"""

import functools
import os

import tensorflow as tf


def install(context, keras):
    """Redirect the saving and loading of the package `keras` on ranks other than the chief."""
    if context.is_chief:
        return
    redirect = _Redirect(context.scratch)
    for owner, name in ((keras.Model, "save"), (keras.Model, "save_weights")):
        redirect.writing(owner, name, 1)
    redirect.reading(keras.Model, "load_weights", 1)
    also = tf.keras if tf.keras.Model is keras.Model else keras  # the same functions in modules of its own
    modules = [getattr(package, name, None) for package in (keras, also) for name in ("models", "saving")]
    for owner in {id(module): module for module in modules if module}.values():
        redirect.writing(owner, "save_model", 1)
        redirect.reading(owner, "load_model", 0)


def is_uri(path):
    return "://" in path


class _Redirect:
    def __init__(self, scratch):
        self._scratch = os.path.join(scratch, "")
        self._folder = os.path.join(scratch, "absolute")

    def _own(self, path):
        return os.path.join(self._folder, os.path.abspath(path).lstrip(os.sep))

    def writing(self, owner, name, position):
        def change(path):
            if is_uri(path):
                return None
            if os.path.isabs(path) and not path.startswith(self._scratch):
                path = self._own(path)
                os.makedirs(os.path.dirname(path), exist_ok=True)
            return path

        self._wrap(owner, name, position, change)

    def reading(self, owner, name, position):
        def change(path):
            own = self._own(path)
            return own if os.path.isabs(path) and not is_uri(path) and os.path.exists(own) else path

        self._wrap(owner, name, position, change)

    @staticmethod
    def _wrap(owner, name, position, change):
        original = getattr(owner, name)

        @functools.wraps(original)
        def redirected(*args, **kwargs):
            if len(args) > position:
                path = change(os.fspath(args[position]))
                args = args[:position] + (path,) + args[position + 1 :]
            else:
                path = kwargs["filepath"] = change(os.fspath(kwargs["filepath"]))
            return None if path is None else original(*args, **kwargs)

        setattr(owner, name, redirected)
