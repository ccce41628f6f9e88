"""Collects the pages of the documentation's site in build/pages, from which Sphinx makes the site: `make docs`.

The pages are those of docs/, the README as the first one, the changelog and others, and an index for each section. A
link leads to a file of the repository, as on GitHub. In the collected pages it leads to the page made from that file,
or to a copy of the file.
"""

from __future__ import annotations

import posixpath
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "build" / "pages"

#: Section -> group -> its pages, by file in the repository. The first four sections are those of Diataxis.
SECTIONS: dict[str, dict[str, tuple[str, ...]]] = {
    "Tutorials": {
        "": ("docs/tutorial.md", "docs/faster.md", "docs/notebooks.md"),
    },
    "How-to guides": {
        "Data": ("docs/data.md", "docs/data-files.md"),
        "Training": (
            *("docs/strategies.md", "docs/losses.md", "docs/loops.md", "docs/mixed-precision.md"),
            *("docs/cell-output.md", "docs/search.md", "docs/scaling.md", "docs/faults.md"),
        ),
        "The trained model": (
            *("docs/predictions.md", "docs/models.md", "docs/serving.md", "docs/monitoring.md"),
            "docs/orchestration.md",
        ),
        "Notebooks and runs": ("docs/panel.md", "docs/vs-code.md", "docs/history.md", "docs/stored-runs.md"),
        "Clusters": ("docs/hdinsight.md", "docs/platforms.md", "docs/executors.md"),
        "Coming from elsewhere": (
            *("docs/coming-from.md", "docs/keras-3-multi-worker.md", "docs/horovod-tensorflow-2-16.md"),
            *("docs/tensorflow-on-spark.md", "docs/hdinsight-deep-learning.md", "docs/pytorch.md"),
        ),
        "Administration and trouble": ("docs/jupyterhub.md", "docs/air-gap.md", "docs/troubleshooting.md"),
    },
    "Reference": {
        "In a notebook": ("docs/options.md", "docs/commands.md", "docs/run.md", "docs/ddl.md"),
        "For programs": ("docs/events.md", "docs/rest.md"),
    },
    "Explanation": {
        "How it works": (
            *("docs/how-it-works.md", "docs/allreduce.md", "docs/parameter-server.md", "docs/run-life.md"),
            "docs/security.md",
        ),
        "How well it works": (
            *("docs/comparison.md", "docs/examples.md", "benchmarks/README.md", "benchmarks/gpu.md"),
        ),
    },
    "Project": {
        "": (
            *("docs/roadmap.md", "CONTRIBUTING.md", "docs/releasing.md", "CHANGELOG.md", "SECURITY.md"),
            "CODE_OF_CONDUCT.md",
        ),
    },
}

#: File -> its page, where the name in docs/ is not free: security.md is another page, and search.html is Sphinx' own.
RENAMED = {
    "README.md": "index.md",
    "benchmarks/README.md": "benchmarks.md",
    "benchmarks/gpu.md": "gpu-benchmark.md",
    "CHANGELOG.md": "changelog.md",
    "CODE_OF_CONDUCT.md": "code-of-conduct.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "vulnerabilities.md",
    "docs/search.md": "hyperparameter-search.md",
}

#: A code block, which stays as it is, or a link's target.
_LINK = re.compile(r"^ *```.*?^ *```|(?<=\]\()([^)\s]+)(?=\))", re.MULTILINE | re.DOTALL)
_ELSEWHERE = re.compile(r"[a-z]+:|#|/")


def collect(folder: Path) -> None:
    """Write the pages, and the files that they link to, into a new folder."""
    shutil.rmtree(folder, ignore_errors=True)
    linked: set[str] = set()
    for source, text in pages().items():
        page = folder / site_path(source)
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(rewritten(source, text), encoding="utf-8")
        linked |= links(source, text)
    for name in linked:
        if (ROOT / name).is_file() and not (folder / site_path(name)).exists():
            (folder / site_path(name)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / site_path(name))


def pages() -> dict[str, str]:
    """File of the repository -> its text, with the indexes of the sections as if they were files in docs/."""
    indexes = {_index(section): _section(section, groups) for section, groups in SECTIONS.items()}
    home = (ROOT / "README.md").read_text(encoding="utf-8") + _contents(indexes, ":hidden:")
    return {"README.md": home, **indexes, **{name: (ROOT / name).read_text(encoding="utf-8") for name in listed()}}


def listed() -> list[str]:
    """The pages of all sections, by file in the repository."""
    return [source for groups in SECTIONS.values() for group in groups.values() for source in group]


def _index(section: str) -> str:
    return f"docs/{section.lower().replace(' ', '-')}.md"


def _section(section: str, groups: Mapping[str, Iterable[str]]) -> str:
    """The page of a section: a table of contents for each of its groups, with the group as its heading."""
    parts = [f"# {section}\n"]
    for group, sources in groups.items():
        parts.append(_contents(sources, ":maxdepth: 1", *([f":caption: {group}"] if group else [])))
    return "".join(parts)


def _contents(sources: Iterable[str], *options: str) -> str:
    """A table of contents."""
    names = (site_path(source).removesuffix(".md") for source in sources)
    return "\n".join(["", "```{toctree}", *options, "", *names, "```", ""])


def links(source: str, text: str) -> set[str]:
    """The files of the repository that a file's text links to."""
    targets = (match[1] for match in _LINK.finditer(text))
    return {_target(source, target.partition("#")[0]) for target in targets if target and not _ELSEWHERE.match(target)}


def rewritten(source: str, text: str) -> str:
    """The text of a file, with links as the site's pages need them."""
    page = site_path(source)

    def replace(match: re.Match[str]) -> str:
        if not match[1] or _ELSEWHERE.match(match[1]):
            return match[0]
        path, hash_, anchor = match[1].partition("#")
        return posixpath.relpath(site_path(_target(source, path)), posixpath.dirname(page) or ".") + hash_ + anchor

    return _LINK.sub(replace, text)


def _target(source: str, link: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), link))


def site_path(name: str) -> str:
    """Where the site has a file of the repository."""
    return RENAMED.get(name) or (name.removeprefix("docs/") if name.startswith("docs/") else f"files/{name}")


if __name__ == "__main__":
    collect(PAGES)
