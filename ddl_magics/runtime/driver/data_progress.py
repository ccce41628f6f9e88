"""How far Spark is with the rows of --data: the tasks of its stages that are done, and what they have made."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Callable, Iterator, Sequence

from ..spark import jvm_gateway

if TYPE_CHECKING:
    from ..events import Reading
    from ..spark.pyspark_types import SparkContext

LOOK_SECONDS = 1.0

#: report(message, tasks done, all tasks)
Report = Callable[[str, int, int], None]


@contextlib.contextmanager
def watch(
    sc: SparkContext, group: str, activity: str, report: Report, going: Callable[[], bool], last_stage: bool = True
) -> Iterator[None]:
    """Report each second, while the context lasts and `going()`, how far the jobs of `group` are.

    activity: of the message, such as "preparing df". last_stage: whether the last stage counts, which for ranks it does
    not. Nothing is reported before Spark has stages with several tasks, or where Spark does not say.
    """
    over = threading.Event()

    def look() -> None:
        with contextlib.suppress(Exception):  # Py4J's, of many kinds: a context that was stopped, say
            _watch(sc, group, activity, report, last_stage, lambda: not over.wait(LOOK_SECONDS) and going())

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _watch(
    sc: SparkContext, group: str, activity: str, report: Report, last_stage: bool, going: Callable[[], bool]
) -> None:
    began, before = time.monotonic(), (0, 0)
    context = jvm_gateway.separate_context(sc)
    while going():
        stages = stages_of(context, group, last_stage)
        completed, tasks = _tasks(context, stages)
        if tasks > 1 and (completed, tasks) != before:
            before = completed, tasks
            # Ranks read the packed blocks, of which Spark does not know how many rows they have.
            sizes = _bytes(context, group), rows_read(context, stages, group) if last_stage else 0
            report(message(activity, completed, tasks, *sizes, time.monotonic() - began), completed, tasks)


def stages_of(sc: SparkContext, group: str, last_stage: bool = True) -> list[int]:
    """The stages of the jobs of a group, each once where jobs share it. last_stage: as of `watch`."""
    tracker = sc.statusTracker()
    stages: dict[int, None] = {}
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        of_job = sorted(info.stageIds) if info is not None else []
        stages.update(dict.fromkeys(of_job if last_stage else of_job[:-1]))
    return list(stages)


def _tasks(sc: SparkContext, stages: Sequence[int]) -> tuple[int, int]:
    """(completed tasks, all tasks)"""
    tracker, completed, tasks = sc.statusTracker(), 0, 0
    for stage in stages:
        info = tracker.getStageInfo(stage)
        if info is not None:
            completed, tasks = completed + info.numCompletedTasks, tasks + info.numTasks
    return completed, tasks


def rows_read(sc: SparkContext, stages: Sequence[int], name: str) -> int:
    """The rows that the stages have read so far; 0 where Spark does not count them.

    It counts blocks where rows are read of what is persisted, such as a cached DataFrame. name: of the RDD that the
    stages persist themselves.
    """
    store, rows = sc._jsc.sc().statusStore(), 0
    foreign = {int(info.id()) for info in sc._jsc.sc().getRDDStorageInfo() if info.name() != name}
    for stage in stages:
        with contextlib.suppress(Exception):  # Py4J's, of a stage that has not begun
            attempt = store.lastStageAttempt(stage)
            if foreign.isdisjoint(int(attempt.rddIds().apply(index)) for index in range(attempt.rddIds().size())):
                rows += int(attempt.inputRecords())
    return rows


def _bytes(sc: SparkContext, name: str) -> int:
    """Of the persisted RDDs of that name."""
    infos = [info for info in sc._jsc.sc().getRDDStorageInfo() if info.name() == name]
    return sum(int(info.memSize() + info.diskSize()) for info in infos)


def of_reading(activity: str, event: Reading, workers: int) -> str:
    """How much all workers together have read of files. event: of one of them."""
    seconds = event.seconds or 1.0
    rate = event.rows * workers / seconds
    texts = ["%s: %s of %s rows" % (activity, *("{:,}".format(count * workers) for count in (event.rows, event.of)))]
    texts.append("{:,.0f} rows/s, {:.1f} MB/s".format(rate, rate * event.row_bytes / 1e6))
    if event.rows:
        texts.append(_remaining(seconds * (event.of - event.rows) / event.rows))
    return ", ".join(texts)


def _remaining(seconds: float) -> str:
    return "about %d:%02d left" % divmod(round(seconds), 60)


def message(activity: str, completed: int, tasks: int, size: int, rows: int, seconds: float) -> str:
    """size: bytes made so far; rows: read so far; either 0 where it is not known. seconds: since the beginning."""
    texts = ["%s: %d of %d parts" % (activity, completed, tasks)]
    if rows:
        texts.append("{:,} rows, {:,.0f} rows/s".format(rows, rows / seconds))
    if size:
        texts.append("%.0f MB, %.1f MB/s" % (size / 1e6, size / 1e6 / seconds))
    if 0 < completed < tasks:
        texts.append(_remaining(seconds * (tasks - completed) / completed))
    return ", ".join(texts)
