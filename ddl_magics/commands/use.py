"""`%ddl use`: choose the cluster of the next runs."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

from IPython.core.error import UsageError

from ddl_magics.clusters.livy_session import LivySession, NoSession, idle_timeout
from ddl_magics.commands.kernel import Kernel
from ddl_magics.options.redaction import MASK, as_word, has_password, is_secret
from ddl_magics.wording import nearest, plain

CLUSTERS = dict.fromkeys(("auto", "embedded", "livy"), "")


def use(
    kernel: Kernel, cluster: str, url: str | None, session: str | None, detached: bool, token_from: str | None
) -> str:
    """Choose a cluster. url: None for the Livy of sparkmagic. session: ID or name of an existing session."""
    if cluster == "livy":
        return "\n".join([*_use_livy(kernel, url, session, detached, token_from), _confirmation(kernel)])
    if url or session or detached or token_from:
        raise UsageError(f"write: %ddl use {cluster}")
    if cluster == "embedded":
        kernel.choice.embedded()
    else:
        kernel.choice.auto()
    return _confirmation(kernel)


def _confirmation(kernel: Kernel) -> str:
    return f"runs are executed on {kernel.session.cluster.name}"


def _use_livy(
    kernel: Kernel, url: str | None, id_or_name: str | None, detached: bool, token_from: str | None
) -> list[str]:
    """Use a session; returns a line about its lifetime if it is new."""
    url = None if url is None else checked_url(url)
    if token_from is not None and url is None:
        raise UsageError("--token-from needs the URL that the token is for: %ddl use livy URL --token-from COMMAND.")
    try:
        session = kernel.choice.livy(url, id_or_name, detached, token_from)
    except NoSession as error:
        raise UsageError(str(error)) from None
    return [] if session is None else [lifetime(session)]


def lifetime(session: LivySession) -> str:
    """When a new session ends, in one line."""
    if session.detached:
        name = session.name or str(session.id)
        return (
            f"Session {name} outlives this kernel. It ends when it is deleted, or after "
            f"{idle_timeout(session.http.url)} in which no notebook follows a run of it. To use it elsewhere: "
            f"%ddl use livy {session.http.url} --session {name}"
        )
    return "The session and its runs end with this kernel; --detached makes one that outlives the kernel."


def checked_url(url: str) -> str:
    """The URL of a Livy. UsageError if it is none, or holds a password."""
    try:
        parsed = urlsplit(url)
        usable = parsed.scheme in ("http", "https") and parsed.hostname and parsed.port != 0
    except ValueError:  # the port is not a number
        usable = False
    if not usable:
        raise UsageError(
            f"{MASK if is_secret(url) else plain(url)} is not the URL of a Livy: write http://HOST:8998, or "
            "https://CLUSTER.azurehdinsight.net/livy."
        )
    if parsed.username or parsed.password or has_password(url):
        raise UsageError("the URL holds a password, which would be stored: set it in sparkmagic's config.json instead.")
    # Fabric shows the address of its sessions as that of its Livy.
    return url.rstrip("/").removesuffix("/sessions")


def cluster_hint(typed: str, clusters: Iterable[str]) -> str:
    """A hint for an unknown cluster: what the user probably means."""
    if typed.startswith(("http://", "https://")):
        return f" For a Livy: %ddl use livy {as_word(typed)}"
    if typed.partition(":")[0] in ("spark", "yarn", "k8s", "local", "mesos"):
        return " Create the session with SparkSession.builder.master(...): auto finds it."
    return nearest(typed, clusters)
