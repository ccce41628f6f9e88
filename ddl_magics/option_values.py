"""Reading the value of an option from its text.

Each function returns the value, or raises a ValueError that says what is wanted: "--workers wants *a whole number above
0*, not 'four'". Where its message may not show the value, or there is more to say, it is a UsageError.
"""

from __future__ import annotations

import keyword
import re
from urllib.parse import urlsplit

from IPython.core.error import UsageError

from ddl_magics.runtime import compression, rule, rules

SEED_LIMIT = 2**31


def read_count(text: str) -> int:
    if not re.fullmatch(r"[0-9]+", text) or int(text) < 1:
        raise ValueError("a whole number above 0")
    return int(text)


def read_compression(text: str) -> str:
    compression.read(text)
    return text


def read_seed(text: str) -> int:
    if not re.fullmatch(r"[0-9]+", text) or int(text) >= SEED_LIMIT:
        raise ValueError(f"a whole number from 0 to {SEED_LIMIT - 1}")
    return int(text)


def read_identifier(text: str) -> str:
    if not text.isidentifier() or keyword.iskeyword(text):
        raise ValueError("a Python name (letters, digits, underscores)")
    return text


def read_seconds(text: str) -> float:
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(s|m|h|)", text)
    if not match or float(match[1]) <= 0:
        raise ValueError("seconds, or a time such as 90s, 10m, 2h")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


def read_validation(text: str) -> float | str:
    try:
        share = float(text)
    except ValueError:
        if text.isidentifier():
            return text
    else:
        if 0 < share < 1:
            return share
    raise ValueError("a share between 0 and 1, or the name of a DataFrame")


def read_uri(text: str) -> str:
    parts = urlsplit(text)
    if parts.password:
        # Not as a ValueError, whose message would show it.
        raise UsageError("a URI with a password in it would be stored with it: set it in Hadoop's configuration.")
    if not parts.netloc and not parts.path:
        raise ValueError("a folder, such as hdfs:///models/mnist")
    return text


def read_rule(text: str) -> str:
    try:
        rules.read(text)
    except rule.UnknownRule as error:
        raise UsageError(f"--rule: {error}") from None
    return text


def read_setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ValueError("key=value, such as spark.executor.memory=4g")
    return key.strip(), value.strip()
