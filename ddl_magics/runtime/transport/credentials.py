"""What the processes of a run share: its name, its secret, and the certificate of its encrypted connections."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Mapping


@dataclass(frozen=True)
class Credentials:
    """run: its name. secret: bytes that both sides of a connection prove to know.

    certificate: PEM text of a private key and its certificate, with which connections are encrypted; None if not.
    """

    run: str
    secret: bytes = field(repr=False)
    certificate: str | None = field(default=None, repr=False)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "secret": self.secret.hex()}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Credentials:
        return cls(value["run"], bytes.fromhex(value["secret"]), value["certificate"])
