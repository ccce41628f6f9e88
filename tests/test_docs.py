"""The documents say what the code says: the options page is current, links lead somewhere, cells are valid."""

import importlib.util
import re
from pathlib import Path

import pytest

from ddl_magics import options, parsing

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def _options_page():
    spec = importlib.util.spec_from_file_location("options_page", ROOT / "scripts" / "options_page.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_options_page_is_what_make_docs_writes():
    module = _options_page()
    assert module.PAGE.read_text() == module.page()


def _anchor(heading):
    """What GitHub makes of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)|src=\"([^\"]+)\"", page.read_text()):
        path, _, anchor = "".join(target).partition("#")
        if path.startswith(("http://", "https://")):
            continue
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), f"{page.name} links to {path}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", linked.read_text(), flags=re.MULTILINE)
            assert anchor in map(_anchor, headings), f"{page.name} links to {path}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_cells_in_the_documents_are_valid(page):
    """Every `%%distributed` line that a reader may copy parses."""
    for line in re.findall(r"^ *%%distributed(.*)$", page.read_text(), flags=re.MULTILINE):
        parsing.parse(line)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_documents_name_no_option_that_is_not_in_the_table(page):
    if page.name == "CONTRIBUTING.md":
        return
    for flag in re.findall(r"`(--[a-z][a-z-]+)", page.read_text()):
        assert flag in options.BY_FLAG or flag == "--help", f"{page.name} names {flag}"


def test_quoted_symptoms_are_messages_of_ours():
    """What stands in quotes in a heading of the troubleshooting page is found in the source, variables left out."""
    source = "".join(path.read_text() for path in (ROOT / "ddl_magics").rglob("*.py"))
    source = re.sub(r'"\s*\n\s*f?"', "", source)  # literals that go on in the next line
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    quoted = [
        text for heading in re.findall(r"^### (.*)$", page, re.MULTILINE) for text in re.findall(r'"(.*?)"', heading)
    ]
    assert quoted
    for fragment in (part.strip() for text in quoted for part in re.split(r"\b[NM]\b|\.\.\.", text)):
        assert fragment in source, f"no message says {fragment!r}"


def test_the_map_of_the_code_names_what_is_there():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    code_map = text[text.index("## The map") : text.index("Imports point down")]
    there = {path.name for path in ROOT.joinpath("ddl_magics").rglob("*.py")}
    assert set(re.findall(r"\b(\w+\.py)\b", code_map)) <= there
    folders = re.findall(r"^ *(?:notebooks/  docs/  tests/|(\w+)/)", code_map, re.MULTILINE)
    assert all((ROOT / name).is_dir() or (ROOT / "ddl_magics" / name).is_dir() for name in folders if name)
