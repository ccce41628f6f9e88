"""`%ddl check` on a Livy session: a line for each thing that a run needs, with the fix where something is wrong.

It starts no executor. Where there is one, its Python is asked by a task.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from ddl_magics.clusters import livy_description, session_details
from ddl_magics.clusters.livy_channel import Channel
from ddl_magics.clusters.livy_http import Gone, LivyHttp, Rejected
from ddl_magics.clusters.livy_session import LivySession, heartbeat_timeout, idle_timeout
from ddl_magics.clusters.machine import version_numbers
from ddl_magics.wording import counted

#: A larger difference between the clocks is reported: events have the cluster's time, and ages are computed here.
SKEW_SECONDS = 2.0
#: The versions that the runtime supports and is tested with; newer ones may work.
OLDEST_SPARK, OLDEST_PYTHON = (3, 0), (3, 8)
OLDEST_TENSORFLOW, NEWEST_TENSORFLOW = (2, 13), (2, 21)
TENSORFLOW_RANGE = "2.13 (Keras 2) to 2.21 (Keras 3)"

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_PROBLEMS = (ConnectionError, ProcessLookupError, TimeoutError, KeyError, TypeError, ValueError)


def lines(
    name: str, session: LivySession, channel: Channel, ask_details: Callable[[bool], Mapping[str, Any]]
) -> Iterator[tuple[str, str]]:
    """(subject, finding) of each line.

    Args:
        name: of the cluster.
        session: the Livy session.
        channel: to its Python.
        ask_details: `LivyCluster.details`.
    """
    yield "cluster", name
    yield "Livy", _answer(lambda: _livy(session.http))
    yield "CSRF", _answer(lambda: _csrf(session))
    try:
        details = ask_details(True)
    except _PROBLEMS as error:
        yield "session", f"cannot be used: {error}"
        return
    description = _description(session)
    yield "session", f"{description.get('state', 'cannot be asked')}; {_heartbeat(session, description)}"
    yield "idle timeout", _idle_timeout(session, description)
    yield "Spark", _spark(details)
    yield "executors", _executors(details)
    yield "allocation", _allocation(details)
    yield "GPUs", _gpus(details)
    yield "encryption", session_details.encryption(details)
    yield "files", session_details.file_reading(details)
    yield "side channel", _answer(lambda: _side_channel(channel))
    yield "a worker", _answer(lambda: session_details.python(channel.call("python_of_worker", "{}")))
    try:
        asked_at = time.time()
        environment = channel.environment()
        answered_at = time.time()
    except _PROBLEMS as error:
        yield "Python", f"cannot be asked: {error}"
        return
    yield "Python", _python(environment)
    yield "TensorFlow", _tensorflow(environment)
    yield "clock", _clock(environment["time"], asked_at, answered_at)


def _livy(http: LivyHttp) -> str:
    url = urlsplit(http.url)
    clear = url.scheme == "http" and url.hostname not in _LOOPBACK
    warning = "; not encrypted: use https:// on a network that you do not trust" if clear else ""
    try:
        version = http.get("/version").get("version")
    except (Rejected, Gone):  # Fabric, EMR Serverless and Lighter have no such request
        version = "no version told"
    return f"{version} at {http.url}, {http.authentication}{warning}"


def _csrf(session: LivySession) -> str:
    http = session.http
    required = http.requires_header(f"{livy_description.path_of(session.id)}/connect")
    if required is None:
        return "X-Requested-By is sent; whether Livy requires it could not be found out"
    if required and not http.header_configured:
        return (
            "X-Requested-By is required and sent, but sparkmagic's own cells lack it: add "
            '"custom_headers": {"X-Requested-By": "livy"} to its config.json'
        )
    return f"X-Requested-By is sent, and {'required' if required else 'not required'}"


def _description(session: LivySession) -> Mapping[str, Any]:
    """The session as Livy describes it; empty without an answer."""
    try:
        description = session.http.get(livy_description.path_of(session.id))
    except _PROBLEMS:
        return {}
    return description if isinstance(description, dict) else {}


def _heartbeat(session: LivySession, description: Mapping[str, Any]) -> str:
    seconds = description.get("heartbeatTimeoutInSecond")
    if session.detached or seconds == 0:
        return "outlives this kernel (no heartbeat)"
    if seconds or session.ends_with_kernel:
        return f"ends with its kernel, or {seconds or heartbeat_timeout(session.http)} s after a crash (heartbeat)"
    return "ends with its kernel, or about a minute after a crash (if sparkmagic made it): this Livy tells no heartbeat"


def _idle_timeout(session: LivySession, description: Mapping[str, Any]) -> str:
    idle, lifetime = description.get("idleTimeout"), description.get("ttl")
    limit = f"{idle} without a request" if idle else f"{idle_timeout(session.http.url)}, which Livy does not report"
    finding = f"{limit}; a run that a notebook follows keeps it alive"
    if lifetime:
        finding += f"; it ends {lifetime} after its start, also during a run: create a new one for a longer run"
    return finding


def _spark(details: Mapping[str, Any]) -> str:
    version = str(details.get("spark"))
    too_old = _below(version, OLDEST_SPARK)
    slots = counted(int(details["slots"]), "slot")
    return f"{version} at {details.get('master')}, {slots}" + ("; Spark 3.0 or newer is needed" if too_old else "")


def _executors(details: Mapping[str, Any]) -> str:
    slots, ready_slots = int(details["slots"]), int(details.get("ready", 0))
    if details.get("released") or details.get("dynamic_allocation"):
        finding = session_details.executors(details)
        if finding is not None:
            return finding
    if not slots:
        return "none: ask for some with numExecutors in %%configure -f, or in session_configs of config.json"
    coming = "" if ready_slots >= slots else "; the rest start with the first run"
    free = details.get("free", slots)
    return f"{counted(ready_slots, 'slot')} ready, {free} of {slots} free{coming}{session_details.container(details)}"


def _allocation(details: Mapping[str, Any]) -> str:
    if details.get("dynamic_allocation"):
        return (
            "dynamic, with which --strategy allreduce needs --workers MIN..MAX: use that or --strategy ps, or set "
            "spark.dynamicAllocation.enabled=false"
        )
    return "fixed, as --strategy allreduce requires"


def _gpus(details: Mapping[str, Any]) -> str:
    executor, task = int(details.get("executor_gpus", 0)), float(details.get("task_gpus", 0))
    if not executor:
        return "none managed by Spark; a worker uses the GPUs that it finds on its host"
    task_share = f"{task:g} per task" if task else "none per task: use --gpus N, or set spark.task.resource.gpu.amount"
    return f"{executor} per executor, {task_share}"


def _side_channel(channel: Channel) -> str:
    if not channel.has_side_channel:
        return f"none ({channel.no_side_channel_reason}): events arrive between cells, not while one is executed"
    before = time.monotonic()
    channel.call("busy", "{}")
    return f"answers in {1000 * (time.monotonic() - before):.0f} ms"


def _python(environment: Mapping[str, Any]) -> str:
    versions = f"{environment['python']} on the cluster, {platform.python_version()} here"
    if _below(str(environment["python"]), OLDEST_PYTHON):
        return f"{versions}; the cluster's must be 3.8 or newer: set spark.pyspark.python"
    return versions


def _tensorflow(environment: Mapping[str, Any]) -> str:
    version = environment.get("tensorflow")
    if not version:
        return "missing in the driver's Python: install it on all nodes, or ship an environment with spark.archives"
    has = f"{version}, Keras {environment.get('keras') or 'of TensorFlow'} (the driver's)"
    if _below(str(version), OLDEST_TENSORFLOW):
        return f"{has}; too old: {TENSORFLOW_RANGE} is supported"
    if version_numbers(str(version)) > NEWEST_TENSORFLOW:
        return f"{has}; newer than the tested versions: {TENSORFLOW_RANGE}"
    return has


def _clock(cluster_time: float, asked_at: float, answered_at: float) -> str:
    """The cluster's clock was read between these two times of this machine's clock."""
    skew = max(asked_at - cluster_time, cluster_time - answered_at, 0.0)
    if skew > SKEW_SECONDS:
        return f"the cluster's differs by {skew:.0f} s: synchronize it with NTP"
    return "in sync"


def _below(version: str, oldest: tuple[int, int]) -> bool:
    """Whether the version is known and older."""
    numbers = version_numbers(version)
    return bool(numbers) and numbers < oldest


def _answer(ask: Callable[[], str]) -> str:
    try:
        return ask()
    except _PROBLEMS as error:
        return f"cannot be asked: {error}"
