"""`%ddl check` on a Livy session: a line for each thing that a run needs, with the fix where it is wrong."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ddl_magics.clusters.livy import LivyCluster
from ddl_magics.wording import counted

#: Clocks that differ by more are pointed out: a run's times come from the cluster, its ages from here.
SKEW_SECONDS = 2.0

_PROBLEMS = (ConnectionError, ProcessLookupError, TimeoutError, KeyError, TypeError, ValueError)


def lines(cluster: LivyCluster) -> Iterator[tuple[str, str]]:
    """(what, how it is); nothing is started for it."""
    yield "cluster", cluster.name
    yield "Livy", _asked(lambda: _livy(cluster))
    try:
        details = cluster.details(fresh=True)
    except _PROBLEMS as error:
        yield "session", f"cannot be used: {error}"
        return
    yield "session", _asked(lambda: _session(cluster))
    yield "Spark", f"{details.get('spark')} at {details.get('master')}, {counted(int(details['slots']), 'slot')}"
    if details.get("dynamic_allocation"):
        yield "executors", "dynamic allocation: set spark.dynamicAllocation.enabled=false, or use --strategy ps"
    else:
        yield "executors", f"{counted(int(details.get('ready', 0)), 'slot')} ready, the rest come with the first run"
    yield "side channel", _asked(lambda: _side_channel(cluster))
    try:
        before = time.time()
        there = cluster.channel.look()
        now = time.time()
    except _PROBLEMS as error:
        yield "Python", f"cannot be asked: {error}"
        return
    yield "Python", f"{there['python']} on the cluster, {platform.python_version()} here"
    yield "TensorFlow", _tensorflow(there)
    yield "clock", _clock(there["time"], before, now)


def _livy(cluster: LivyCluster) -> str:
    session = cluster.session
    return f"{session.http.get('/version').get('version')} at {session.http.url}, {session.http.who}"


def _session(cluster: LivyCluster) -> str:
    known: Mapping[str, Any] = cluster.session.http.get(f"/sessions/{cluster.session.number}")
    if cluster.session.detached:
        ends = "outlives this kernel, ends"
    elif known.get("heartbeatTimeoutInSecond"):
        ends = f"ends {known['heartbeatTimeoutInSecond']} s after its kernel, or"
    else:
        ends = "ends with its kernel, or"
    return f"{known.get('state')}; {ends} after Livy's session timeout (1 h unless set); a run keeps it alive"


def _side_channel(cluster: LivyCluster) -> str:
    if not cluster.channel.beside:
        return f"none ({cluster.channel.why_not}): events come between the cells, not during them"
    before = time.monotonic()
    cluster.channel.call("busy", "{}")
    return f"answers in {1000 * (time.monotonic() - before):.0f} ms"


def _tensorflow(there: Mapping[str, Any]) -> str:
    if not there.get("tensorflow"):
        return "missing in the driver's Python: install it on all nodes, or bring an environment by spark.archives"
    return f"{there['tensorflow']}, Keras {there.get('keras') or 'of TensorFlow'} (the driver's)"


def _clock(theirs: float, before: float, now: float) -> str:
    """Their time lies somewhere between ours before and after the question."""
    skew = max(before - theirs, theirs - now, 0.0)
    if skew > SKEW_SECONDS:
        return f"the cluster's differs by {skew:.0f} s: set it by NTP"
    return "as here"


def _asked(ask: Callable[[], str]) -> str:
    try:
        return ask()
    except _PROBLEMS as error:
        return f"cannot be asked: {error}"
