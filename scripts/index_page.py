"""Makes the page that a package index shows of a wheel: `.venv-release/bin/python scripts/index_page.py WHEEL PAGE`.

PyPI's own renderer makes it. A description that it cannot render, and a link or picture that leads nowhere from there,
end this with a line that says so.
"""

from __future__ import annotations

import email
import re
import sys
import zipfile
from pathlib import Path

PAGE = """<!doctype html><meta charset="utf-8"><title>{title}</title>
<style>body {{ max-width: 780px; margin: 2em auto; padding: 0 1em; font: 16px/1.5 sans-serif; }}
img {{ max-width: 100%; }} code {{ background: #f0f0f0; }} pre {{ background: #f0f0f0; padding: 1em; overflow: auto; }}
table {{ border-collapse: collapse; display: block; overflow: auto; }}
td, th {{ border: 1px solid #ccc; padding: 4px 8px; }}
</style>
{body}"""


def page(wheel: Path) -> str:
    """The page, as HTML; SystemExit where it would not be what the README is."""
    from readme_renderer import markdown  # of .venv-release

    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = email.message_from_string(archive.read(name).decode())
    if metadata["Description-Content-Type"] != "text/markdown":
        raise SystemExit(f"{wheel.name}: the description is no Markdown")
    body = markdown.render(str(metadata.get_payload()))
    if body is None:
        raise SystemExit(f"{wheel.name}: the description cannot be rendered")
    urls = re.findall(r'(?:src|href)="([^"]*)"', body)
    if nowhere := [url for url in urls if not url.startswith(("https://", "#user-content-"))]:  # its headings' own
        raise SystemExit(f"{wheel.name}: {nowhere[0]} leads nowhere from the index: see index_page in hatch_build.py")
    return PAGE.format(title=f"{metadata['Name']} {metadata['Version']}", body=body)


if __name__ == "__main__":
    made = Path(sys.argv[2])
    made.parent.mkdir(exist_ok=True)
    made.write_text(page(Path(sys.argv[1])), encoding="utf-8")
