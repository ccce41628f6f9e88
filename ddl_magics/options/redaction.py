"""Masks secrets in Spark's settings, other options and sources wherever these are stored or displayed."""

from __future__ import annotations

import re

from ddl_magics.runtime.redaction import KEY
from ddl_magics.runtime.redaction import MASK as MASK
from ddl_magics.runtime.redaction import has_password as has_password
from ddl_magics.runtime.redaction import is_secret as is_secret
from ddl_magics.runtime.redaction import masked as masked
from ddl_magics.wording import plain, quoted

_KEY_BLOCK = re.compile(r"(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)
#: A string, and what follows the first = or : of a line without one.
_STRING = re.compile(r"""(?P<quote>["'])(?:\\.|(?!(?P=quote)).)*(?P=quote)?""")
_ASSIGNED = re.compile(r"([=:]\s*)\S.*")
#: The value of an option on a command line: --token x.
_OPTION = re.compile(r"(--?[\w-]*(?:token|passw(?:or)?d|pass|secret|key)(?:\s+|=))[^\s-]\S*", re.IGNORECASE)
#: A password may have slashes and @; a number before a slash is a port.
_USER = re.compile(r"://(?:[^/\s]*@|[^/@\s:]*:(?!\d*/)\S*@)")


def safely_quoted(text: str) -> str:
    """User input in a message: `quoted`, or `MASK` for a secret."""
    return MASK if has_password(text) or ("=" in text and is_secret(text)) else quoted(text)


def as_word(text: str) -> str:
    """User input in a message without quotes, or `MASK` for a secret."""
    return MASK if has_password(text) or ("=" in text and is_secret(text)) else plain(text)


def masked_source(text: str) -> str:
    """A source, or a difference of sources, with `MASK` for what may be a secret.

    In a line that may have one, all strings are masked; without a string, all that follows the first = or :.
    """
    text = _KEY_BLOCK.sub(rf"\1{MASK}\2", text)
    return "".join(_masked_line(KEY.sub(MASK, line)) for line in text.splitlines(keepends=True))


def _masked_line(line: str) -> str:
    if not is_secret(line):
        return line
    line = _OPTION.sub(rf"\1{MASK}", line)
    by_string, strings = _STRING.subn(rf'"{MASK}"', line)
    return by_string if strings else _ASSIGNED.sub(rf"\1{MASK}", line)


def without_user(uri: str) -> str:
    """A URI without user and password."""
    return _USER.sub("://", uri)
