"""Kerberos tickets for the requests to a Livy (SPNEGO), by requests-kerberos, which sparkmagic uses as well.

`kinit` gets a ticket, which expires while a kernel goes on. Then requests raise `NoTicket`, and succeed again after the
next `kinit`.
"""

from __future__ import annotations

import importlib.util
import logging
import re
import threading
from collections.abc import Mapping
from typing import Any

from ddl_magics.clusters.livy_http import NoTicket
from ddl_magics.clusters.livy_session import NoSession

_SHOWN_CHARACTERS = 200


class Kerberos:
    """The authentication of a `requests` session. Thread-safe: each thread has an exchange of its own.

    Args:
        configured: arguments of `requests_kerberos.HTTPKerberosAuth`.

    Raises:
        NoSession: requests-kerberos is missing.
    """

    #: Whether it ends with a ticket, which only the user renews.
    by_ticket = True

    def __init__(self, configured: Mapping[str, Any]) -> None:
        if importlib.util.find_spec("requests_kerberos") is None:
            raise NoSession("Kerberos needs its library: pip install requests-kerberos (compiled with libkrb5-dev).")
        # Livy says with an error whether a session has ended.
        self._arguments = {"sanitize_mutual_error_response": False, **configured}
        self._local = threading.local()

    def __call__(self, request: Any) -> Any:
        if not hasattr(self._local, "exchange"):
            self._local.exchange = _exchange(self._arguments)
        return self._local.exchange(request)


def _exchange(arguments: Mapping[str, Any]) -> Any:
    """An `HTTPKerberosAuth` that raises what is wrong with the ticket, instead of logging it with a traceback."""
    from requests_kerberos import HTTPKerberosAuth, exceptions, kerberos_

    kerberos_.log.setLevel(logging.CRITICAL)

    class Exchange(HTTPKerberosAuth):  # type: ignore[misc]
        def generate_request_header(self, response: Any, host: str, is_preemptive: bool = False) -> Any:
            try:
                return super().generate_request_header(response, host, is_preemptive)
            except exceptions.KerberosExchangeError as error:
                if response is not None:
                    response.close()
                raise NoTicket(_problem(host, str(error))) from None

    return Exchange(**arguments)


def _problem(host: str, said: str) -> str:
    """One line on what Kerberos' library has said."""
    if re.search(r"no (kerberos )?credentials|credentials cache", said, re.IGNORECASE):
        return f"there is no Kerberos ticket for {host}: run kinit in a terminal of this machine"
    if "expired" in said.lower():
        return f"the Kerberos ticket for {host} has expired: run kinit in a terminal of this machine"
    reason = re.search(r"Minor \(\d+\): (.*?)(, Context: .*)?$", said)
    reason_text = " ".join((reason[1] if reason else said).split())[:_SHOWN_CHARACTERS]
    return f"Kerberos gives no ticket for {host} ({reason_text}): klist shows yours"
