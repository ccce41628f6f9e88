"""Build hook: makes the front end where it is missing, so that no wheel is built without it."""

import shutil
import subprocess
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

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
