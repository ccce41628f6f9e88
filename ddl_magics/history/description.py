"""The provenance of a run as sections of names and values: for the panel, the report and the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ddl_magics.history.provenance import Provenance
from ddl_magics.wording import counted, in_bytes


@dataclass(frozen=True)
class Section:
    """Names with their values, and a longer text, such as a difference; each may be empty."""

    title: str
    entries: tuple[tuple[str, str], ...] = ()
    text: str = ""


def described(provenance: Provenance) -> list[Section]:
    """The sections that are not empty."""
    if provenance.problem:
        return [Section("Provenance", (("problem", provenance.problem),))]
    sections = (
        _git(provenance.git),
        _notebook(provenance.notebook),
        Section("Variables of the cell", tuple((name, in_words(value)) for name, value in provenance.sent.items())),
        _data(provenance.data),
        *_machines(provenance),
    )
    return [section for section in sections if section.entries or section.text]


def _git(git: Mapping[str, Any]) -> Section:
    entries = [(name, git[name]) for name in ("commit", "branch", "remote") if git.get(name)]
    if git.get("commit"):
        entries.append(("changed since", "yes" if git.get("changed") else "no"))
    if git.get("untracked"):
        entries.append(("files that git does not know", ", ".join(git["untracked"])))
    cut = "\n... the rest is not kept\n" if git.get("cut") else ""
    return Section("Code", tuple(entries), git.get("diff", "") + cut)


def _notebook(notebook: Mapping[str, Any]) -> Section:
    if not notebook.get("cells"):
        return Section("Notebook")
    text = "\n\n".join(f"# {cell.get('type', '')}\n{cell.get('source', '')}" for cell in notebook["cells"])
    cut = "\n\n... the rest is not kept\n" if notebook.get("cut") else ""
    return Section("Notebook", (("cells", str(len(notebook["cells"]))),), text + cut)


def in_words(value: Mapping[str, Any]) -> str:
    """A variable's fingerprint: "numpy.ndarray (60000, 28) float32, 188 MB, 1f2e3d4c"."""
    shape = f" ({', '.join(map(str, value['shape']))})" if "shape" in value else ""
    length = f" of {value['length']}" if "length" in value else ""
    fields = [f"{value.get('type', '')}{shape}{length} {value.get('dtype', '')}".strip()]
    if "bytes" in value:
        fields.append(in_bytes(value["bytes"]))
    if "sha256" in value:
        fields.append(value["sha256"][:8] + (" (of parts)" if value.get("sampled") else ""))
    return ", ".join(fields)


def _data(data: Mapping[str, Any]) -> Section:
    entries = []
    if "rows" in data:
        held_out = data.get("validation_rows")
        entries.append(("rows", f"{data['rows']:,}" + (f", and {held_out:,} for validation" if held_out else "")))
    names = (("content", "hash of the rows"), ("sha256", "hash"), ("plan", "hash of the plan"))
    entries += [(title, data[name][:8]) for name, title in names if name in data]
    if data.get("columns"):
        entries.append(("columns", ", ".join(f"{name}: {kind}" for name, kind in data["columns"].items())))
    if data.get("sources"):
        first_path = data["sources"][0]["path"]
        number = data.get("files", len(data["sources"]))
        entries.append(("files", first_path if number == 1 else f"{first_path} and {counted(number - 1, 'other')}"))
    return Section("Data", tuple(entries))


def _machines(provenance: Provenance) -> Iterator[Section]:
    for group in provenance.ranks:
        name = "rank" if group.get("ranks", "").isdigit() else "ranks"
        entries = [(key, group[key]) for key in ("host", "device") if group.get(key)]
        if group.get("cores"):
            entries.append(("cores", str(group["cores"])))
        entries += [(package, version or "missing") for package, version in group.get("packages", {}).items()]
        yield Section(f"Machine of {name} {group.get('ranks', '')}", tuple(entries))
    settings = provenance.spark.get("settings", {})
    yield Section("Spark's settings", tuple(settings.items()))
    taken_over = provenance.driver.get("session", "")
    yield Section("Settings of the notebook", tuple(("", name) for name in taken_over.split(", ") if name))
    driver, kernel = provenance.driver.get("packages", {}), provenance.kernel.get("packages", {})
    if driver == kernel or not driver:
        yield Section("Packages", tuple(kernel.items()))
    else:
        yield Section("Packages of the cluster", tuple(driver.items()))
        yield Section("Packages of the notebook", tuple(kernel.items()))
