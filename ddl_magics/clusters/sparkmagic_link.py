"""The sessions of sparkmagic's magics, where a kernel has them.

Only this file uses sparkmagic, and does not import it where nobody else has. We read its state and change it in one
point: we add our session, so that `%%spark` cells can use it.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

from ddl_magics.clusters import livy_config, livy_session
from ddl_magics.clusters.livy_http import CONNECT_SECONDS, REQUEST_SECONDS, Connection, LivyHttp
from ddl_magics.clusters.livy_session import LivySession, NoSession

#: The name for `%%spark -s` of a session that `%ddl use livy` created.
NAME = "ddl"

_PYTHON_KINDS = ("pyspark", "pyspark3")


def kernel_magics(shell: Any) -> Any | None:
    """The magics of a sparkmagic kernel (PySpark, Spark), found by class: ipykernel has a `KernelMagics`, too."""
    return _magics(shell, "sparkmagic.kernels.kernelmagics", "KernelMagics")


def spark_magics(shell: Any) -> Any | None:
    """The magics of `%load_ext sparkmagic.magics`."""
    return _magics(shell, "sparkmagic.magics.remotesparkmagics", "RemoteSparkMagics")


def _magics(shell: Any, module: str, name: str) -> Any | None:
    """The registered magics of a class, or None. shell: None outside of a notebook."""
    kind = getattr(sys.modules.get(module), name, None)
    if kind is None or shell is None:
        return None
    return next((magics for magics in shell.magics_manager.registry.values() if isinstance(magics, kind)), None)


def kernel_session(magics: Any, start: bool) -> Any | None:
    """The Livy session of a sparkmagic kernel; None where it has not started.

    Args:
        start: start the session if it has not started.

    Raises:
        NoSession: the session is not for Python, or did not start: Livy refuses a Kerberos ticket, or sparkmagic has
            shown why.
    """
    if magics.language not in ("python", "python3"):
        raise NoSession(f"this kernel's Livy session is for {magics.language}: use sparkmagic's PySpark kernel.")
    if not magics.session_started:
        if not start:
            return None
        # Without a ticket, sparkmagic would start no session until the kernel is restarted.
        if magics.endpoint is not None and (http := LivyHttp(connection_of(magics.endpoint))).by_ticket:
            livy_session.check_reachable(http)
        with _bounded(magics):
            started = magics._do_not_call_start_session("")
        if not started:
            raise NoSession("the kernel's Livy session did not start: see above, or %%logs.")
    return magics.spark_controller.get_session_by_name_or_default(magics.session_name)


def python_sessions(magics: Any) -> dict[str, Any]:
    """The Python sessions of `%spark add`, by name."""
    managed = magics.spark_controller.get_managed_clients()
    return {name: session for name, session in managed.items() if session.kind in _PYTHON_KINDS}


def connection(shell: Any, url: str | None, token_from: str | None = None) -> Connection:
    """The connection to `url` with the credentials that sparkmagic's magics or its configuration have for it.

    Args:
        url: None for the configured one.
        token_from: as for `livy_config.connection`.

    Raises:
        NoSession: the configuration is wrong.
    """
    if url is not None and token_from is None:
        for endpoint in _endpoints(shell):
            if livy_config.same_url(endpoint.url, url):
                return connection_of(endpoint)
    return livy_config.connection(url, token_from)


def connection_of(endpoint: Any) -> Connection:
    """The connection to an endpoint of sparkmagic, with its credentials and the configured headers and certificates."""
    return livy_config.connected(str(endpoint.url), endpoint.auth)


def _endpoints(shell: Any) -> list[Any]:
    """Those of sparkmagic's magics in this kernel."""
    endpoints = [magics.endpoint for magics in [kernel_magics(shell)] if magics is not None]
    remote = spark_magics(shell)
    if remote is not None:
        endpoints += [session.endpoint for session in remote.spark_controller.get_managed_clients().values()]
    return [endpoint for endpoint in endpoints if endpoint is not None]


def share_session(shell: Any, session: LivySession, connection: Connection) -> None:
    """Add a session of ours to sparkmagic's, for `%%spark -s ddl`, if its magics are loaded."""
    magics = spark_magics(shell)
    if magics is None:
        return
    from sparkmagic.livyclientlib.endpoint import Endpoint
    from sparkmagic.livyclientlib.livysession import LivySession as SparkmagicSession

    controller = magics.spark_controller
    # sparkmagic sends it no heartbeat: we do, unless it is detached and needs none.
    client = controller._http_client(Endpoint(connection.url, connection.auth))
    added = SparkmagicSession(client, {"kind": "pyspark"}, magics.ipython_display, session.id)
    added.sql_context_variable_name = "spark"
    controller.get_managed_clients()[NAME] = added


@contextlib.contextmanager
def _bounded(magics: Any) -> Iterator[None]:
    """Bound the time of sparkmagic's requests while a session starts: it sets no timeout, and the cell could hang."""
    try:
        requests_session = magics.spark_controller._http_client(magics.endpoint)._http_client._session
    except AttributeError:  # another version of sparkmagic, which may set a timeout
        yield
        return
    requests_session.request = partial(requests_session.request, timeout=(CONNECT_SECONDS, REQUEST_SECONDS))
    try:
        yield
    finally:
        del requests_session.request
