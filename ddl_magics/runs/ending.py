"""Ends a run from outside its kernel, or one whose kernel is gone, and tells what remains to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from ddl_magics.dashboard.state_words import STATE_WORDS
from ddl_magics.runtime import events as ev
from ddl_magics.runtime.assert_never import assert_never
from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.store import RunFolder, RunRecord, SearchFolder, SearchRecord

if TYPE_CHECKING:
    from ddl_magics.clusters.livy import LivyCluster
    from ddl_magics.runs.run import Run

#: Longest time in which a run ends: one step, the transfer of the model, and the driver's grace before it cancels.
STOP_SECONDS = 90.0
#: How long requests to a Livy that does not answer are repeated.
REACH_SECONDS = 15.0

#: asked: the kernel that follows the run will end it. ended: the run had ended before. stopped: the run has ended now.
#: nothing: the kernel is gone, and the run does not train. runs: the kernel is gone, and the run may still train.
Outcome = Literal["asked", "ended", "stopped", "nothing", "runs"]


@dataclass(frozen=True)
class Ending:
    """The outcome of a request to end a run, in one line. `how`: what to do if the run may still train."""

    outcome: Outcome
    message: str
    how: str = ""

    @property
    def text(self) -> str:
        return f"{self.message} {self.how}".rstrip()

    @property
    def success(self) -> bool:
        """Whether the run has ended because of the request, or will."""
        match self.outcome:
            case "asked" | "stopped":
                return True
            case "ended" | "nothing" | "runs":
                return False
            case never:
                assert_never(never)

    def to_record(self) -> dict[str, str]:
        return asdict(self)


def ask(run: Run) -> Ending:
    """Ask the kernel that follows the run to end it."""
    stopping = _stopping(run.state, run.spec.strategy, run.has_trained)
    return _ask(run.name, run.state, run.cluster, run.attachable, run.followed, run.request_stop, stopping)


def ask_stored(record: RunRecord) -> Ending:
    """Ask the kernel that follows a stored run to end it, without reading the run's events.

    Raises:
        OSError: the request cannot be written, or the run has been removed.
    """
    if record.is_batch and not record.over:
        return Ending("runs", f"{record.name} is a batch of Livy.", f"`ddl-magics stop {record.name}` deletes it.")
    folder = RunFolder(record.folder)
    attachable, followed = record.attachable, folder.has_live_owner()
    request_stop = partial(folder.request, "stop")
    stopping = _stopping(record.state, str(record.spec.get("strategy")), bool(record.progress) or None)
    return _ask(record.name, record.state, record.cluster, attachable, followed, request_stop, stopping)


def ask_stored_search(record: SearchRecord) -> Ending:
    """Ask the kernel that follows a search to end it.

    Raises:
        OSError: the request cannot be written, or the search has been removed.
    """
    unasked = why_not_ask_search(record.name, record.state)
    if unasked is None:
        SearchFolder(record.folder).request("stop")
    return unasked or search_stop_requested(record.name)


def search_stop_requested(name: str) -> Ending:
    return Ending("asked", f"{name} starts no further trial, and its runs stop after their current step.")


def why_not_ask_search(name: str, state: str) -> Ending | None:
    """The ending of a search that no kernel can be asked to end; None if one can."""
    if state == ev.LOST:
        message = f"{name} is LOST: its kernel is gone, and nobody starts further trials."
        return Ending("runs", message, f"%ddl attach {name} continues it; %ddl stop ends a trial that still trains.")
    return Ending("ended", f"{name} has ended already: {state}.") if state in ev.TERMINAL else None


def _stopping(state: str, strategy: str, has_trained: bool | None) -> str:
    """What follows the name of a run that was asked to end. has_trained: None where only its events tell it."""
    if strategy == "monitor":
        return "stops; what it has counted is kept."
    if state in (ev.QUEUED, *STATE_WORDS):
        return "stops before it trains."
    if has_trained is None:
        return "stops after its current step; what it has trained is kept."
    if not has_trained:
        return "stops; it has not trained so far, and has no history and no model to keep."
    return "stops after its current step; its history and model are kept."


def _ask(
    name: str,
    state: str,
    cluster: str,
    attachable: bool,
    followed: bool,
    request_stop: Callable[[], object],
    stopping: str,
) -> Ending:
    """Ask the kernel of a run to end it, unless none can be asked. `followed`: its kernel is alive."""
    if state not in ev.TERMINAL:
        request_stop()
        return Ending("asked", f"{name} {stopping}")
    if state != ev.LOST:
        return Ending("ended", f"{name} has ended already: {state}.")
    if attachable:
        advice = f"%ddl attach {name} follows it again, if its session lives."
        return Ending("runs", f"{name} is LOST: {_cause(followed)}.", advice)
    if followed:
        message = f"{name} is LOST: {_cause(followed)}, and it may still train on {cluster}."
        return Ending("runs", message, "Restart the kernel of its notebook: its Spark ends with it.")
    message = f"{name} is LOST: {_cause(followed)}, and its Spark ({cluster}) with it: nothing to stop."
    return Ending("nothing", message)


def _cause(followed: bool) -> str:
    return "its kernel could not follow it any more" if followed else "its kernel is gone"


def end_run(record: RunRecord, seconds: float = STOP_SECONDS) -> Ending:
    """End a run. If its kernel is gone, sparkmagic's configuration must give access to its session.

    This process owns such a run until its end, to store its last events and its model. If two processes call this at
    once, one ends the run, and the other asks the first to.
    """
    answer = ask_stored(record)
    if answer.outcome != "runs" or not record.driver_address:
        return answer
    cluster_or_ending = _reach(record)
    if isinstance(cluster_or_ending, Ending):
        return cluster_or_ending
    return _take_and_stop(record, cluster_or_ending, seconds)


def _reach(record: RunRecord) -> LivyCluster | Ending:
    """The cluster of the session that has the run; an ending if the run is gone or the session cannot be reached."""
    from ddl_magics.clusters import livy_description, sparkmagic_link
    from ddl_magics.clusters.base import Polled, Unreachable
    from ddl_magics.clusters.choice import Choice
    from ddl_magics.clusters.livy_description import DEAD
    from ddl_magics.clusters.livy_http import Gone, LivyHttp, with_retries
    from ddl_magics.clusters.livy_session import NoSession

    address = record.driver_address
    try:
        http = LivyHttp(sparkmagic_link.connection(None, str(address["livy"])))
        session_id = livy_description.checked_id(address["session"])
        session = with_retries(lambda: livy_description.ask(http, session_id), REACH_SECONDS)
        # Another session may have the number by now.
        name = session.name or address.get("name")
        if session.state in DEAD or name != (address.get("name") or name):
            return _not_running(record)
        cluster = Choice(None).at(address)
    except Gone:
        return _not_running(record)
    except (NoSession, ConnectionError, TimeoutError, KeyError, ValueError) as error:
        return _may_run(record, str(error))
    answer = cluster.poll(record.id, 0)
    if isinstance(answer, Unreachable):
        return _not_running(record) if answer.session_ended else _may_run(record, answer.message)
    if isinstance(answer, Polled):
        return _not_running(record) if answer.state == ev.LOST else cluster
    assert_never(answer)


def _take_and_stop(record: RunRecord, cluster: LivyCluster, seconds: float) -> Ending:
    from IPython.core.error import UsageError

    from ddl_magics.runs import attaching
    from ddl_magics.runs.run_queue import RunQueue

    folder = RunFolder(record.folder)
    try:
        run = attaching.attach(attaching.AttachTarget(RunSpec.from_record(record.spec), folder, cluster), RunQueue())
    except UsageError as error:
        current = folder.record()
        if current is not None and not current.over:
            return ask_stored(current)
        return _may_run(record, str(error))
    run.request_stop()
    if run.settled(seconds):
        advice = f"{_session(record)} stays, and keeps its executors until it is deleted."
        return Ending("stopped", f"{record.name} is {run.state}; {kept(run)}.", advice)
    run.give_up(0.0)
    return Ending(
        "runs", f"{record.name} was asked to stop and has not ended after {seconds:.0f} s.", _manual_stop(record)
    )


def kept(run: Run) -> str:
    """What there is of the training of a run that was stopped, in words."""
    return "its history and model are kept" if run.has_trained else "it had not begun to train"


def _not_running(record: RunRecord) -> Ending:
    message = f"{record.name} is LOST: {_session(record)} does not have it any more. It does not run."
    return Ending("nothing", message)


def _may_run(record: RunRecord, reason: str) -> Ending:
    lost = f"{record.name} is LOST: {_cause(RunFolder(record.folder).has_live_owner())}"
    message = f"{lost}, and it may still train in {_session(record)}, which could not be reached from here: {reason}"
    return Ending("runs", message, _manual_stop(record))


def _manual_stop(record: RunRecord) -> str:
    address: Mapping[str, Any] = record.driver_address
    request = f"DELETE {address.get('livy')}/sessions/{address.get('session')}"
    attach = f"%ddl attach {record.name}, then {record.name}.stop()"
    return f"In a notebook with access to it: {attach}. Or end the whole session: {request}"


def _session(record: RunRecord) -> str:
    address = record.driver_address
    return f"Livy session {address.get('session')} at {urlsplit(str(address.get('livy'))).hostname}"
