"""`%ddl export` and `import`: a run, or a search with its trials, as a zip file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ddl_magics.commands.kernel import Kernel
from ddl_magics.search import bundles


@dataclass(frozen=True)
class ExportRequest:
    run: str
    file: str


def export(request: ExportRequest, kernel: Kernel) -> str:
    name = request.run
    stored = name if kernel.session.find_search(name) else kernel.session.find(name).id
    return bundles.export(Path(request.file), stored)


@dataclass(frozen=True)
class ImportRequest:
    file: str


def import_(request: ImportRequest, kernel: Kernel) -> str:
    return bundles.import_(Path(request.file))
