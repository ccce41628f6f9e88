"""Writes docs/options.md from the table of options: `make docs`. A test compares the page with the table."""

from __future__ import annotations

from pathlib import Path

from ddl_magics.options.help import markdown_meanings, markdown_table

PAGE = Path(__file__).resolve().parent.parent / "docs" / "options.md"


def page() -> str:
    """The text of docs/options.md."""
    return f"""# Options of `%%distributed`

<!-- Made by `make docs` from ddl_magics/options/table.py: change it there. -->

`%%distributed --help` prints the same table. `%config Distributed.workers = 4` sets a default for the notebook, and
`c.Distributed.workers = 4` in `ipython_config.py` one for all notebooks; `%config Distributed` lists what can be set.

{markdown_table()}

{markdown_meanings()}
"""


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"wrote {PAGE.name}")
