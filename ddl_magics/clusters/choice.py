"""Which cluster the next run is executed on: what `%ddl use` said, or what this kernel has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ddl_magics.clusters import livy_session, shipping, sparkmagic_link
from ddl_magics.clusters.base import Cluster, NotStarted
from ddl_magics.clusters.embedded import EmbeddedCluster
from ddl_magics.clusters.livy import LivyCluster
from ddl_magics.clusters.livy_http import LivyHttp
from ddl_magics.clusters.livy_session import LivySession, NoSession


class KernelSessionToCome(EmbeddedCluster):
    """Stands for the session of a sparkmagic kernel that has not started; the first run starts it."""

    name = "this kernel's Livy session"

    def status(self) -> NotStarted:
        return NotStarted("a Livy session is started (half a minute or so)", 30.0)


class Choice:
    """The clusters of one kernel. `cluster` says which is in use; the others are its `%ddl use`."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._embedded = EmbeddedCluster(lambda: shell.user_ns)
        self._to_come = KernelSessionToCome()
        self._chosen: Cluster | None = None
        self._known: dict[tuple[str, int], LivyCluster] = {}

    def cluster(self, start: bool = False) -> Cluster:
        """The cluster of the next run.

        Args:
            start: start the session of a sparkmagic kernel where it has not been started.

        Raises:
            NoSession: it cannot be used.
        """
        if self._chosen is not None:
            return self._chosen
        kernel = sparkmagic_link.kernel_magics(self._shell)
        if kernel is not None:
            session = sparkmagic_link.kernel_session(kernel, start)
            return self._to_come if session is None else self._of(session)
        added = self._added()
        return added if added is not None else self._embedded

    def close(self) -> None:
        """The kernel exits: end what was started for it, used or not."""
        for cluster in [self._embedded, *self._known.values()]:
            cluster.shutdown()

    def auto(self) -> None:
        self._chosen = None

    def embedded(self) -> None:
        self._chosen = self._embedded

    def livy(self, url: str | None, word: str | None = None, detached: bool = False) -> LivySession | None:
        """Use a session of the Livy at `url`, or of the configured one.

        Args:
            url: None for the kernel's own session, or that of `%spark add`, or sparkmagic's configuration.
            word: number or name of a session that is there.
            detached: make one that outlives this kernel.

        Returns:
            The session, if it was made now.

        Raises:
            NoSession: there is none, and none can be made.
        """
        if word is None and not detached:
            if url is None and sparkmagic_link.kernel_magics(self._shell) is not None:
                self._chosen = None
                self.cluster(start=True)
                return None
            added = self._added(url)
            if added is not None and added.alive():
                self._chosen = added
                return None
        endpoint = sparkmagic_link.endpoint(self._shell, url)
        http = LivyHttp(sparkmagic_link.connection_of(endpoint))
        if word is not None:
            self._chosen = self._keep(livy_session.find(http, word))
            return None
        seconds = max(livy_session.START_SECONDS, sparkmagic_link.startup_seconds())
        session = livy_session.create(http, sparkmagic_link.session_properties(), detached, seconds)
        self._chosen = self._keep(session)
        sparkmagic_link.lend(self._shell, session, endpoint)
        return session

    def at(self, place: Mapping[str, Any]) -> LivyCluster:
        """The session where a stored run has its driver, reached with this kernel's credentials.

        Raises:
            NoSession: it is not there any more, or sparkmagic is missing.
        """
        if (place["livy"], place["session"]) in self._known:
            known = self._known[place["livy"], place["session"]]
            if known.channel.module == place["runtime"]:
                return known
        endpoint = sparkmagic_link.endpoint(self._shell, str(place["livy"]))
        http = LivyHttp(sparkmagic_link.connection_of(endpoint))
        session = livy_session.find(http, str(place["session"]))
        # Livy 0.5 tells neither its name nor its heartbeat.
        session.detached = session.detached or bool(place.get("detached"))
        # The run's own runtime answers for it, whatever version is installed here.
        return LivyCluster(session, shipping.Shipment(str(place["runtime"]), b""))

    def _added(self, url: str | None = None) -> LivyCluster | None:
        """The session of `%spark add`, at `url` if that is given; None where there is none."""
        magics = sparkmagic_link.spark_magics(self._shell)
        sessions = {} if magics is None else sparkmagic_link.python_sessions(magics)
        there = {
            name: session
            for name, session in sessions.items()
            if url is None or session.endpoint.url.rstrip("/") == url.rstrip("/")
        }
        if len(there) > 1:
            raise NoSession(
                f"sparkmagic has the sessions {', '.join(sorted(there))}: say %ddl use livy URL --session ID "
                "with the ID that %spark info shows."
            )
        return self._of(next(iter(there.values()))) if there else None

    def _of(self, theirs: Any) -> LivyCluster:
        """The cluster of a session of sparkmagic's."""
        known = self._known.get((theirs.endpoint.url, theirs.id))
        if known is not None:
            return known
        http = LivyHttp(sparkmagic_link.connection_of(theirs.endpoint))
        return self._keep(LivySession(http, int(theirs.id)))

    def _keep(self, session: LivySession) -> LivyCluster:
        key = (session.http.url, session.number)
        return self._known.setdefault(key, LivyCluster(session))
