"""The use of sparkmagic: its configuration for a Livy, and the sessions of its magics.

Only this file imports sparkmagic, and only when Livy is used. We read its state and change it in one point: we add our
session, so that `%%spark` cells can use it.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from ddl_magics.clusters.livy_http import CONNECT_SECONDS, REQUEST_SECONDS, Connection
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
        NoSession: the session is not for Python, or did not start; sparkmagic has shown why.
    """
    if magics.language not in ("python", "python3"):
        raise NoSession(f"this kernel's Livy session is for {magics.language}: use sparkmagic's PySpark kernel.")
    if not magics.session_started:
        if not start:
            return None
        with _bounded(magics):
            started = magics._do_not_call_start_session("")
        if not started:
            raise NoSession("the kernel's Livy session did not start: see above, or %%logs.")
    return magics.spark_controller.get_session_by_name_or_default(magics.session_name)


def python_sessions(magics: Any) -> dict[str, Any]:
    """The Python sessions of `%spark add`, by name."""
    managed = magics.spark_controller.get_managed_clients()
    return {name: session for name, session in managed.items() if session.kind in _PYTHON_KINDS}


def connection_of(endpoint: Any) -> Connection:
    """The connection to an endpoint of sparkmagic, with its credentials and the configured headers and certificates."""
    conf, client = _configuration(), _client_module()
    url = str(endpoint.url)
    if urlsplit(url).password:
        raise NoSession("a password in the URL would be shown and stored: set it in sparkmagic's config.json.")

    def create_session() -> Any:
        # sparkmagic's client sets the HTTP adapters of its session.
        return client.ReliableHttpClient(endpoint, {}, None)._session

    return Connection(url, endpoint.auth, dict(conf.custom_headers()), not conf.ignore_ssl_errors(), create_session)


def endpoint(shell: Any, url: str | None) -> Any:
    """The endpoint at `url`, with the credentials that sparkmagic has for it; without `url`, the configured one.

    Raises:
        NoSession: sparkmagic is missing, too old, or its configuration is wrong.
    """
    conf = _configuration()
    if url is not None:
        endpoints = [magics.endpoint for magics in [kernel_magics(shell)] if magics is not None]
        remote = spark_magics(shell)
        if remote is not None:
            endpoints += [session.endpoint for session in remote.spark_controller.get_managed_clients().values()]
        for candidate in endpoints:
            if candidate is not None and _same_url(candidate.url, url):
                return candidate
    try:
        from sparkmagic.livyclientlib.endpoint import Endpoint
        from sparkmagic.utils.utils import Namespace, initialize_auth

        credentials = conf.base64_kernel_python_credentials()
        if url is not None and not _same_url(credentials["url"], url):
            return Endpoint(url, None)
        names = Namespace(
            auth=credentials["auth"],
            user=credentials["username"],
            password=credentials["password"],
            url=credentials["url"],
        )
        return Endpoint(credentials["url"], initialize_auth(names))
    except Exception as error:  # sparkmagic raises many kinds; none shows a password
        raise NoSession(f"sparkmagic's configuration is wrong: {type(error).__name__}.") from None


def session_properties() -> dict[str, Any]:
    """The properties of new sessions in sparkmagic's configuration (`session_configs`)."""
    return dict(_configuration().get_session_properties("python"))


def startup_seconds() -> float:
    return float(_configuration().livy_session_startup_timeout_seconds())


def share_session(shell: Any, session: LivySession, endpoint: Any) -> None:
    """Add a session of ours to sparkmagic's, for `%%spark -s ddl`, if its magics are loaded."""
    magics = spark_magics(shell)
    if magics is None:
        return
    from sparkmagic.livyclientlib.livysession import LivySession as SparkmagicSession

    controller = magics.spark_controller
    # sparkmagic sends it no heartbeat: we do, unless it is detached and needs none.
    client = controller._http_client(endpoint)
    added = SparkmagicSession(client, {"kind": "pyspark"}, magics.ipython_display, session.number)
    added.sql_context_variable_name = "spark"
    controller.get_managed_clients()[NAME] = added


def _same_url(url: str, other_url: str) -> bool:
    return url.rstrip("/").lower() == other_url.rstrip("/").lower()


def _configuration() -> Any:
    try:
        from sparkmagic.utils import configuration
    except ImportError:
        raise NoSession("Livy is reached through sparkmagic: pip install 'sparkmagic>=0.21' requests.") from None
    if not hasattr(configuration, "base64_kernel_python_credentials"):
        raise NoSession("this sparkmagic is too old: pip install --upgrade 'sparkmagic>=0.21'.")
    return configuration


def _client_module() -> Any:
    try:
        from sparkmagic.livyclientlib import reliablehttpclient
    except ImportError:
        raise NoSession("this sparkmagic is too old: pip install --upgrade 'sparkmagic>=0.21'.") from None
    return reliablehttpclient


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
