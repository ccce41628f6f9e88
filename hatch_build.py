"""Hooks of the build: the front end is made where it is missing, and the README becomes the page of a package index."""

import re
import shutil
import subprocess
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

WIDGET = Path("ddl_magics") / "dashboard" / "static" / "widget.js"
PANEL = Path("ddl_magics") / "labextension"
BUILT = (WIDGET, PANEL / "package.json")

#: Where JupyterLab looks for extensions, below the environment's folder.
LABEXTENSION = "share/jupyter/labextensions/ddl-magics"


class FrontEndBuildHook(BuildHookInterface):
    """Runs npm for a wheel or an sdist. An editable install is left alone: `make install` builds and links for it."""

    def initialize(self, version, build_data):
        if version == "editable":
            return
        root = Path(self.root)
        missing = [str(path) for path in BUILT if not (root / path).exists()]
        if missing:
            _build(root, missing)
        # The builder of the panel leaves a copy of package.json.
        for left in (root / PANEL).rglob("*.orig"):
            left.unlink()
        if self.target_name == "wheel":
            # Here and not in pyproject.toml, as an editable install would copy what is still to change.
            build_data["shared_data"][str(root / PANEL)] = LABEXTENSION
            build_data["shared_data"][str(root / "labextension" / "install.json")] = f"{LABEXTENSION}/install.json"


def _build(root, missing):
    npm = shutil.which("npm")
    if npm is None:
        raise RuntimeError(
            f"{' and '.join(missing)} not built and npm is not installed: install Node.js, or build from the sdist"
        )
    for arguments in (["ci"], ["run", "build"]):
        subprocess.run([npm, *arguments], cwd=root, check=True)


class IndexPageHook(MetadataHookInterface):
    """The description that a package index shows: the README, whose relative links an index does not follow."""

    def update(self, metadata):
        readme = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        repository = metadata.get("urls", {}).get("Repository")
        version = re.search(r'"(.*)"', (Path(self.root) / "ddl_magics" / "_version.py").read_text().splitlines()[-1])[1]
        metadata["readme"] = {"content-type": "text/markdown", "text": index_page(readme, repository, f"v{version}")}


#: In the README: what a package index shows, in a comment, and behind it what a reader of the repository sees instead.
ON_AN_INDEX = re.compile(r"<!-- on a package index:\n(.*?)-->\n.*?<!-- end -->\n", re.DOTALL)
#: A block or span of code, which stays as it is, or a link or picture: its mark, its text and where it leads.
LINK = re.compile(r"^ *```.*?^ *```|`[^`\n]*`|(!?)\[((?:[^\[\]`]|`[^`]*`)*)\]\(([^)\s]+)\)", re.MULTILINE | re.DOTALL)


def index_page(readme, repository, tag):
    """The README for an index: links lead to the tag of the repository, whose URL is `repository`.

    Without a repository, a link becomes its text, and pictures are left out.
    """

    def replace(match):
        mark, text, target = match.groups()
        if target is None or target.startswith("https:"):
            return match[0]
        if target.startswith("#"):
            target = f"README.md{target}"
        if repository is None:
            return "" if mark else text
        return f"{mark}[{text}]({repository.rstrip('/')}/{'raw' if mark else 'blob'}/{tag}/{target})"

    return LINK.sub(replace, ON_AN_INDEX.sub(r"\1", readme))
