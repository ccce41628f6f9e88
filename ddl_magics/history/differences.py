"""Differences of a run's provenance from that of another run, or of today. Pure: a line for each difference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ddl_magics.history.description import in_words
from ddl_magics.history.provenance import Provenance

#: Lines of a topic that are shown, at most.
MAX_LINES = 12

#: Settings of Spark that differ in every session.
_OF_SESSION = ("spark.app.", "spark.driver.port", "spark.executor.id", "spark.ui.", "spark.yarn.app.", "spark.repl.")

Map = Mapping[str, Any]


@dataclass(frozen=True)
class Difference:
    """topic: packages, machine, code, variables, data, Spark or workers. text: "keras 3.15.1, was 3.14.0"."""

    topic: str
    text: str


def environment(before: Provenance, after: Provenance) -> Iterator[Difference]:
    """Differences of packages, machine and code of the notebook, and of the cluster if both runs recorded it."""
    yield from packages(before.kernel, after.kernel, "packages")
    if before.driver and after.driver and before.driver.get("packages") != before.kernel.get("packages"):
        yield from packages(before.driver, after.driver, "cluster's packages")
    for name, title in (("python", "Python"), ("platform", "platform"), ("host", "host")):
        yield from _changed("machine", title, before.kernel.get(name), after.kernel.get(name))
    if before.driver and after.driver:
        yield from session(before.driver.get("session"), after.driver.get("session"))
    if before.spark and after.spark:
        yield from _changed("Spark", "version", before.spark.get("version"), after.spark.get("version"))
        yield from settings(before.spark.get("settings", {}), after.spark.get("settings", {}))
    if before.ranks and after.ranks:
        devices = [", ".join(sorted({str(rank.get("device", "")) for rank in run.ranks})) for run in (before, after)]
        yield from _changed("machine", "devices", *devices)
    yield from code(before.git, after.git)


def session(before: str | None, after: str | None) -> Iterator[Difference]:
    """Of the settings of the notebook's session, which are listed with commas between them."""
    yield from _changed("notebook", "settings", before, after)


def packages(before: Map, after: Map, topic: str) -> Iterator[Difference]:
    """One difference per package; none if one side has no list of packages."""
    versions_before, versions_after = before.get("packages", {}), after.get("packages", {})
    if versions_before and versions_after:
        for name in sorted({*versions_before, *versions_after}):
            yield from _changed(topic, name, versions_before.get(name), versions_after.get(name))


def settings(before: Map, after: Map) -> Iterator[Difference]:
    """Spark's settings, without those that differ in every session."""
    for name in sorted({*before, *after}):
        if not name.startswith(_OF_SESSION):
            yield from _changed("Spark", name, before.get(name), after.get(name))


def code(before: Map, after: Map) -> Iterator[Difference]:
    """The commit, and uncommitted changes."""
    if not before:
        return
    if not after:
        yield Difference("code", f"there is no git repository here; the run had commit {before['commit'][:10]}")
        return
    yield from _changed("code", "commit", before["commit"][:10], after["commit"][:10])
    if before["commit"] == after["commit"] and before.get("diff", "") != after.get("diff", ""):
        if not after.get("diff"):
            yield Difference("code", "the changes that the run had are gone: %ddl show RUN has them")
        else:
            yield Difference("code", "uncommitted changes are others than the run had")


def variables(before: Mapping[str, Map], after: Mapping[str, Map | None]) -> Iterator[Difference]:
    """The variables that the cell used. after: None for one that is not defined, or has no fingerprint here."""
    for name, fingerprint in sorted(before.items()):
        fingerprint_after = after.get(name)
        if fingerprint_after is None:
            yield Difference("variables", f"{name} is not defined; it was {in_words(fingerprint)}")
        elif fingerprint != fingerprint_after and _unhashed(fingerprint) == _unhashed(fingerprint_after):
            yield Difference("variables", f"{name} has other values")
        elif fingerprint != fingerprint_after:
            yield Difference("variables", f"{name}: {in_words(fingerprint_after)}, was {in_words(fingerprint)}")


def _unhashed(value: Map) -> Map:
    return {name: entry for name, entry in value.items() if name != "sha256"}


def data(name: str, before: Map, after: Map | None) -> Iterator[Difference]:
    """The DataFrame of --data, or its files. after: None if it is not defined."""
    if not before:
        return
    if after is None:
        yield Difference("data", f"{name} is not defined")
        return
    changes = [*_columns(before.get("columns", {}), after.get("columns", {}))]
    for key, title in (("kind", "it is of"), ("rows", "rows:"), ("files", "number of files:")):
        if key in before and key in after and before[key] != after[key]:
            changes.append(f"{title} {after[key]}, was {before[key]}")
    changes += _files(before.get("sources", ()), after.get("sources", ()))
    hashes = (("content", "other rows"), ("sha256", "other values"), ("plan", "it is computed otherwise"))
    for key, words in hashes:
        if not changes and key in before and key in after and before[key] != after[key]:
            changes = [words]
    yield from (Difference("data", f"{name}: {line}") for line in changes)


def _columns(before: Map, after: Map) -> Iterator[str]:
    for column in dict.fromkeys([*after, *before]):
        if before.get(column) != after.get(column):
            yield f"column {column}: {after.get(column, 'missing')}, was {before.get(column, 'missing')}"


def _files(before: Sequence[Map], after: Sequence[Map]) -> Iterator[str]:
    files_before, files_after = ({file["path"]: file for file in files} for files in (before, after))
    for path in sorted({*files_before, *files_after}):
        if path not in files_after:
            yield f"{path} is gone"
        elif path not in files_before:
            yield f"{path} is new"
        elif files_before[path] != files_after[path]:
            yield f"{path} has changed"


def _changed(topic: str, name: str, before: Any, after: Any) -> Iterator[Difference]:
    if before != after and (before or after):
        yield Difference(topic, f"{name} {after or 'missing'}, was {before or 'missing'}")


def lines(differences: Sequence[Difference]) -> list[str]:
    """By topic, the first of each in full: "  packages   keras 3.15.1, was 3.14.0"."""
    topics = list(dict.fromkeys(difference.topic for difference in differences))
    width = max(map(len, topics), default=0)
    topic_lines = []
    for topic in topics:
        of_topic = [difference.text for difference in differences if difference.topic == topic]
        topic_lines += [f"  {topic:<{width}}  {text}" for text in of_topic[:MAX_LINES]]
        if len(of_topic) > MAX_LINES:
            topic_lines.append(f"  {topic:<{width}}  and {len(of_topic) - MAX_LINES} more")
    return topic_lines
