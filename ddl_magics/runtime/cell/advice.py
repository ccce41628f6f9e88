"""What to do about errors of a cell whose own words name neither the mistake nor the way out."""

from __future__ import annotations

import re
import sys
from typing import Callable

from ..run_spec import RunSpec
from .text_labels import HOW

#: What Keras and TensorFlow say of text, in arrays, in pandas' columns and in datasets.
_TEXT = re.compile(r"Invalid dtype: (str\d*|object|category)\b|Cast string to \w+ is not supported")


def of(error: BaseException, spec: RunSpec) -> str:
    """A sentence for the end of the error's message; empty without any."""
    return next(filter(None, (advise(error, spec) for advise in _ADVICE)), "")


def _of_import(error: BaseException, spec: RunSpec) -> str:
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return ""
    package = error.name.partition(".")[0]
    if package in sys.modules:  # the package is there, and not this module of it
        return ""
    return (
        "The workers' Python is %s, and has no %s: install it there, or bring a module of your own with --files %s.py."
        % (sys.executable, package, package)
    )


def _of_missing_label(error: BaseException, spec: RunSpec) -> str:
    if spec.data is None or spec.label is not None or "None values not supported" not in str(error):
        return ""
    return "dataset has no labels, as --label COLUMN is missing: add it, or give the model a loss of its own."


def _of_text(error: BaseException, spec: RunSpec) -> str:
    if not _TEXT.search(str(error)):
        return ""
    return "Labels or features are text, and a model wants numbers: " + (HOW % "labels") + "."


_ADVICE: tuple[Callable[[BaseException, RunSpec], str], ...] = (_of_import, _of_missing_label, _of_text)
