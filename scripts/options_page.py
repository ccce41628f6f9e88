"""Writes docs/options.md from the table of options: `make docs`. A test compares the page with what this makes."""

from pathlib import Path

from ddl_magics.option_help import markdown_meanings, markdown_table
from ddl_magics.options import OPTIONS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "options.md"


def page():
    """The text of docs/options.md."""
    later = "\n".join(f"- `{option.flag}`: {option.help}; it {option.coming}." for option in OPTIONS if option.coming)
    return f"""# Options of `%%distributed`

<!-- Made by `make docs` from ddl_magics/options.py: change it there. -->

`%%distributed --help` prints the same table. A default for the whole notebook is set with
`%config Distributed.workers = 4`, for good in `ipython_config.py`; `%config Distributed` lists what can be set so.

{markdown_table()}

{markdown_meanings()}

## Known, and not built yet

They are refused by name.

{later}
"""


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"wrote {PAGE.name}")
