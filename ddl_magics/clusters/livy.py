"""The Spark of a Livy session as a cluster, reached through Livy's REST interface alone."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from ddl_magics.clusters import livy_check, livy_remote, sending, sent_files, shipping
from ddl_magics.clusters.base import Launched, LockedOut, Namespace, NotStarted, Postponed, Ready, Refused, Unreachable
from ddl_magics.clusters.cluster import NOT_OURS, Cluster, launch_answer
from ddl_magics.clusters.livy_channel import Busy, Channel, StatementFailed, TooSlow
from ddl_magics.clusters.livy_description import DEAD
from ddl_magics.clusters.livy_http import with_retries
from ddl_magics.clusters.livy_session import LivySession
from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.wording import counted

#: How long a launch, a stop or the fetch of a block is repeated while the network fails.
RETRY_SECONDS = 300.0
#: How long the first request to a session may take: it sends and imports the runtime.
OPEN_SECONDS = 120.0
#: Details of a session (slots, settings) that are older than this are asked for again.
DETAILS_SECONDS = 60.0

#: How long calls may take that ask Spark: for the schema of files or a first row, or as long as their jobs.
_SECONDS = {"launch": 600.0, "predict": 600.0, "evaluate": math.inf, "write_tfrecord": math.inf}
#: Calls that are repeated after errors. The follower of a run repeats `poll`, and the run queue `busy`.
_RETRIED = frozenset(("launch", "stop", "fetch", "release", "upload", "place"))


class LivyCluster(Cluster):
    """The `Cluster` of one Livy session; another session is another cluster."""

    files_bytes: int | None = 32 << 20

    def __init__(self, session: LivySession, runtime: shipping.RuntimePackage | None = None) -> None:
        self.session = session
        self.channel = Channel(session.http, session.id, runtime or shipping.pack(), session.statement_kind)
        self.name = f"Livy session {session.id} at {session.http.host}"
        #: Whether its runs continue when this kernel has ended.
        self.outlives_kernel = session.detached
        self._details: Mapping[str, Any] | None = None
        self._asked_at = 0.0
        self._asking = threading.Lock()

    @property
    def driver_address(self) -> Mapping[str, Any]:
        session = self.session
        return {
            "livy": session.http.url,
            "session": session.id,
            "name": session.name,
            "detached": session.detached,
            "runtime": self.channel.module,
        }

    def alive(self) -> bool:
        """Whether the session is alive; True also where Livy does not answer."""
        try:
            return self.channel.state() not in DEAD
        except ProcessLookupError:
            return False
        except (ConnectionError, ValueError):
            return True

    def status(self) -> Ready | NotStarted | Unreachable:
        try:
            details = self.details()
            busy = int(self._call("busy", {})["busy"])
        except ProcessLookupError as error:
            return Unreachable(str(error), session_ended=True)
        except Busy as error:
            return Unreachable(str(error), busy=True)
        except (ConnectionError, TimeoutError) as error:
            return Unreachable(str(error), locked_out=isinstance(error, LockedOut))
        slots = int(details["slots"])
        return Ready(slots, max(0, slots - busy), details)

    def details(self, fresh: bool = False) -> Mapping[str, Any]:
        """The reply of `driver.api.info`; up to `DETAILS_SECONDS` old, or older while the session's Python is busy.

        Args:
            fresh: ask now.

        Raises:
            ConnectionError, TimeoutError, ProcessLookupError: there is no answer.
        """
        with self._asking:
            if fresh or self._details is None or time.monotonic() > self._asked_at + DETAILS_SECONDS:
                try:
                    reply = self._call("info", {})
                except (Busy, TooSlow):
                    if self._details is None:
                        raise
                else:
                    if "slots" not in reply:
                        raise StatementFailed(str(reply.get("error", {}).get("message", "the driver has no Spark")))
                    self._details = reply
                self._asked_at = time.monotonic()
            return self._details

    def findings(self) -> Iterable[tuple[str, str]]:
        return livy_check.lines(self.name, self.session, self.channel, self.details)

    def runs(self) -> Sequence[Mapping[str, Any]]:
        return list(self._call("runs", {})["runs"])

    def check(self, spec: RunSpec, namespace: Namespace) -> Refused | None:
        if spec.conf:
            return Refused(
                "usage",
                f"--conf {next(iter(spec.conf))} comes too late: the Livy session is running already. Set it with "
                "%%configure -f, or in session_configs of sparkmagic's config.json.",
            )
        if spec.release not in (None, "no") and not self.session.created_here:
            return Refused("usage", NOT_OURS)
        try:
            sending.values(spec, namespace)
            sent_files.check(spec)
        except (sending.CannotSend, sent_files.CannotSendFiles) as error:
            return Refused("usage", str(error))
        if self._details is None:
            try:
                self.details()
            except Busy:
                return None  # the launch waits as well
            except (ConnectionError, TimeoutError, ProcessLookupError) as error:
                return Refused("spark", f"{self.name} cannot be used: {error}")
        slots = int((self._details or {}).get("slots", 0))
        if spec.min_slots > slots:
            return Refused(
                "slots",
                f"{spec.min_slots} workers do not fit into the {counted(slots, 'slot')} of {self.name}: ask for fewer "
                f"with --workers {max(1, slots)}, or for a session with more executors or cores.",
            )
        return None

    def launch(self, spec: RunSpec, namespace: Namespace) -> Launched | Postponed | Refused:
        try:
            self.channel.open(OPEN_SECONDS)
            for value in sending.values(spec, namespace):
                code = livy_remote.assign(value.name, value.encoding, value.text)
                with_retries(partial(self.channel.statement, code), RETRY_SECONDS)
            sent_files.upload(spec, self._call)
            # The notebook's folder is not on the cluster, and one of the same path would be another.
            return launch_answer(self._call("launch", {**spec.to_record(), "folder": None}, namespace))
        except (sending.CannotSend, sent_files.CannotSendFiles) as error:
            return Refused("usage", str(error))
        except Busy:
            return Postponed(f"waits for {self.name}, which executes another cell")
        except (ConnectionError, TimeoutError, ProcessLookupError) as error:
            if isinstance(error, TooSlow):
                self.stop(spec.run, ", as the notebook could not wait for its start")  # it may start yet
            return Refused("spark", f"{self.name} did not take the run: {error}")

    def _is_ours(self) -> bool:
        return self.session.created_here

    def _end_session(self) -> str:
        self.session.terminate()
        return f"{self.name} has ended; the next run starts a new one"

    def shutdown(self) -> None:
        """End the session if this kernel created it for itself."""
        self.session.close()

    def _call(self, function: str, request: Mapping[str, Any], namespace: Namespace | None = None) -> dict[str, Any]:
        self.channel.open(OPEN_SECONDS)
        argument, with_names = json.dumps(request), namespace is not None

        def ask() -> dict[str, Any]:
            return self.channel.call(function, argument, namespace=with_names, seconds=_SECONDS.get(function))

        try:
            return with_retries(ask, RETRY_SECONDS) if function in _RETRIED else ask()
        except (Busy, TooSlow):
            if function != "poll":
                raise
            # Without a side channel a poll waits for the cell that the session executes. The run continues meanwhile.
            return {"events": [], "last": request["after"], "more": False, "state": ""}
