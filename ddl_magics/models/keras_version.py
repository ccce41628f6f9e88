"""Which Keras has saved a model: text of a file that may be a stranger's, checked before anything is made of it.

The version becomes an argument of pip, which takes `9/../evil.zip` for a package on this disk and executes it, and a
line of YAML.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ddl_magics.errors import CannotServe
from ddl_magics.runtime.lambda_layers import saved_metadata

#: What precedes a local version: of "3.4.1+nv24", which no index has, it is all that matters.
_VERSION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9}){1,3}(?:(?:a|b|rc|\.dev)[0-9]{1,16})?)(?:\+[A-Za-z0-9.]{1,32})?")


def saved_by(file: Path) -> str | None:
    """The version of Keras that saved a `.keras` file; None where the file does not say it.

    Raises:
        CannotServe: what the file says is no version.
    """
    metadata = saved_metadata(str(file))
    return checked(metadata["keras_version"]) if "keras_version" in metadata else None


def checked(version: Any) -> str:
    """A version of Keras without its local part, as text of digits, dots and a pre-release.

    Raises:
        CannotServe: it is no such text.
    """
    match = _VERSION.fullmatch(version) if isinstance(version, str) else None
    if match is None:
        raise CannotServe(
            "the model says that it was saved by a version of Keras that cannot exist: its file is damaged, or made to "
            "do harm; export the model again"
        )
    return match[1]
