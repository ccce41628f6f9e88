"""Runs on the Spark of this notebook's own process: the user's session, or one made for the workers.

The user's session is never stopped or reconfigured. The driver is called directly, in the form in which it would be
shipped to a cluster.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from ddl_magics.clusters import data_names, local_spark, shipping
from ddl_magics.clusters.base import DriverCluster, Launched, NotStarted, Ready, Refused, Unreachable, refusal
from ddl_magics.spec import RunSpec
from ddl_magics.wording import counted

#: How long Spark takes to start, for the message that says so.
START_SECONDS = 10.0
#: How long the end of the kernel waits for a Spark of ours to end.
END_SECONDS = 1.4


class EmbeddedCluster(DriverCluster):
    """The `Cluster` of a kernel; `namespace` gives the notebook's variables, where its own session may be."""

    name = "this machine"
    poll_seconds = 0.25

    def __init__(
        self,
        namespace: Callable[[], Mapping[str, Any]] = dict,
        load_driver: Callable[[], ModuleType] = shipping.load_driver,
    ) -> None:
        self._namespace = namespace
        self._load_driver = load_driver
        self._driver: ModuleType | None = None
        self._starting = threading.Lock()
        self._made: Any = None  # the session that is ours

    def status(self) -> Ready | NotStarted | Unreachable:
        if self._session() is None:
            return NotStarted(f"an embedded Spark is started ({START_SECONDS:.0f} s or so)", START_SECONDS)
        try:
            details = self._call("info", "{}")
        except Exception as error:  # py4j raises kinds of its own, and without pyspark they have no name
            return Unreachable(f"Spark does not answer ({type(error).__name__}: {error})")
        return Ready(int(details["slots"]), int(details["free"]), details)

    def check(self, spec: RunSpec, namespace: Mapping[str, Any]) -> Refused | None:
        missing = next((name for name in spec.send or () if name not in namespace), None)
        if missing is not None:
            return Refused("usage", f"--send {missing}: this notebook has no variable {missing}.")
        problem = data_names.problem(spec, namespace)
        if problem:
            return Refused("usage", problem)
        session = self._session()
        if session is None and spec.gpus and "spark.master" not in spec.conf:
            return Refused(
                "usage",
                "--gpus is for clusters whose Spark manages GPUs, and the embedded Spark does not: leave it out, and a "
                "worker uses the GPUs that it finds.",
            )
        return None if session is None else self._check_session(spec, session)

    def _check_session(self, spec: RunSpec, session: Any) -> Refused | None:
        settings = local_spark.session_settings(session)
        for key, value in spec.conf.items():
            if settings.get(key) != value:
                owner = "was made by an earlier cell" if session is self._made else "is yours"
                return Refused(
                    "usage",
                    f"--conf {key} comes too late: the Spark session {owner} and stays as it is; leave --conf out, "
                    "or restart the kernel.",
                )
        status = self.status()
        if isinstance(status, Ready) and spec.workers > status.slots:
            if session is self._made:
                remedy = "restart the kernel, so that the embedded Spark is made for this cell"
            else:
                remedy = "give your Spark session more cores or executors"
            return Refused(
                "slots",
                f"{spec.workers} workers do not fit into {counted(status.slots, 'slot')}: ask for fewer with --workers "
                f"{status.slots}, or {remedy}.",
            )
        return None

    def launch(self, spec: RunSpec, namespace: Mapping[str, Any]) -> Launched | Refused:
        try:
            with self._starting:
                if self._session() is None:
                    self._made = local_spark.make_session(spec.workers, spec.conf)
        except local_spark.CannotStart as error:
            return Refused("spark", str(error))
        try:
            # The driver looks for `spark` first, and the notebook's variable may hold a session that was stopped.
            names = {**namespace, "spark": self._session()}
            return refusal(self._call("launch", json.dumps(spec.to_record()), names))
        except Exception as error:  # py4j raises kinds of its own, and without pyspark they have no name
            return Refused("spark", f"Spark did not take the run ({type(error).__name__}: {error})")

    def shutdown(self) -> None:
        """End the Spark if it is ours; a user's is the user's. The files of runs go now: `atexit` may never come."""
        if self._driver is not None:
            self._driver.held.forget_all()
        made, self._made = self._made, None
        if made is not None:
            # A daemon: the process may end before Spark does, which then ends with it.
            ending = threading.Thread(target=local_spark.end_session, args=(made,), daemon=True)
            ending.start()
            ending.join(END_SECONDS)

    def _session(self) -> Any | None:
        if self._made is not None and self._made.sparkContext._jsc is None:
            self._made = None  # the user stopped it
        return self._made or local_spark.existing_session(self._namespace())

    def _call(self, function: str, *arguments: Any) -> dict[str, Any]:
        if self._driver is None:
            self._driver = self._load_driver()
        reply: dict[str, Any] = json.loads(getattr(self._driver, function)(*arguments))
        return reply
