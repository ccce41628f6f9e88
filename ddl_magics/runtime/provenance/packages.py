"""The distributions that a Python has installed, from the names of their folders: nothing is opened or imported."""

from __future__ import annotations

import os
import re
import sys
from typing import Dict, Iterable, Optional

#: name -> version; in a difference None for one that is not there.
Packages = Dict[str, Optional[str]]

#: "ddl_magics-0.1.0.dist-info", "foo-1.0-py3.11.egg-info".
_FOLDER = re.compile(r"(?P<name>[^-]+(?:-[^-\d][^-]*)*)-(?P<version>\d[^-]*)(-py[\d.]+)?\.(dist|egg)-info")


def installed(path: Iterable[str] | None = None) -> Packages:
    """name -> version of what `path`, by default Python's, can import; the first of a name counts."""
    packages: Packages = {}
    for folder in sys.path if path is None else path:
        try:
            names = sorted(os.listdir(folder or "."))
        except OSError:  # a zip, or not there
            continue
        for entry in names:
            match = _FOLDER.fullmatch(entry) if entry.endswith("-info") else None
            if match is not None:
                packages.setdefault(re.sub(r"[-_.]+", "-", match["name"]).lower(), match["version"])
    return packages


def difference(packages: Packages, base: Packages) -> Packages:
    """What `packages` has otherwise than `base`; None for what it lacks."""
    changed: Packages = {name: version for name, version in packages.items() if base.get(name) != version}
    changed.update({name: None for name in base if name not in packages})
    return changed


def merged(base: Packages, changed: Packages) -> Packages:
    """What `difference` was made of."""
    return {name: version for name, version in {**base, **changed}.items() if version is not None}


class Distinct:
    """Packages of many processes: of each only what differs from one that was seen before."""

    def __init__(self, base: Packages) -> None:
        """base: those of the process -1, the driver."""
        self._processes = [(-1, dict(base))]

    def add(self, number: int, packages: Packages) -> tuple[int, Packages]:
        """(a process that came before, the difference from it)."""
        for process, its_packages in self._processes:
            if its_packages == packages:
                return process, {}
        self._processes.append((number, dict(packages)))
        return -1, difference(packages, self._processes[0][1])
