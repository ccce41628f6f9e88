"""Makes docs/quickstart.png, the screenshot in the tutorial: the quickstart notebook in JupyterLab while it trains.

`python scripts/screenshot.py` runs the notebook on the embedded Spark.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from browser.lab import Lab, NotebookPage, chromium  # noqa: E402 - the path to it is set above

NOTEBOOK = "quickstart.ipynb"
PICTURE = ROOT / "docs" / "quickstart.png"
TRAINING_CELL = 4
LATE_EPOCH = re.compile(r"epoch [789] of 10")


def main() -> None:
    with tempfile.TemporaryDirectory() as name, chromium() as browser:
        folder = Path(name)
        os.environ["JUPYTER_DATA_DIR"] = str(folder / ".data")
        shutil.copy(ROOT / "notebooks" / NOTEBOOK, folder)
        lab = Lab(folder)
        try:
            page = browser.new_context(viewport={"width": 1280, "height": 960}, device_scale_factor=1.5).new_page()
            notebook = NotebookPage(lab, page)
            notebook.open(NOTEBOOK)
            notebook.command("application:toggle-left-area")
            notebook.run_all()
            page.get_by_text(LATE_EPOCH).wait_for(timeout=120_000)
            page.locator(".jp-Notebook .jp-Cell").nth(TRAINING_CELL).scroll_into_view_if_needed()
            page.screenshot(path=PICTURE)
        finally:
            lab.stop()
    print(f"wrote {PICTURE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
