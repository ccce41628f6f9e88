"""The code blocks of the documents: which are run, and which say why not."""

import re
from typing import NamedTuple

from .paths import ROOT

#: The documents for users, in the order in which their blocks are run.
PAGES = [
    ROOT / "README.md",
    ROOT / "docs" / "tutorial.md",
    *sorted(page for page in (ROOT / "docs").glob("*.md") if page.name != "tutorial.md"),
]

#: What a block may be besides Python. These are not run.
OTHER_LANGUAGES = {"bash", "json", "text"}

_FENCED = re.compile(
    r"(?:^<!-- not run: (?P<why>.+) -->\n)?^(?P<indent> *)```(?P<language>\w*)\n(?P<code>.*?)^ *```$", re.M | re.S
)


class Block(NamedTuple):
    """A code block. why: why it is not run; None where it is."""

    page: str
    line: int
    language: str
    code: str
    why: str | None


def blocks(page):
    """The fenced blocks of a page."""
    text = page.read_text()
    return [
        Block(page.name, text.count("\n", 0, found.start("code")), found["language"], found["code"], found["why"])
        for found in _FENCED.finditer(text)
    ]


def unfenced(page):
    """The lines of a page that are code by their indentation: nobody would run them."""
    text = _FENCED.sub("", page.read_text())
    return re.findall(r"(?<=\n\n)    .*", text)


def runnable(pages=PAGES):
    """The blocks of pages that a test runs, in order. A block that stands in two of them is run once."""
    found = {}
    for page in pages:
        for block in blocks(page):
            if block.language == "python" and block.why is None:
                found.setdefault(block.code, block)
    return list(found.values())
