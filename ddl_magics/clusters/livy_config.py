"""The configuration of sparkmagic as our own requests use it, which need nothing of sparkmagic.

Where sparkmagic is imported already, as in its kernels, its values in memory count: a cell may have changed them.
Otherwise its file is read, `~/.sparkmagic/config.json`, if there is one.
"""

from __future__ import annotations

import base64
import importlib
import importlib.util
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

from ddl_magics.clusters.livy_http import Connection
from ddl_magics.clusters.livy_kerberos import Kerberos
from ddl_magics.clusters.livy_session import NoSession
from ddl_magics.clusters.livy_token import Token

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_DEFAULT_URL = "http://localhost:8998"
#: sparkmagic's class, in whose place we have our own.
_KERBEROS = "sparkmagic.auth.kerberos.Kerberos"
#: sparkmagic's own default.
_STARTUP_SECONDS = 60.0


def connection(url: str | None = None, token_from: str | None = None) -> Connection:
    """The connection to `url` with the credentials that are configured for it; without `url`, to the configured one.

    Args:
        token_from: where a token comes from, instead of what is configured (`livy_token.Token`).

    Raises:
        NoSession: the configuration is wrong, or names something that is not installed.
    """
    credentials = _value("kernel_python_credentials", {})
    if not isinstance(credentials, Mapping):
        raise _wrong("kernel_python_credentials is no object")
    configured = str(credentials.get("url") or _DEFAULT_URL)
    if url is None or same_url(url, configured):
        auth = _authentication(configured, credentials) if token_from is None else None
        url = url or configured
    else:
        auth = None
    return connected(url, auth if token_from is None else Token(token_from))


def connected(url: str, auth: Any) -> Connection:
    """A connection with this authentication, and the headers and certificates that are configured. Raises NoSession."""
    if importlib.util.find_spec("requests") is None:
        raise NoSession("Livy is reached with requests: pip install requests.")
    parts = urlsplit(url)
    if parts.password:
        raise NoSession("a password in the URL would be shown and stored: set it in sparkmagic's config.json.")
    if isinstance(auth, Token) and parts.scheme != "https" and parts.hostname not in _LOOPBACK:
        raise NoSession(f"{url} is not encrypted, and everybody on the way could use the token: write https://.")
    if f"{type(auth).__module__}.{type(auth).__qualname__}" == _KERBEROS:
        auth = _kerberos()
    headers = {str(name): str(value) for name, value in dict(_value("custom_headers", {})).items()}
    return Connection(url.rstrip("/"), auth, headers, not _value("ignore_ssl_errors", False), _http_session)


def same_url(url: str, other_url: str) -> bool:
    return url.rstrip("/").lower() == other_url.rstrip("/").lower()


def session_properties() -> dict[str, Any]:
    """The properties of new sessions (`session_configs`), without their kind."""
    merged = _merged(_value("session_configs_defaults", {}), _value("session_configs", {}))
    return {key: value for key, value in merged.items() if key != "kind"}


def startup_seconds() -> float:
    return float(_value("livy_session_startup_timeout_seconds", _STARTUP_SECONDS))


def _value(name: str, default: Any) -> Any:
    loaded = sys.modules.get("sparkmagic.utils.configuration")
    if loaded is not None and hasattr(loaded, name):
        return getattr(loaded, name)()
    return _file().get(name, default)


def _file() -> Mapping[str, Any]:
    folder = os.environ.get("SPARKMAGIC_CONF_DIR", "~/.sparkmagic")
    path = Path(folder).expanduser() / os.environ.get("SPARKMAGIC_CONF_FILE", "config.json")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise NoSession(f"{path} cannot be read ({type(error).__name__}).") from None
    try:
        values = json.loads(text) if text.strip() else {}
    except ValueError as error:
        raise NoSession(f"{path} is not JSON ({error}).") from None
    if not isinstance(values, dict):
        raise _wrong("it is no object")
    return values


def _authentication(url: str, credentials: Mapping[str, Any]) -> Any:
    """The authentication of requests that the credentials name."""
    user, kind = str(credentials.get("username") or ""), credentials.get("auth")
    password = _password(credentials)
    source = credentials.get("token_from")
    if source and kind in (None, "None", "Bearer"):
        return Token(str(source))
    if kind == "Bearer":
        raise _wrong('"auth": "Bearer" needs "token_from", a command that prints the token')
    if kind == "None" or (kind is None and not user and not password):
        return None
    if kind in (None, "Basic_Access"):
        if not user or not password:
            raise _wrong("Basic_Access needs username and base64_password")
        return user, password
    return _authenticator(str(kind), SimpleNamespace(auth=kind, user=user, password=password, url=url))


def _password(credentials: Mapping[str, Any]) -> str:
    encoded = credentials.get("base64_password")
    if encoded is None:
        return str(credentials.get("password") or "")
    try:
        return base64.b64decode(str(encoded)).decode()
    except ValueError:
        raise _wrong("base64_password is not base64") from None


def _authenticator(kind: str, credentials: SimpleNamespace) -> Any:
    """An object of the class that `authenticators` has for this kind."""
    name = {"Kerberos": _KERBEROS, **_value("authenticators", {})}.get(kind)
    if name is None:
        raise _wrong(f"authenticators has no {kind}")
    if name == _KERBEROS:
        return _kerberos()
    try:
        return _named(str(name))(credentials)
    except ImportError as error:
        if (error.name or "").partition(".")[0] == "sparkmagic":
            raise NoSession(f"{kind} is sparkmagic's: pip install 'sparkmagic>=0.21'.") from None
        raise _wrong(f"{name} cannot be imported ({type(error).__name__})") from None
    except Exception as error:  # of anybody's class; its message may show a password
        raise _wrong(f"{name} fails with {type(error).__name__}") from None


def _kerberos() -> Kerberos:
    return Kerberos(dict(_value("kerberos_auth_configuration", {})))


def _http_session() -> Any:
    """A session of requests with the adapters that are configured (`http_session_config`)."""
    import requests

    session = requests.Session()
    for adapter in dict(_value("http_session_config", {})).get("adapters") or ():
        session.mount(str(adapter["prefix"]), _named(str(adapter["adapter"]))())
    return session


def _named(name: str) -> Any:
    """The class with this full name."""
    module, _, inner = name.rpartition(".")
    return getattr(importlib.import_module(module), inner)


def _merged(values: Mapping[str, Any], updates: Mapping[str, Any]) -> dict[str, Any]:
    merged = {**values, **updates}
    for key in values.keys() & updates.keys():
        if isinstance(values[key], Mapping) and isinstance(updates[key], Mapping):
            merged[key] = _merged(values[key], updates[key])
    return merged


def _wrong(reason: str) -> NoSession:
    return NoSession(f"sparkmagic's config.json is wrong: {reason}.")
