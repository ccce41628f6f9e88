"""The cluster of the next run: what `%ddl use` selected, or what this kernel has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from ddl_magics.clusters import livy_config, livy_description, livy_session, shipping, sparkmagic_link
from ddl_magics.clusters.base import Namespace, NotStarted, Refused
from ddl_magics.clusters.cluster import Cluster
from ddl_magics.clusters.embedded import EmbeddedCluster
from ddl_magics.clusters.livy import LivyCluster
from ddl_magics.clusters.livy_description import SessionId
from ddl_magics.clusters.livy_http import Connection, LivyHttp
from ddl_magics.clusters.livy_session import LivySession, NoSession
from ddl_magics.runtime.run_spec import RunSpec


class PendingKernelSession(Cluster):
    """A Livy session that has not started yet, such as a sparkmagic kernel's; the first run starts it."""

    name = "this kernel's Livy session"
    #: How the user starts it, for `%ddl check`.
    remedy = "run a Spark cell"

    def status(self) -> NotStarted:
        return NotStarted("a Livy session is started, for the first run of this kernel only")

    def check(self, spec: RunSpec, namespace: Namespace) -> Refused | None:
        """None: the cell's names are the session's, and not those of this kernel."""
        return None

    def findings(self) -> Iterable[tuple[str, str]]:
        return [("cluster", f"{self.name} has not started: {self.remedy}, then %ddl check again")]

    def launch(self, spec: RunSpec, namespace: Namespace) -> Refused:
        return Refused("spark", f"{self.name} has not started: {self.remedy}, then start the run again")

    def _call(self, function: str, request: Mapping[str, Any], namespace: Namespace | None = None) -> dict[str, Any]:
        raise ConnectionError(f"it has not started: {self.remedy}")


class NextSession(PendingKernelSession):
    """The session that replaces one ended by --release."""

    name = "a new Livy session"
    remedy = "the next run starts it"


