"""Ending a run from outside its kernel, or without one: what was done, and what is left to do, in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from ddl_magics.runtime import events as ev
from ddl_magics.spec import RunSpec
from ddl_magics.store import RunFolder, RunRecord

if TYPE_CHECKING:
    from ddl_magics.clusters.livy import LivyCluster
    from ddl_magics.run import Run

#: How long a run may take to end: a step, the model's way back, and the driver's grace before it cancels.
STOP_SECONDS = 90.0
#: How long a Livy that does not answer is asked.
REACH_SECONDS = 15.0

#: asked: who follows the run will end it. ended: it had ended before. stopped: it has ended now. nothing: its kernel is
#: gone, and nothing of it runs. runs: its kernel is gone, and it may train on.
Outcome = Literal["asked", "ended", "stopped", "nothing", "runs"]


@dataclass(frozen=True)
class Ending:
    """What became of a wish to end a run: a line, and in `how` what a person can do where something is left."""

    outcome: Outcome
    message: str
    how: str = ""

    @property
    def text(self) -> str:
        return f"{self.message} {self.how}".rstrip()

    def to_record(self) -> dict[str, str]:
        return asdict(self)


def ask(run: Run) -> Ending:
    """Ask whoever follows the run to end it."""
    over = _over(run.name, run.state, run.cluster, run.attachable, run.followed)
    if over is None:
        run.request_stop()
    return over or _asked(run.name)


def ask_stored(record: RunRecord) -> Ending:
    """The same for a run of the store, without reading its events.

    Raises:
        OSError: the store does not take the request, or the run has been removed.
    """
    folder = RunFolder(record.folder)
    over = _over(record.name, record.state, record.cluster, bool(record.place), folder.owned())
    if over is None:
        folder.request("stop")
    return over or _asked(record.name)


def _asked(name: str) -> Ending:
    return Ending("asked", f"{name} stops after its current step; its history and model are kept.")


def _over(name: str, state: str, cluster: str, attachable: bool, followed: bool) -> Ending | None:
    """Why there is nobody to ask; None if there is. `followed`: the run's kernel lives."""
    if state not in ev.TERMINAL:
        return None
    if state != ev.LOST:
        return Ending("ended", f"{name} has ended already: {state}.")
    if attachable:
        how = f"%ddl attach {name} goes on with it, if its session lives."
        return Ending("runs", f"{name} is LOST: {_cause(followed)}.", how)
    if followed:
        may = f"{name} is LOST: {_cause(followed)}, and it may still train on {cluster}."
        return Ending("runs", may, "Restart the kernel of its notebook: its Spark ends with it.")
    gone = f"{name} is LOST: {_cause(followed)}, and its Spark ({cluster}) with it: nothing to stop."
    return Ending("nothing", gone)


def _cause(followed: bool) -> str:
    return "its kernel could not follow it any more" if followed else "its kernel is gone"


def end(record: RunRecord, seconds: float = STOP_SECONDS) -> Ending:
    """End a run, also one whose kernel is gone, where its session is reached with sparkmagic's configuration.

    This process becomes the owner of such a run until the end, so that its last events and its model are stored.
    Two of these at once: one ends the run, the other asks the first to.
    """
    answer = ask_stored(record)
    if answer.outcome != "runs" or not record.place:
        return answer
    reached = _reach(record)
    return reached if isinstance(reached, Ending) else _take_and_stop(record, reached, seconds)


def _reach(record: RunRecord) -> LivyCluster | Ending:
    """The session that has the run, or why there is nothing to end, or nothing that can be reached."""
    from ddl_magics.clusters import sparkmagic_link
    from ddl_magics.clusters.base import Polled
    from ddl_magics.clusters.choice import Choice
    from ddl_magics.clusters.livy_channel import DEAD
    from ddl_magics.clusters.livy_http import Gone, LivyHttp, patiently
    from ddl_magics.clusters.livy_session import NoSession

    place = record.place
    try:
        http = LivyHttp(sparkmagic_link.connection_of(sparkmagic_link.endpoint(None, str(place["livy"]))))
        told = patiently(lambda: http.get(f"/sessions/{place['session']}"), REACH_SECONDS)
        named = told.get("name") or place.get("name")
        if told["state"] in DEAD or named != (place.get("name") or named):
            return _nothing(record)
        cluster = Choice(None).at(place)
    except Gone:
        return _nothing(record)
    except (NoSession, ConnectionError, TimeoutError, KeyError, TypeError) as error:
        return _runs(record, str(error))
    answer = cluster.poll(record.id, 0)
    if not isinstance(answer, Polled):
        return _nothing(record) if answer.gone else _runs(record, answer.message)
    return _nothing(record) if answer.state == ev.LOST else cluster


def _take_and_stop(record: RunRecord, cluster: LivyCluster, seconds: float) -> Ending:
    from IPython.core.error import UsageError

    from ddl_magics import attaching
    from ddl_magics.turns import Turns

    folder = RunFolder(record.folder)
    try:
        run = attaching.attach(attaching.Found(RunSpec.from_record(record.spec), folder, cluster), Turns())
    except UsageError as error:
        now = folder.record()
        if now is not None and not now.over:
            return ask_stored(now)
        return _runs(record, str(error))
    run.request_stop()
    if run.settled(seconds):
        rest = f"{_session(record.place)} lives on, and keeps its executors until it is deleted."
        return Ending("stopped", f"{record.name} is {run.state}; its history and model are kept.", rest)
    run.give_up(0.0)
    return Ending("runs", f"{record.name} was asked to stop and has not ended after {seconds:.0f} s.", _how(record))


def _nothing(record: RunRecord) -> Ending:
    gone = f"{record.name} is LOST: {_session(record.place)} does not have it any more. Nothing of it runs."
    return Ending("nothing", gone)


def _runs(record: RunRecord, why: str) -> Ending:
    may = f"{record.name} is LOST: {_cause(RunFolder(record.folder).owned())}, and it may still train in"
    return Ending("runs", f"{may} {_session(record.place)}, which could not be reached from here: {why}", _how(record))


def _how(record: RunRecord) -> str:
    place = record.place
    request = f"DELETE {place.get('livy')}/sessions/{place.get('session')}"
    again = f"%ddl attach {record.name}, then %ddl stop {record.name}"
    return f"In a notebook that may use it: {again}. Or end the whole session: {request}"


def _session(place: Mapping[str, Any]) -> str:
    return f"Livy session {place.get('session')} at {urlsplit(str(place.get('livy'))).hostname}"
