"""The cache of --data as the driver sees it: which hosts have the rows of a run, from an earlier one."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Mapping, Sequence

from ..spark import jvm_gateway, located, spark_error
from . import by_value, cache_folder, cache_key
from .cache_option import CacheOption
from .columns import is_spark
from .frame_parts import NotKnown

if TYPE_CHECKING:
    from ..spark.pyspark_types import Rdd, SparkContext
    from .plan import DataPlan
    from .records import CacheUse, FeedRecord


@dataclass
class Generation:
    """The shares that were made of rows in one order. hosts: by rank, those that have its share."""

    digest: str
    created: float
    feed: FeedRecord
    hosts: dict[int, list[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class CacheContents:
    """What the hosts, `all_hosts`, have of the rows with a key."""

    key: str
    option: CacheOption
    all_hosts: Sequence[str]
    generations: Mapping[str, Generation]

    def complete(self, size: int) -> Generation | None:
        """The newest generation of which there is the share of every rank, wherever."""
        complete = [generation for generation in self.generations.values() if len(generation.hosts) == size]
        return max(complete, key=lambda generation: generation.created, default=None)

    def everywhere(self, digest: str) -> list[int]:
        """The ranks whose shares of these rows all hosts have: they need no rows, wherever they start."""
        hosts_by_rank = self.generations[digest].hosts if digest in self.generations else {}
        return [rank for rank, hosts in hosts_by_rank.items() if set(hosts) >= set(self.all_hosts)]

    def use(self, data: str, digest: str, feed: FeedRecord, dealt: Sequence[int]) -> CacheUse:
        return {
            "key": self.key,
            "digest": digest,
            "folder": self.option.folder,
            "max_bytes": self.option.max_bytes,
            "data": data,
            "feed": feed,
            "dealt": list(dealt),
        }

    def still_holds(self, plan: DataPlan) -> bool:
        """Whether the files have not changed since."""
        try:
            return cache_key.of_plan(plan) == self.key
        except Exception:  # a file has gone, or Py4J's
            return False


def look(sc: SparkContext, plan: DataPlan, group: str) -> tuple[CacheContents | None, list[str]]:
    """(what the cache has, or None where it is not used, notices for the user). A Spark job with a task a host."""
    if plan.cache is None or not all(map(is_spark, plan.frames)):
        return None, []
    try:
        key = cache_key.of_plan(plan)
        hosts, answers = _ask(sc, plan.cache, group, "look", key)
    except NotKnown as error:
        return None, ["--data %s is not kept for later runs: %s" % (plan.name, error)]
    except Exception as error:  # Py4J's, of many kinds
        return None, ["--cache: it is not used: %s" % spark_error.cause(error)]
    generations: dict[str, Generation] = {}
    for host, answer in zip(hosts, answers):
        for digest, shares in answer.items():
            generation = generations.setdefault(digest, Generation(digest, shares["made"], shares["feed"]))
            for rank in shares["ranks"]:
                generation.hosts.setdefault(rank, []).append(host)
    return CacheContents(key, plan.cache, hosts, generations), []


def listed(sc: SparkContext, option: CacheOption, group: str) -> list[dict[str, Any]]:
    """The entries of all hosts, each with its "host"."""
    hosts, answers = _ask(sc, option, group, "listed")
    return [dict(entry, host=host) for host, answer in zip(hosts, answers) for entry in answer]


def clear(sc: SparkContext, option: CacheOption, group: str) -> None:
    """Remove the entries of all hosts."""
    _ask(sc, option, group, "clear")


def _ask(sc: SparkContext, option: CacheOption, group: str, name: str, *arguments: str) -> tuple[list[str], list[Any]]:
    """(hosts, the answer of each): a function of cache_folder.py with (environment, folder, *arguments)."""
    hosts = located.hosts(sc)
    function, folder = by_value.functions_of(cache_folder)[name], option.folder

    def ask(_: object) -> list[Any]:
        return [function(os.environ, folder, *arguments)]

    rdd: Rdd = located.partitions(sc, [[host] for host in hosts])
    return hosts, jvm_gateway.collect(rdd.mapPartitions(ask), group, "the cache of --data")


def time_text(moment: float) -> str:
    """A time of today as "14:02", another with its date."""
    local, today = time.localtime(moment), time.localtime()
    return time.strftime("%H:%M" if local[:3] == today[:3] else "%Y-%m-%d %H:%M", local)
