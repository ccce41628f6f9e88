"""The Livy that clusters/test_every_cluster.py runs on: the rig's, or any other one that the environment names.

DDL_TEST_LIVY_URL names it; DDL_TEST_LIVY_USER and DDL_TEST_LIVY_PASSWORD are for Basic authentication.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from livy import rig
from livy.client import Client


@dataclass(frozen=True)
class Endpoint:
    """Where a Livy answers. `rig` is its server where it is ours: of another one nothing but its answers is known."""

    url: str
    user: str = ""
    password: str = field(default="", repr=False)
    rig: rig.Livy | None = None

    def client(self) -> Client:
        credentials = (self.user, self.password) if self.user else None
        return Client(self.url, credentials, os.environ.get("REQUESTS_CA_BUNDLE"))


def named() -> Endpoint | None:
    """The Livy that the environment names; None where it names none."""
    url = os.environ.get("DDL_TEST_LIVY_URL", "").rstrip("/")
    if not url:
        return None
    given = (os.environ.get(f"DDL_TEST_LIVY_{what}", "") for what in ("USER", "PASSWORD"))
    return Endpoint(url, *given)
