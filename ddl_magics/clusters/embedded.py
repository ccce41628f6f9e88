"""The Spark of the notebook's own process as a cluster: the user's session, or one created for the workers.

The user's session is never stopped or reconfigured. The driver is called directly, as the same package that is shipped
to a remote cluster.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any

from ddl_magics.clusters import (
    data_names,
    dataset_shape,
    embedded_check,
    local_spark,
    missing_imports,
    of_session,
    preflight,
    sent_files,
    shipping,
)
from ddl_magics.clusters.base import Launched, Namespace, NotStarted, Ready, Refused, Unreachable
from ddl_magics.clusters.cluster import NOT_OURS, Cluster, launch_answer
from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.wording import counted

#: How long a kernel that exits waits for the Spark that it created to end.
END_SECONDS = 1.4


class EmbeddedCluster(Cluster):
    """namespace: returns the notebook's variables, among which a session of the user's may be."""

    name = "this machine"
    poll_seconds = 0.25
    in_kernel = True

    def __init__(self, namespace: Callable[[], Namespace] = dict) -> None:
        self._namespace = namespace
        self._driver: ModuleType | None = None
        self._starting = threading.Lock()
        self._created: Any = None  # a SparkSession, if this cluster has created one
        self._conf: Mapping[str, str] = {}  # that it was created with
        self._told_of_small_models = False

    def status(self) -> Ready | NotStarted | Unreachable:
        if self._session() is None:
            return NotStarted("an embedded Spark is started, for the first run of this kernel only")
        try:
            details = self._call("info", {})
        except Exception as error:  # Py4J's kinds, which cannot be named without pyspark
            return Unreachable(f"Spark does not answer ({type(error).__name__}: {error})")
        return Ready(int(details["slots"]), int(details["free"]), details)

    def check(self, spec: RunSpec, namespace: Namespace) -> Refused | None:
        missing = next((name for name in spec.send or () if name not in namespace), None)
        if missing is not None:
            return Refused("usage", f"--send {missing}: this notebook has no variable {missing}.")
        try:
            sent_files.check(spec)
        except sent_files.CannotSendFiles as error:
            return Refused("usage", str(error))
        problem = data_names.problem(spec, namespace) or preflight.problem(spec, namespace)
        problem = problem or dataset_shape.problem(spec, namespace) or self._missing_import(spec)
        if problem:
            return Refused("usage", problem)
        if local_spark.is_connect(namespace.get("spark")) or local_spark.is_connect(namespace.get(spec.data or "")):
            return Refused("spark", local_spark.CONNECT)
        session = self._session()
        problem = None if session else local_spark.version_problem() or preflight.too_many_workers(spec)
        if problem:
            return Refused("spark", problem)
        if session is None and spec.gpus and "spark.master" not in spec.conf:
            return Refused(
                "usage",
                "--gpus is for clusters where Spark manages GPUs, and the embedded Spark does not: leave it out, and a "
                "worker uses the GPUs that it finds.",
            )
        problem = self._release_problem(spec, session)
        if problem:
            return Refused("usage", problem)
        return None if session is None else self._check_session(spec, session)

    def _missing_import(self, spec: RunSpec) -> str | None:
        """Why an import of the cell would fail on workers that have this kernel's Python, or None."""
        session = self._session()
        has_our_python = session is None or session is self._created
        if spec.files or not has_our_python or not _has_no_executors(_master(spec, session)):
            return None
        return missing_imports.problem(spec.cell)

    def _release_problem(self, spec: RunSpec, session: Any) -> str | None:
        """Why --release cannot do what it says, or None."""
        if spec.release in (None, "no"):
            return None
        if session is not None and session is not self._created:
            return NOT_OURS
        master = _master(spec, session)
        if spec.release == "executors" and _has_no_executors(master):
            return f"--release executors: Spark at {master} has no executors of their own; use --release session."
        return None

    def _check_session(self, spec: RunSpec, session: Any) -> Refused | None:
        settings = local_spark.session_settings(session)
        for key, value in spec.conf.items():
            if settings.get(key) != value:
                owner = "was created by an earlier cell" if session is self._created else "is yours"
                return Refused(
                    "usage",
                    f"--conf {key} comes too late: the Spark session {owner} and stays as it is; leave --conf out, "
                    "or restart the kernel.",
                )
        problem = None if session is self._created else local_spark.workers_problem(session)
        if problem:
            return Refused("spark", problem)
        status = self.status()
        if isinstance(status, Ready) and spec.min_slots > status.slots and not self.grows(spec):
            return self._too_many(spec, session, status.slots)
        return None

    def _too_many(self, spec: RunSpec, session: Any, slots: int) -> Refused:
        """Why the Spark is not created anew for more workers."""
        is_ours = session is self._created
        problem = preflight.too_many_workers(spec, new_kernel=True) if is_ours else None
        if problem:
            return Refused("spark", problem)
        statements = of_session.statements(session, self._namespace()) if is_ours else []
        if not is_ours:
            remedy = "give your Spark session more cores or executors"
        elif statements:
            remedy = f"{'; '.join(statements)}: the Spark would be started anew with more slots, and these end with it"
        else:
            remedy = "restart the kernel, so that the embedded Spark is created for this cell"
        return Refused(
            "slots",
            f"{spec.min_slots} workers do not fit into {counted(slots, 'slot')}: ask for fewer with --workers {slots}, "
            f"or {remedy}.",
        )

    def grows(self, spec: RunSpec) -> bool:
        if not self._is_ours() or "spark.master" in self._conf or preflight.too_many_workers(spec):
            return False
        return not of_session.statements(self._created, self._namespace())

    def notices(self, spec: RunSpec, namespace: Namespace) -> Iterable[str]:
        of_one_machine = self._notices_of_one_machine(spec) if _has_no_executors(_master(spec, self._session())) else ()
        return [*of_one_machine, *preflight.notices(spec, namespace), *dataset_shape.notices(spec, namespace)]

    def _notices_of_one_machine(self, spec: RunSpec) -> list[str]:
        small_models = [] if self._told_of_small_models else [*preflight.small_models(spec)]
        self._told_of_small_models |= bool(small_models)
        return [*preflight.crowded(spec), *small_models]

    def findings(self) -> Iterable[tuple[str, str]]:
        is_ours = self._session() is None or (self._is_ours() and "spark.master" not in self._conf)
        status, problem = self.status(), self._workers_problem()
        python = self._call("python_of_worker", {}) if isinstance(status, Ready) and not problem else None
        return embedded_check.lines(self.name, status, problem, is_ours, python)

    def _workers_problem(self) -> str | None:
        """Why the notebook's own Spark session cannot be used, in one line, or None."""
        if local_spark.is_connect(self._namespace().get("spark")):
            return local_spark.CONNECT
        session = self._session()
        return None if session is None else local_spark.workers_problem(session)

    def spark(self, spec: RunSpec) -> Any:
        with self._starting:
            if self._is_ours() and spec.min_slots > self._created.sparkContext.defaultParallelism and self.grows(spec):
                self._restart(spec.workers)
            if self._session() is None:
                self._conf = dict(spec.conf)
                self._created = local_spark.create_session(max(1, spec.workers), spec.conf)
            return self._session()

    def _restart(self, workers: int) -> None:
        """Create the Spark anew, with more slots; the notebook's variables of the session follow."""
        ended, self._created = self._created, None
        if self._driver is not None:
            self._driver.registry.forget_all()
        local_spark.end_session(ended)
        self._created = local_spark.create_session(workers, self._conf)
        namespace = self._namespace()
        if isinstance(namespace, dict):
            namespace.update({name: self._created for name, value in [*namespace.items()] if value is ended})

    def launch(self, spec: RunSpec, namespace: Namespace) -> Launched | Refused:
        try:
            self.spark(spec)
        except local_spark.CannotStart as error:
            return Refused("spark", str(error))
        try:
            sent_files.upload(spec, self._call)
            # The driver uses the variable `spark`, and the notebook's may hold a session that was stopped.
            names = {**namespace, "spark": self._session()}
            return launch_answer(self._call("launch", spec.to_record(), names))
        except sent_files.CannotSendFiles as error:
            return Refused("usage", str(error))
        except Exception as error:  # Py4J's kinds, which cannot be named without pyspark
            return Refused("spark", f"Spark did not take the run ({type(error).__name__}: {error})")

    def give_back(self, resource: str) -> str | Refused:
        if self._session() is None:
            return Refused("spark", "no Spark runs here: there is nothing to give back")
        return super().give_back(resource)

    def _is_ours(self) -> bool:
        return self._created is not None and self._session() is self._created

    def _end_session(self) -> str | Refused:
        with self._starting:  # no run can start on the session meanwhile
            created, self._created = self._created, None
            if created is None:
                return Refused("usage", NOT_OURS)
            if self._driver is not None:
                self._driver.registry.forget_all()
            local_spark.end_session(created)
        return "the embedded Spark has ended; the next run starts a new one"

    def shutdown(self) -> None:
        """End the Spark if this cluster created it. Runs' files are deleted now, since `atexit` may never be called."""
        if self._driver is not None:
            self._driver.registry.forget_all()
        if not self._starting.acquire(timeout=END_SECONDS):
            return  # the Spark that another thread is starting ends with this process
        try:
            created, self._created = self._created, None
            if created is not None:
                local_spark.leave_session(created, END_SECONDS)
        finally:
            self._starting.release()

    def _session(self) -> Any | None:
        if self._created is not None and self._created.sparkContext._jsc is None:
            self._created = None  # the user has stopped it
        return self._created or local_spark.existing_session(self._namespace())

    def _call(self, function: str, request: Mapping[str, Any], namespace: Namespace | None = None) -> dict[str, Any]:
        if self._driver is None:
            self._driver = shipping.load_driver()
        arguments = (json.dumps(request),) if namespace is None else (json.dumps(request), namespace)
        reply: dict[str, Any] = json.loads(getattr(self._driver, function)(*arguments))
        return reply


def _master(spec: RunSpec, session: Any | None) -> str:
    """The master of a session, or of the one that would be created for a run."""
    master: str = spec.conf.get("spark.master", "local") if session is None else session.sparkContext.master
    return master


def _has_no_executors(master: str) -> bool:
    """Whether a Spark at this master computes in its driver's process."""
    return master.startswith("local") and not master.startswith("local-cluster")
