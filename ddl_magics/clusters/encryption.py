"""What `%ddl check` says of the encryption of a run's connections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def finding(details: Mapping[str, Any]) -> str:
    """The line for a session with these details, as `driver.api.info` gives them."""
    if str(details.get("master", "")).startswith("local"):
        return "not needed: a run's connections stay on this machine"
    by_spark = details.get("encrypted_by") or ()
    if by_spark:
        return f"a run's connections are encrypted, as Spark encrypts ({', '.join(by_spark)}); not with --encrypt no"
    return "none, neither of Spark's own connections nor of a run's: --encrypt yes encrypts a run's"
