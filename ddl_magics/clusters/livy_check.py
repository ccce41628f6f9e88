"""`%ddl check` on a Livy session: a line for each thing that a run needs, with the fix where it is wrong.

Nothing is started for it: what executors have is said as Spark knows it, and what Python has as the driver's has it.
"""

from __future__ import annotations

import platform
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from ddl_magics.clusters.livy import LivyCluster
from ddl_magics.clusters.livy_http import LivyHttp
from ddl_magics.clusters.livy_session import HEARTBEAT_SECONDS
from ddl_magics.wording import counted

#: Clocks that differ by more are pointed out: a run's times come from the cluster, its ages from here.
SKEW_SECONDS = 2.0
#: What the runtime is made for and tested with; newer versions may work.
OLDEST_SPARK, OLDEST_PYTHON = (3, 0), (3, 8)
OLDEST_TENSORFLOW, NEWEST_TENSORFLOW = (2, 13), (2, 21)
TENSORFLOW_RANGE = "2.13 (Keras 2) to 2.21 (Keras 3)"

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_PROBLEMS = (ConnectionError, ProcessLookupError, TimeoutError, KeyError, TypeError, ValueError)


def lines(cluster: LivyCluster) -> Iterator[tuple[str, str]]:
    """(what, how it is)."""
    session = cluster.session
    yield "cluster", cluster.name
    yield "Livy", _asked(lambda: _livy(session.http))
    yield "CSRF", _asked(lambda: _csrf(cluster))
    try:
        details = cluster.details(fresh=True)
    except _PROBLEMS as error:
        yield "session", f"cannot be used: {error}"
        return
    known = _session(cluster)
    yield "session", f"{known.get('state', 'cannot be asked')}; {_heartbeat(cluster, known)}"
    yield "idle timeout", _idle_timeout(known)
    yield "Spark", _spark(details)
    yield "executors", _executors(details)
    yield "allocation", _allocation(details)
    yield "GPUs", _gpus(details)
    yield "side channel", _asked(lambda: _side_channel(cluster))
    try:
        before = time.time()
        there = cluster.channel.look()
        now = time.time()
    except _PROBLEMS as error:
        yield "Python", f"cannot be asked: {error}"
        return
    yield "Python", _python(there)
    yield "TensorFlow", _tensorflow(there)
    yield "clock", _clock(there["time"], before, now)


def _livy(http: LivyHttp) -> str:
    url = urlsplit(http.url)
    clear = url.scheme == "http" and url.hostname not in _LOOPBACK
    warning = "; nothing is encrypted: use https:// where the network is not yours" if clear else ""
    return f"{http.get('/version').get('version')} at {http.url}, {http.who}{warning}"


def _csrf(cluster: LivyCluster) -> str:
    http = cluster.session.http
    demanded = http.demands_header(f"/sessions/{cluster.session.number}/connect")
    if demanded is None:
        return "X-Requested-By is sent; whether it is demanded is not told"
    if demanded and not http.header_configured:
        return (
            "X-Requested-By is demanded and sent, but sparkmagic's own cells lack it: add "
            '"custom_headers": {"X-Requested-By": "livy"} to its config.json'
        )
    return f"X-Requested-By is sent, and {'demanded' if demanded else 'not demanded'}"


def _session(cluster: LivyCluster) -> Mapping[str, Any]:
    try:
        known = cluster.session.http.get(f"/sessions/{cluster.session.number}")
    except _PROBLEMS:
        return {}
    return known if isinstance(known, dict) else {}


def _heartbeat(cluster: LivyCluster, known: Mapping[str, Any]) -> str:
    seconds = known.get("heartbeatTimeoutInSecond")
    if cluster.session.detached or seconds == 0:
        return "outlives this kernel (no heartbeat)"
    if seconds or cluster.session.ours:
        return f"ends with its kernel, or {seconds or HEARTBEAT_SECONDS} s after a crash (heartbeat)"
    return "ends with its kernel, or about a minute after a crash, if it is sparkmagic's: this Livy tells no heartbeat"


