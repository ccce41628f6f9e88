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
#: Names that end so: KAGGLE_KEY, DB_PASS, PGPASS, spark.ssl.ui.keyPass; not "sort.key" or "bypass".
_NAME = re.compile(r"[A-Z0-9]_KEY$|(?<!by)(?<!com)(?<!sur)(?<!tres)(?i:pass)$")
#: The same, followed by a value, and pairs of user and password: DB_PASS=x, auth=("me", "x").
_ASSIGNED = re.compile(
    r"([A-Z0-9]_KEY|(?<!by)(?<!com)(?<!sur)(?<!tres)(?i:pass))[\"']?\]?\s*[=:](?!=)\s*\S|\bauth\s*=\s*\("
    r"|[\"']key[\"']\s*:\s*[\"'][0-9a-f]{32}[\"']"
)
#: Keys of well-known services, by their prefix: AWS, Google, GitHub, Hugging Face, OpenAI, Slack, GitLab, JWT.
KEY = re.compile(
    r"\b(A[KS]IA[0-9A-Z]{16}|AIza[\w-]{35}|gh[pousr]_\w{20,}|github_pat_\w{20,}|hf_\w{20,}|sk-[\w-]{20,}"
    r"|xox[abprs]-[\w-]{10,}|glpat-[\w-]{16,}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*)"
)
#: A password may have slashes; a number before a slash is a port.
_PASSWORD = re.compile(r"://[^/@\s]*:[^/@\s]*@|://[^/@\s:]*:(?!\d*/)[^@\s]*@")


def is_secret(text: str) -> bool:
    """Whether the text looks as if it were or contained a secret."""
    return any(pattern.search(text) for pattern in (_SECRET, _ASSIGNED, KEY)) or has_password(text)


def has_password(text: str) -> bool:
    """Whether the text contains a URI with a password."""
    return _PASSWORD.search(text) is not None


def masked(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings, with `MASK` in place of each value that is a secret or that contains one."""
    return {key: MASK if _names_secret(key) or is_secret(str(value)) else value for key, value in settings.items()}


def _names_secret(key: str) -> bool:
    return is_secret(key) or _NAME.search(key) is not None
