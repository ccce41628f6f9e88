"""Where ranks reach the driver, and whether what crosses the network between them is encrypted."""

from __future__ import annotations

import secrets
import socket
from typing import TYPE_CHECKING, Iterable

from ..run_spec import RunSpec
from ..spark.settings import conf_of
from ..transport import wire
from . import encryption
from .journal import Journal

if TYPE_CHECKING:
    from pyspark import SparkContext


class DriverNetwork:
    """The driver's end of a run's connections."""

    def __init__(self, sc: SparkContext, spec: RunSpec, journal: Journal) -> None:
        self._sc, self._spec, self._journal = sc, spec, journal
        self._encrypted = self._hosts_noted = False

    @property
    def host(self) -> str:
        """Where executors reach the driver."""
        return socket.gethostbyname(conf_of(self._sc).get("spark.driver.host") or "127.0.0.1")

    @property
    def bind_host(self) -> str:
        """Where the driver listens."""
        address = conf_of(self._sc).get("spark.driver.bindAddress")
        return socket.gethostbyname(address) if address else self.host

    def new_credentials(self) -> wire.Credentials:
        """The run's secret and certificate. ValueError for a strategy whose connections cannot be encrypted."""
        certificate = encryption.certificate(self._sc, self._spec)
        self._encrypted = certificate is not None
        if certificate is not None and encryption.keys_are_exposed(self._sc):
            self._journal.notice("warning", encryption.KEYS_IN_THE_CLEAR)
        return wire.Credentials(self._spec.run, secrets.token_bytes(32), certificate)

    def note_hosts(self, hosts: Iterable[str]) -> None:
        """The workers are on these hosts: warn, once, if what crosses the network is not encrypted as Spark's is."""
        if not self._encrypted and not self._hosts_noted:
            self._hosts_noted = True
            warning = encryption.clear_text_warning(self._sc, {*hosts, self.host})
            if warning is not None:
                self._journal.notice("warning", warning)
