"""A conda channel in a folder, of this Python and of what pip has installed, and a package built from a recipe with it.

    .venv-release/bin/python -m support.conda_channel RECIPE FOLDER SITE

The recipe's host packages are taken from this environment, and those that it needs to run from the folder SITE of
another one (its site-packages). conda-forge, which has the real ones, cannot be reached from everywhere.
"""

import hashlib
import json
import re
import sys
from importlib.metadata import Distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from rattler_build import FileEntry, Package, Stage0Recipe, VariantConfig, assemble_package

MINOR = f"{sys.version_info.major}.{sys.version_info.minor}"
SITE_PACKAGES = f"lib/python{MINOR}/site-packages"


class Channel:
    """A folder of packages for Linux on x86-64, and their index."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "linux-64"
        self.url = folder.as_uri()
        self._records: dict[str, dict[str, object]] = {}
        (folder / "noarch").mkdir(parents=True)
        (folder / "noarch" / "repodata.json").write_text(_index("noarch", {}))
        self.folder.mkdir()

    def add(self, name: str, version: str, files: list[FileEntry], depends: list[str]) -> None:
        """Make a package of files."""
        made = assemble_package(
            name=name,
            version=version,
            target_platform="linux-64",
            build_string="0",
            output_dir=self.folder,
            files=files,
            depends=depends,
            compression_level=1,
            detect_prefix=False,
        )
        content = Path(made.path).read_bytes()
        self._records[Path(made.path).name] = {
            "name": name,
            "version": version,
            "build": "0",
            "build_number": 0,
            "subdir": "linux-64",
            "depends": depends,
            "size": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
        }

    def close(self) -> str:
        """Write the index; the channel's URL."""
        (self.folder / "repodata.json").write_text(_index("linux-64", self._records))
        return self.url


def _index(subdir: str, records: dict[str, dict[str, object]]) -> str:
    return json.dumps({"info": {"subdir": subdir}, "packages": {}, "packages.conda": records})


def add_python(channel: Channel, folder: Path) -> None:
    """This Python, which stays where it is: its package is what a virtual environment has of it, and `pip`."""
    (folder / "pyvenv.cfg").write_text(f"home = {sys.base_prefix}/bin\ninclude-system-site-packages = false\n")
    entries = [FileEntry.from_paths(folder / "pyvenv.cfg", "pyvenv.cfg")]
    for name in ("python", "python3", f"python{MINOR}"):
        (folder / name).symlink_to(Path(sys.base_prefix) / "bin" / f"python{MINOR}")
        entries.append(FileEntry.from_paths(folder / name, f"bin/{name}"))
    (folder / "pip").write_text('#!/bin/sh\nexec "$(dirname "$0")/python" -m pip "$@"\n')  # else another one is found
    (folder / "pip").chmod(0o755)
    entries.append(FileEntry.from_paths(folder / "pip", "bin/pip"))
    channel.add("python", sys.version.split()[0], entries, [])


def add_installed(channel: Channel, wanted: list[str], sites: list[str]) -> None:
    """What pip has installed of some packages, and of all that they require."""
    installed = {canonicalize_name(found.metadata["Name"]): found for found in distributions(path=sites)}
    named = {canonicalize_name(name): name for name in wanted}  # as the recipe calls them
    left, added = list(named), set()
    while left:
        name = left.pop()
        if name in added:
            continue
        added.add(name)
        required = _required(installed[name])
        left += required
        depends = [f"python {MINOR}.*", *(named.get(each, each) for each in required)]
        channel.add(named.get(name, name), installed[name].version, _files(installed[name]), depends)


def _required(found: Distribution) -> list[str]:
    requirements = map(Requirement, found.requires or ())
    return [
        canonicalize_name(each.name) for each in requirements if not each.marker or each.marker.evaluate({"extra": ""})
    ]


def _files(found: Distribution) -> list[FileEntry]:
    """Without its commands, which stand elsewhere."""
    return [
        FileEntry.from_paths(file.locate(), f"{SITE_PACKAGES}/{file}")
        for file in found.files or ()
        if not str(file).startswith("..") and file.suffix != ".pyc" and file.locate().is_file()
    ]


def build(recipe: Path, folder: Path, site: str) -> Package:
    """Build the recipe's package, and run its tests in an environment of the channel."""
    channel = Channel(folder / "channel")
    (folder / "python").mkdir()
    add_python(channel, folder / "python")
    stage = Stage0Recipe.from_file(recipe)
    needs = stage.as_single_output().requirements
    host, run = ([re.split(r"[ <>=]", str(spec))[0] for spec in specs] for specs in (needs.host, needs.run))
    add_installed(channel, [name for name in host if name != "python"], sys.path)
    add_installed(channel, [name for name in run if name != "python"], [site])
    url = channel.close()
    (made,) = stage.render(VariantConfig())[0].run_build(output_dir=folder / "built", channels=[url]).packages
    package = Package.from_file(made)
    for result in package.run_tests(channel=[url]):
        assert result.success, "\n".join(result.output)
    return package


def main(recipe: str, folder: str, site: str) -> None:
    """Print what the package is, as a JSON object."""
    made = build(Path(recipe).resolve(), Path(folder).resolve(), site)
    print(json.dumps({name: getattr(made, name) for name in ("name", "version", "noarch", "depends", "files")}))


if __name__ == "__main__":
    main(*sys.argv[1:])