def _idle_timeout(known: Mapping[str, Any]) -> str:
    idle, whole = known.get("idleTimeout"), known.get("ttl")
    if idle:
        ends = f"{idle} without a request"
    else:
        ends = "Livy's own (livy.server.session.timeout, 1 h unless set), which it does not tell"
    age = f"; it ends {whole} after its start, run or no run: make a new one for what takes longer" if whole else ""
    return f"{ends}; a run keeps the session alive{age}"


def _spark(details: Mapping[str, Any]) -> str:
    version = str(details.get("spark"))
    old = _below(version, OLDEST_SPARK)
    slots = counted(int(details["slots"]), "slot")
    return f"{version} at {details.get('master')}, {slots}" + ("; Spark 3.0 or newer is needed" if old else "")


def _executors(details: Mapping[str, Any]) -> str:
    slots, ready = int(details["slots"]), int(details.get("ready", 0))
    if not slots:
        return "none: ask for some with numExecutors in %%configure -f, or in session_configs of config.json"
    coming = "" if ready >= slots else "; the rest come with the first run"
    return f"{counted(ready, 'slot')} ready, {details.get('free', slots)} of {slots} free{coming}"


def _allocation(details: Mapping[str, Any]) -> str:
    if details.get("dynamic_allocation"):
        return (
            "dynamic, with which --strategy allreduce is refused: set spark.dynamicAllocation.enabled=false, "
            "or use --strategy ps"
        )
    return "fixed, as --strategy allreduce needs it"


def _gpus(details: Mapping[str, Any]) -> str:
    executor, task = int(details.get("executor_gpus", 0)), float(details.get("task_gpus", 0))
    if not executor:
        return "none that Spark manages; a worker uses those that it finds on its host"
    each = f"{task:g} a task" if task else "none a task: say --gpus N, or set spark.task.resource.gpu.amount"
    return f"{executor} an executor, {each}"


def _side_channel(cluster: LivyCluster) -> str:
    if not cluster.channel.beside:
        return f"none ({cluster.channel.why_not}): events come between the cells, not during them"
    before = time.monotonic()
    cluster.channel.call("busy", "{}")
    return f"answers in {1000 * (time.monotonic() - before):.0f} ms"


def _python(there: Mapping[str, Any]) -> str:
    both = f"{there['python']} on the cluster, {platform.python_version()} here"
    if _below(str(there["python"]), OLDEST_PYTHON):
        return f"{both}; the cluster's must be 3.8 or newer: name one in spark.pyspark.python"
    return both


def _tensorflow(there: Mapping[str, Any]) -> str:
    version = there.get("tensorflow")
    if not version:
        return "missing in the driver's Python: install it on all nodes, or bring an environment by spark.archives"
    has = f"{version}, Keras {there.get('keras') or 'of TensorFlow'} (the driver's)"
    if _below(str(version), OLDEST_TENSORFLOW):
        return f"{has}; too old: {TENSORFLOW_RANGE} is supported"
    if _numbers(str(version)) > NEWEST_TENSORFLOW:
        return f"{has}; newer than what is tested: {TENSORFLOW_RANGE}"
    return has


def _clock(theirs: float, before: float, now: float) -> str:
    """Their time lies somewhere between ours before and after the question."""
    skew = max(before - theirs, theirs - now, 0.0)
    if skew > SKEW_SECONDS:
        return f"the cluster's differs by {skew:.0f} s: set it by NTP"
    return "as here"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def _below(version: str, oldest: tuple[int, int]) -> bool:
    """Whether it is known and older."""
    return bool(_numbers(version)) and _numbers(version) < oldest


def _asked(ask: Callable[[], str]) -> str:
    try:
        return ask()
    except _PROBLEMS as error:
        return f"cannot be asked: {error}"
