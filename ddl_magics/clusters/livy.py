"""Runs on the Spark of a Livy session, over its REST interface alone."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from typing import Any

from ddl_magics.clusters import livy_remote, sending, shipping
from ddl_magics.clusters.base import DriverCluster, Launched, NotStarted, Ready, Refused, Unreachable, refusal
from ddl_magics.clusters.livy_channel import DEAD, Busy, Channel, StatementFailed
from ddl_magics.clusters.livy_http import patiently
from ddl_magics.clusters.livy_session import LivySession
from ddl_magics.spec import RunSpec
from ddl_magics.wording import counted

#: How long a launch, a stop and the fetching of a part go on through errors of the network.
PATIENCE_SECONDS = 300.0
#: How long the first request to a session may take: the runtime is sent and imported.
OPEN_SECONDS = 120.0
#: What a session is (its slots, its settings) is asked again after this time.
DETAILS_SECONDS = 60.0

#: Calls that go on through errors; `poll` is repeated by who follows the run, and `busy` by who waits for a turn.
_PATIENT = frozenset(("launch", "stop", "fetch", "release"))


class LivyCluster(DriverCluster):
    """The `Cluster` of one Livy session, bound to it for good: another session is another cluster."""

    poll_seconds = 1.0

    def __init__(self, session: LivySession, shipment: shipping.Shipment | None = None) -> None:
        self.session = session
        self.channel = Channel(session.http, session.number, shipment or shipping.pack())
        self.name = f"Livy session {session.number} at {session.http.host}"
        #: Whether its runs go on when this kernel has ended.
        self.outlives_kernel = session.detached
        self._details: Mapping[str, Any] | None = None
        self._asked_at = 0.0
        self._asking = threading.Lock()

    @property
    def place(self) -> Mapping[str, Any]:
        session = self.session
        return {
            "livy": session.http.url,
            "session": session.number,
            "name": session.name,
            "detached": session.detached,
            "runtime": self.channel.module,
        }

    def alive(self) -> bool:
        """Whether the session is there, as far as Livy can be asked."""
        try:
            return self.channel.state() not in DEAD
        except ProcessLookupError:
            return False
        except ConnectionError:
            return True

    def status(self) -> Ready | NotStarted | Unreachable:
        try:
            details = self.details()
            busy = int(self._call("busy", "{}")["busy"])
        except ProcessLookupError as error:
            return Unreachable(str(error), gone=True)
        except (ConnectionError, TimeoutError) as error:
            return Unreachable(str(error))
        slots = int(details["slots"])
        return Ready(slots, max(0, slots - busy), details)

    def details(self, fresh: bool = False) -> Mapping[str, Any]:
        """`driver.info` of the session, some time old unless `fresh` is asked for, or where its Python is busy."""
        with self._asking:
            if fresh or self._details is None or time.monotonic() > self._asked_at + DETAILS_SECONDS:
                try:
                    reply = self._call("info", "{}")
                except Busy:
                    if self._details is None:
                        raise
                else:
                    if "slots" not in reply:
                        raise StatementFailed(str(reply.get("error", {}).get("message", "the driver has no Spark")))
                    self._details = reply
                self._asked_at = time.monotonic()
            return self._details

    def runs(self) -> list[dict[str, Any]]:
        """The runs that the session's driver holds, oldest first: {"run", "state", "spec"}.

        Raises:
            ConnectionError, TimeoutError, ProcessLookupError: it cannot be asked.
        """
        return list(self._call("runs", "{}")["runs"])

    def check(self, spec: RunSpec, namespace: Mapping[str, Any]) -> Refused | None:
        if spec.conf:
            return Refused(
                "usage",
                f"--conf {next(iter(spec.conf))} comes too late: the Livy session runs already. Set it with "
                "%%configure -f, or in session_configs of sparkmagic's config.json.",
            )
        try:
            sending.values(spec, namespace)
        except sending.CannotSend as error:
            return Refused("usage", str(error))
        if self._details is None:
            try:
                self.details()
            except (ConnectionError, TimeoutError, ProcessLookupError) as error:
                return Refused("spark", f"{self.name} cannot be used: {error}")
        slots = int((self._details or {}).get("slots", 0))
        if spec.workers > slots:
            return Refused(
                "slots",
                f"{spec.workers} workers do not fit into the {counted(slots, 'slot')} of {self.name}: ask for fewer "
                f"with --workers {max(1, slots)}, or for a session with more executors or cores.",
            )
        return None

    def launch(self, spec: RunSpec, namespace: Mapping[str, Any]) -> Launched | Refused:
        try:
            self.channel.open(OPEN_SECONDS)
            for sent in sending.values(spec, namespace):
                code = livy_remote.assign(sent.name, sent.encoding, sent.text)
                patiently(lambda code=code: self.channel.statement(code), PATIENCE_SECONDS)  # type: ignore[misc]
            return refusal(self._call("launch", json.dumps(spec.to_record())))
        except sending.CannotSend as error:
            return Refused("usage", str(error))
        except (ConnectionError, TimeoutError, ProcessLookupError) as error:
            return Refused("spark", f"{self.name} did not take the run: {error}")

    def shutdown(self) -> None:
        """End the session if this kernel made it for itself."""
        self.session.close()

    def _call(self, function: str, *arguments: Any) -> dict[str, Any]:
        self.channel.open(OPEN_SECONDS)

        def ask() -> dict[str, Any]:
            return self.channel.call(function, *arguments, namespace=function == "launch")

        try:
            return patiently(ask, PATIENCE_SECONDS) if function in _PATIENT else ask()
        except Busy:
            if function != "poll":
                raise
            # Without a side channel a poll waits for the cell that the session works on. The run goes on meanwhile.
            return {"events": [], "last": json.loads(arguments[0])["after"], "more": False, "state": ""}
