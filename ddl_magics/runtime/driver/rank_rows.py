"""The rows of --data on their way to the ranks: distributed before the first attempt, and dealt again where needed."""

from __future__ import annotations

import contextlib
import os
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Callable

from .. import events
from ..cell import process_settings
from ..data import packing, share_files
from ..data.columns import DataError
from ..rank.config import JobConfig
from ..run_spec import RunSpec
from ..spark import spark_error
from ..wording import counted
from . import data_progress
from .journal import Journal

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

    from ..data.feed import Feed
    from ..data.records import Inputs, Manifest


class RankRows:
    """The feed of --data. Without --data, partitions without rows."""

    def __init__(
        self,
        sc: SparkContext,
        spec: RunSpec,
        group: str,
        prepare: Callable[[SparkContext, str, int], Feed] | None,
        journal: Journal,
    ) -> None:
        """group: of the Spark jobs. prepare(sc, group, workers): makes the feed; None without --data."""
        self._sc, self._spec, self._group, self._journal = sc, spec, group, journal
        self._workers = spec.ranks
        self._prepare = prepare
        self._floatx = process_settings.floatx(spec.cell)
        self._feed: Feed | None = None
        self._feeds: list[Feed] = []  # all that were made
        self._dealing = threading.RLock()

    @property
    def inputs(self) -> Inputs | None:
        return None if self._feed is None else self._feed.inputs

    def distribute(self, workers: int) -> None:
        """Make the feed for so many workers, if it is not theirs."""
        is_theirs = self._feed is not None and (self._workers == workers or self._feed.is_whole)
        self._workers = workers
        if self._prepare is None or is_theirs:
            return
        text = "distributing the rows of %s to %s" % (self._spec.data, counted(workers, "worker"))
        self._journal.enter(events.PREFLIGHT, text)
        with self._watched(events.PREFLIGHT, self._group, "preparing"):
            feed = self._feed = self._prepare(self._sc, self._group, workers)
        self._feeds.append(feed)
        for notice in feed.notices + self._about_losses(feed):
            self._journal.notice("info", notice)
        rows = {name: feed.manifest[name] for name in ("rows", "validation_rows")}
        self._journal.report(events.make("data", events.JOB, name=self._spec.data, inputs=feed.inputs, **rows))

    def _about_losses(self, feed: Feed) -> list[str]:
        floatx = share_files.floatx_of({**feed.manifest, "floatx": self._floatx}, os.environ)
        try:
            return packing.about_losses(feed.manifest["data"], feed.losses, floatx)
        except ValueError as error:
            raise DataError("%s, %s" % (feed.manifest["data"], error)) from error

    def watched_by(self, group: str) -> contextlib.AbstractContextManager[None]:
        """While it lasts, the run's state says how far the job group of an attempt is with the rows for its ranks."""
        if self._feed is not None and (self._feed.cache is None or self._feed.cache["dealt"]):
            return self._watched(events.SUBMITTED, group, "dealing")
        return contextlib.nullcontext()

    def _watched(self, state: str, group: str, verb: str) -> contextlib.AbstractContextManager[None]:
        def report(message: str, completed: int, tasks: int) -> None:
            self._journal.enter_from((state,), state, message, ready=completed, needed=tasks)

        text = "%s %s" % (verb, self._spec.data)
        going = lambda: self._journal.state == state  # noqa: E731
        return data_progress.watch(self._sc, group, text, report, going, last_stage=state == events.PREFLIGHT)

    def note_reading(self, event: events.Reading) -> None:
        """Rank 0 has read so many of its rows of files. The others read as many, at the same time."""
        before, workers = (events.RUNNING, events.WAITING), self._workers
        if event.rows >= event.of:
            self._journal.enter_from(before, events.RUNNING, "running on %s" % counted(workers, "worker"))
            return
        shares = 1 if self._is_whole else workers
        message = data_progress.of_reading("reading %s" % self._spec.data, event, shares)
        self._journal.enter_from(before, events.WAITING, message, ready=event.rows, needed=event.of)

    def partitions(self) -> RDD[Any]:
        """An RDD with a partition for each rank, with its rows."""
        return self._of_ranks(self._workers)

    def partition_of_one(self) -> RDD[Any]:
        """An RDD with the only partition of one of the ranks that come and go: with all rows, or with none."""
        return self._of_ranks(1)

    def _of_ranks(self, count: int) -> RDD[Any]:
        if self._feed is None:
            return self._sc.parallelize(range(count), count)
        rdd: RDD[Any] = self._feed.rdd
        return rdd

    @property
    def _is_whole(self) -> bool:
        return self._feed is not None and self._feed.is_whole

    def described_in(self, config: JobConfig) -> JobConfig:
        """The configuration, with what ranks must know of their rows."""
        if self._feed is None:
            return config
        manifest: Manifest = {**self._feed.manifest, "floatx": self._floatx}
        return replace(config, manifest=manifest, cache=self._feed.cache, whole_data=self._feed.is_whole)

    def deal_all(self) -> Feed:
        """Deal the rows of all ranks, where the cache was to have some."""
        with self._dealing:
            assert self._feed is not None
            self._feed = self._feed.with_all_ranks()
            self._feeds.append(self._feed)
            return self._feed

    def dealt_again(self, config: JobConfig) -> tuple[RDD[Any], JobConfig]:
        """The partitions, and the configuration, for a rank that is started again alone: it may be on another host."""
        if self._feed is None:
            return self.partitions(), config
        with self._dealing:
            feed = self.deal_all()
            earlier, cache = config.cache, feed.cache
            if earlier is not None and (cache is None or earlier["digest"] != cache["digest"]):
                raise RuntimeError(
                    "the rows of --data have changed since they came into the cache: start the run again"
                )
            return feed.rdd, replace(config, cache=cache)

    def close(self) -> None:
        for feed in self._feeds:
            spark_error.best_effort(feed.close)
