"""Sphinx' configuration for the site of the documentation: `make docs`."""

import re
from pathlib import Path

from ipython_pygments_lexers import IPython3Lexer
from pygments.lexer import bygroups, using
from pygments.lexers import Python3Lexer
from pygments.token import Keyword, Operator, Text

project = "ddl_magics"
version_file = Path(__file__).resolve().parents[1] / "ddl_magics" / "_version.py"
version = release = re.search(r'^__version__ = "(.*)"', version_file.read_text(), re.MULTILINE)[1]
extensions = ["myst_parser", "sphinx_copybutton"]
myst_heading_anchors = 4  # as GitHub makes them
smartquotes = False  # "--workers" in a heading keeps both hyphens

html_theme = "pydata_sphinx_theme"
html_title = "ddl_magics"
html_show_sphinx = False
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_sidebars = {"index": []}  # it is in no section
html_theme_options = {
    "navbar_align": "left",
    "show_prev_next": True,
    "show_toc_level": 2,
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
}


class CellLexer(IPython3Lexer):
    """Python with magics; what follows the line of %%distributed is Python, too."""

    cell = bygroups(Operator, Keyword, Text, using(Python3Lexer))
    tokens = {"root": [(r"(?s)\A(%%)(distributed)([^\n]*\n)(.*)", cell), *IPython3Lexer.tokens["root"]]}  # noqa: RUF012


def setup(app):
    app.add_lexer("python", CellLexer)
