"""What differs between what a run ran with and something else: today, or another run. Pure: a line for each thing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ddl_magics.history.description import in_words
from ddl_magics.history.provenance import Provenance

#: So many lines of a topic are shown.
SHOWN = 12

#: Settings of Spark that are others in every session.
_OF_SESSION = ("spark.app.", "spark.driver.port", "spark.executor.id", "spark.ui.", "spark.yarn.app.", "spark.repl.")

Map = Mapping[str, Any]


@dataclass(frozen=True)
class Difference:
    """topic: packages, machine, code, variables, data, Spark or workers. text: "keras 3.15.1, was 3.14.0"."""

    topic: str
    text: str


def environment(before: Provenance, now: Provenance) -> Iterator[Difference]:
    """Of packages, machine and code of the notebook, and of the cluster where both are known."""
    yield from packages(before.kernel, now.kernel, "packages")
    if before.driver and now.driver and before.driver.get("packages") != before.kernel.get("packages"):
        yield from packages(before.driver, now.driver, "cluster's packages")
    for name, title in (("python", "Python"), ("platform", "platform"), ("host", "host")):
        yield from _changed("machine", title, before.kernel.get(name), now.kernel.get(name))
    if before.spark and now.spark:
        yield from _changed("Spark", "version", before.spark.get("version"), now.spark.get("version"))
        yield from settings(before.spark.get("settings", {}), now.spark.get("settings", {}))
    if before.ranks and now.ranks:
        devices = [", ".join(sorted({str(rank.get("device", "")) for rank in kept.ranks})) for kept in (before, now)]
        yield from _changed("machine", "devices", *devices)
    yield from code(before.git, now.git)


def packages(before: Map, now: Map, topic: str) -> Iterator[Difference]:
    """Package by package; nothing where one side is not known."""
    old, new = before.get("packages", {}), now.get("packages", {})
    if old and new:
        for name in sorted({*old, *new}):
            yield from _changed(topic, name, old.get(name), new.get(name))


def settings(before: Map, now: Map) -> Iterator[Difference]:
    """Spark's settings, without those that are others in every session."""
    for name in sorted({*before, *now}):
        if not name.startswith(_OF_SESSION):
            yield from _changed("Spark", name, before.get(name), now.get(name))


def code(before: Map, now: Map) -> Iterator[Difference]:
    """The commit, and what differs from it."""
    if not before:
        return
    if not now:
        yield Difference("code", f"there is no git repository here; the run had commit {before['commit'][:10]}")
        return
    yield from _changed("code", "commit", before["commit"][:10], now["commit"][:10])
    if before["commit"] == now["commit"] and before.get("diff", "") != now.get("diff", ""):
        if not now.get("diff"):
            yield Difference("code", "the changes that the run had are gone: %ddl show RUN has them")
        else:
            yield Difference("code", "uncommitted changes are others than the run had")


def variables(before: Mapping[str, Map], now: Mapping[str, Map | None]) -> Iterator[Difference]:
    """The variables that the cell used. now: by name; None for one that is not defined, or has no fingerprint here."""
    for name, kept in sorted(before.items()):
        today = now.get(name)
        if today is None:
            yield Difference("variables", f"{name} is not defined; it was {in_words(kept)}")
        elif kept != today and _unhashed(kept) == _unhashed(today):
            yield Difference("variables", f"{name} has other values")
        elif kept != today:
            yield Difference("variables", f"{name}: {in_words(today)}, was {in_words(kept)}")


def _unhashed(value: Map) -> Map:
    return {name: each for name, each in value.items() if name != "sha256"}


def data(name: str, before: Map, now: Map | None) -> Iterator[Difference]:
    """The DataFrame of --data, or its files. now: None if it is not defined."""
    if not before:
        return
    if now is None:
        yield Difference("data", f"{name} is not defined")
        return
    changes = [*_columns(before.get("columns", {}), now.get("columns", {}))]
    for key, title in (("kind", "it is of"), ("rows", "rows:"), ("files", "number of files:")):
        if key in before and key in now and before[key] != now[key]:
            changes.append(f"{title} {now[key]}, was {before[key]}")
    changes += _files(before.get("sources", ()), now.get("sources", ()))
    hashes = (("content", "other rows"), ("sha256", "other values"), ("plan", "it is computed otherwise"))
    for key, words in hashes:
        if not changes and key in before and key in now and before[key] != now[key]:
            changes = [words]
    yield from (Difference("data", f"{name}: {line}") for line in changes)


def _columns(before: Map, now: Map) -> Iterator[str]:
    for column in dict.fromkeys([*now, *before]):
        if before.get(column) != now.get(column):
            yield f"column {column}: {now.get(column, 'missing')}, was {before.get(column, 'missing')}"


def _files(before: Sequence[Map], now: Sequence[Map]) -> Iterator[str]:
    old, new = ({file["path"]: file for file in files} for files in (before, now))
    for path in sorted({*old, *new}):
        if path not in new:
            yield f"{path} is gone"
        elif path not in old:
            yield f"{path} is new"
        elif old[path] != new[path]:
            yield f"{path} has changed"


def _changed(topic: str, name: str, before: Any, now: Any) -> Iterator[Difference]:
    if before != now and (before or now):
        yield Difference(topic, f"{name} {now or 'missing'}, was {before or 'missing'}")


def lines(differences: Sequence[Difference]) -> list[str]:
    """By topic, the first of each in full: "  packages   keras 3.15.1, was 3.14.0"."""
    topics = list(dict.fromkeys(each.topic for each in differences))
    width = max(map(len, topics), default=0)
    shown = []
    for topic in topics:
        of_topic = [each.text for each in differences if each.topic == topic]
        shown += [f"  {topic:<{width}}  {text}" for text in of_topic[:SHOWN]]
        if len(of_topic) > SHOWN:
            shown.append(f"  {topic:<{width}}  and {len(of_topic) - SHOWN} more")
    return shown