class Choice:
    """The clusters of one kernel. `cluster` returns the one in use; `%ddl use` calls the other methods."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._embedded = EmbeddedCluster(lambda: shell.user_ns)
        self._pending = PendingKernelSession()
        self._selected: Cluster | None = None
        #: Creates a session like the selected one, if this kernel created that.
        self._create_again: Callable[[], LivySession] | None = None
        #: Where the tokens of this kernel's Livys come from, by URL.
        self._token_sources: dict[str, str] = {}
        self._livy_clusters: dict[tuple[str, SessionId], LivyCluster] = {}

    def cluster(self, start: bool = False) -> Cluster:
        """The cluster of the next run.

        Args:
            start: start the session of a sparkmagic kernel if it has not started yet.

        Raises:
            NoSession: the session cannot be used.
        """
        if isinstance(self._selected, LivyCluster) and self._selected.session.closed and self._create_again is not None:
            if not start:
                return NextSession()
            self._create_again()
        if self._selected is not None:
            return self._selected
        kernel = sparkmagic_link.kernel_magics(self._shell)
        if kernel is not None:
            session = sparkmagic_link.kernel_session(kernel, start)
            return self._pending if session is None else self._of(session)
        added = self._added()
        return added if added is not None else self._embedded

    def close(self) -> None:
        """End all that was started for this kernel. Called when the kernel exits."""
        for cluster in [self._embedded, *self._livy_clusters.values()]:
            cluster.shutdown()

    def auto(self) -> None:
        self._selected = None

    def embedded(self) -> None:
        self._selected = self._embedded

    def livy(
        self,
        url: str | None,
        id_or_name: str | None = None,
        detached: bool = False,
        token_from: str | None = None,
    ) -> LivySession | None:
        """Use a session of the Livy at `url`, or of the configured one.

        Args:
            url: None for the kernel's own session, or that of `%spark add`, or sparkmagic's configuration.
            id_or_name: of an existing session.
            detached: create a session that outlives this kernel.
            token_from: where the token for `url` comes from; from now on, for all sessions there.

        Returns:
            The session, if this call created it.

        Raises:
            NoSession: there is no session, and none can be created.
        """
        if url is not None and token_from is not None:
            self._token_sources[url] = token_from
        if id_or_name is None and not detached:
            if url is None and sparkmagic_link.kernel_magics(self._shell) is not None:
                self._selected = None
                self.cluster(start=True)
                return None
            added = self._added(url)
            if added is not None and added.alive():
                self._selected = added
                return None
        connection = self._connection(url)
        if id_or_name is not None:
            self._selected = self._keep(livy_session.find(LivyHttp(connection), id_or_name))
            return None
        self._create_again = partial(self._create, connection, detached)
        return self._create_again()

    def _connection(self, url: str | None) -> Connection:
        """Raises NoSession."""
        return sparkmagic_link.connection(self._shell, url, None if url is None else self._token_sources.get(url))

    def _create(self, connection: Connection, detached: bool) -> LivySession:
        """Create and select a session. Raises NoSession if none can be created."""
        http = LivyHttp(connection)
        seconds = max(livy_session.START_SECONDS, livy_config.startup_seconds())
        session = livy_session.create(http, livy_config.session_properties(), detached, seconds)
        # A restarted Livy reuses the numbers of its earlier sessions.
        self._selected = self._livy_clusters[http.url, session.id] = LivyCluster(session)
        sparkmagic_link.share_session(self._shell, session, connection)
        return session

    def at(self, address: Mapping[str, Any]) -> LivyCluster:
        """The session that has the driver of a stored run, reached with this kernel's credentials.

        Args:
            address: `Cluster.driver_address` as it was stored.

        Raises:
            NoSession: the session has ended, or the address names no runtime.
        """
        try:
            # The runtime that started the run must answer, whatever version is installed here.
            runtime = shipping.RuntimePackage(str(address["runtime"]), b"")
            url, session_id = str(address["livy"]), livy_description.checked_id(address["session"])
        except (KeyError, TypeError, ValueError) as error:
            raise NoSession(f"its stored address is damaged ({type(error).__name__}: {error})") from None
        cluster = self._livy_clusters.get((url, session_id))
        if cluster is not None and cluster.channel.module == runtime.module:
            return cluster
        http = LivyHttp(self._connection(url))
        session = livy_session.find(http, str(session_id))
        # Livy 0.5 reports neither the name nor the heartbeat of a session.
        session.detached = session.detached or bool(address.get("detached"))
        return LivyCluster(session, runtime)

    def _added(self, url: str | None = None) -> LivyCluster | None:
        """The session of `%spark add`, at `url` if not None; or None."""
        magics = sparkmagic_link.spark_magics(self._shell)
        sessions = {} if magics is None else sparkmagic_link.python_sessions(magics)
        matching = {
            name: session
            for name, session in sessions.items()
            if url is None or session.endpoint.url.rstrip("/") == url.rstrip("/")
        }
        if len(matching) > 1:
            raise NoSession(
                f"sparkmagic has the sessions {', '.join(sorted(matching))}: choose one with %ddl use livy URL "
                "--session ID; %spark info shows the IDs."
            )
        return self._of(next(iter(matching.values()))) if matching else None

    def _of(self, sparkmagic_session: Any) -> LivyCluster:
        """The cluster of a session that sparkmagic manages."""
        endpoint, session_id = sparkmagic_session.endpoint, sparkmagic_session.id
        cluster = self._livy_clusters.get((endpoint.url, session_id))
        if cluster is not None:
            return cluster
        http = LivyHttp(sparkmagic_link.connection_of(endpoint))
        return self._keep(LivySession(http, session_id))

    def _keep(self, session: LivySession) -> LivyCluster:
        """The one cluster of a session."""
        return self._livy_clusters.setdefault((session.http.url, session.id), LivyCluster(session))
