"""Build hook: makes the widget's script where it is missing, so that no wheel is built without it."""

import shutil
import subprocess
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

WIDGET = Path("ddl_magics") / "dashboard" / "static" / "widget.js"


class WidgetBuildHook(BuildHookInterface):
    """Runs npm for a wheel or an sdist. An editable install is left alone: `make install` builds for it."""

    def initialize(self, version, build_data):
        root = Path(self.root)
        if version == "editable" or (root / WIDGET).exists():
            return
        npm = shutil.which("npm")
        if npm is None:
            raise RuntimeError(
                f"{WIDGET} is not built and npm is not installed: install Node.js, or build from the sdist"
            )
        for arguments in (["ci"], ["run", "build"]):
            subprocess.run([npm, *arguments], cwd=root, check=True)
