"""Masks secrets in Spark's settings, other options and sources wherever these are stored or displayed."""

from __future__ import annotations

import re

from ddl_magics.runtime.redaction import MASK as MASK
from ddl_magics.runtime.redaction import has_password as has_password
from ddl_magics.runtime.redaction import is_secret as is_secret
from ddl_magics.runtime.redaction import masked as masked
from ddl_magics.wording import plain, quoted

#: Keys of well-known services, recognized by their prefix: AWS, GitHub, Hugging Face, Slack, JWT.
_KEY = re.compile(
    r"\b(AKIA[0-9A-Z]{16}|gh[pousr]_\w{20,}|github_pat_\w{20,}|hf_\w{20,}|sk-[\w-]{20,}|xox[abprs]-[\w-]{10,}"
    r"|glpat-[\w-]{16,}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*)"
)
_KEY_BLOCK = re.compile(r"(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)
#: A string, and what follows the first = or : of a line without one.
_STRING = re.compile(r"""(?P<quote>["'])(?:\\.|(?!(?P=quote)).)*(?P=quote)?""")
_ASSIGNED = re.compile(r"([=:]\s*)\S.*")
_USER = re.compile(r"://[^/@\s]+@")


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
    return "".join(_masked_line(_KEY.sub(MASK, line)) for line in text.splitlines(keepends=True))


def _masked_line(line: str) -> str:
    if not is_secret(line):
        return line
    by_string, strings = _STRING.subn(rf'"{MASK}"', line)
    return by_string if strings else _ASSIGNED.sub(rf"\1{MASK}", line)


def without_user(uri: str) -> str:
    """A URI without user and password."""
    return _USER.sub("://", uri)
