"""What looks like a secret, and the mask that stands for one: on the cluster too, before anything is reported."""

from __future__ import annotations

import re
from typing import Mapping

MASK = "***"

#: Spark's own `spark.redaction.regex`, and what Azure calls its keys and signatures.
_SECRET = re.compile(
    r"(?i)secret|passw|pwd|passphrase|token|credential|signature|(access|account|api|private|shared)[._-]?key|[.]sas[.]"
    r"|[?&;]sig=|authorization|bearer "
)
#: A password may have slashes; a number before a slash is a port.
_PASSWORD = re.compile(r"://[^/@\s]*:[^/@\s]*@|://[^/@\s:]*:(?!\d*/)[^@\s]*@")


def is_secret(text: str) -> bool:
    """Whether the text looks as if it were or contained a secret."""
    return _SECRET.search(text) is not None or has_password(text)


def has_password(text: str) -> bool:
    """Whether the text contains a URI with a password."""
    return _PASSWORD.search(text) is not None


def masked(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings, with `MASK` in place of each value that is a secret or that contains one."""
    return {key: MASK if is_secret(key) or is_secret(str(value)) else value for key, value in settings.items()}
