"""The documents say what the code says: the options page is current, links lead somewhere, cells are valid."""

import re
import subprocess
from urllib.parse import urlsplit

import pytest
import yaml
from support.paths import ROOT, script

from ddl_magics.commands.table import COMMANDS
from ddl_magics.options import parsing, table
from ddl_magics.runtime import events

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def test_the_reference_pages_are_what_make_docs_writes_and_leave_nothing_out():
    options = script("options_page")
    assert options.PAGE.read_text() == options.page(), "docs/options.md is old: make docs"
    pages = script("reference_pages").pages()
    for name, text in pages.items():
        assert (ROOT / "docs" / name).read_text() == text, f"docs/{name} is old: make docs"
    assert all(f"## `{kind}`" in pages["events.md"] for kind in events.SCHEMA)
    paths = yaml.safe_load((ROOT / "ddl_magics" / "server" / "openapi.yaml").read_text())["paths"]
    assert all(re.search(rf"^### `[A-Z]+ {re.escape(path)}`$", pages["rest.md"], re.MULTILINE) for path in paths)
    assert all(f"`run.{name}" in pages["run.md"] for name in ("history", "model(", "wait(timeout=None)"))
    assert all(f"`ddl.{name}(" in pages["ddl.md"] for name in ("log", "allreduce", "distribute"))


def test_the_site_has_all_pages_and_what_they_link_to(tmp_path):
    site = script("site_pages")
    site.collect(tmp_path)
    pages = {f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")}
    listed = [source for source in site.listed() if source.startswith("docs/")]
    assert sorted(pages) == sorted(listed), "see SECTIONS of scripts/site_pages.py"
    for page in tmp_path.glob("*.md"):
        for target in re.findall(r"\]\(([^)\s#]+)", re.sub(r"(?ms)^ *```.*?^ *```", "", page.read_text())):
            assert target.startswith("http") or (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_site_is_built_without_a_warning(tmp_path):
    """Sphinx checks the links to headings, too. What `make docs-env` builds is needed, as `make test` does."""
    sphinx = ROOT / ".venv-docs" / "bin" / "sphinx-build"
    if not sphinx.exists():
        pytest.skip("no Sphinx: make docs-env")
    script("site_pages").collect(tmp_path / "pages")
    build = [sphinx, "-W", "--keep-going", "-q", "-c", ROOT / "docs", tmp_path / "pages", tmp_path / "site"]
    built = subprocess.run(build, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    assert (tmp_path / "site" / "searchindex.js").is_file()
    for page in (tmp_path / "pages").glob("*.md"):
        title = next(line for line in page.read_text().splitlines() if line.startswith("# "))
        made = re.search(r"(?s)<h1>(.*?)</h1>", (tmp_path / "site" / f"{page.stem}.html").read_text())
        assert made and _letters(re.sub("<.*?>", "", made[1])) == _letters(title), f"{page.name} is not in the site"


def _letters(text):
    return re.sub(r"[\W_]", "", text)


def test_the_moving_picture_of_the_readme_loads_fast():
    picture = ROOT / "docs" / "images" / "live.webp"
    assert "](docs/images/live.webp)" in (ROOT / "README.md").read_text()
    assert picture.read_bytes()[8:16] == b"WEBPVP8X" and picture.stat().st_size < 1_500_000


def test_the_picture_of_the_rooms_is_what_make_docs_writes():
    module = script("rooms_picture")
    assert module.PICTURE.read_text() == module.picture(), "docs/rooms.svg is old: make docs"


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
    if page.name in ("CONTRIBUTING.md", "CHANGELOG.md"):  # options of other commands; options of the past
        return
    for flag in re.findall(r"`(--[a-z][a-z-]+)", page.read_text()):
        of_a_verb = any(flag == option.flag for command in COMMANDS for option in command.rows)
        assert flag in table.BY_FLAG or of_a_verb or flag == "--help", f"{page.name} names {flag}"


#: Hosts of links: a new one is looked at by somebody before it stands here.
HOSTS = {
    *("anywidget.dev", "docs.azure.cn", "docs.databricks.com", "docs.ray.io", "github.com"),
    *("hypothesis.readthedocs.io", "keepachangelog.com", "libraries.io", "newreleases.io"),
    *("optuna.org", "semver.org", "spark.apache.org", "yahoo.github.io"),
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_to_other_hosts_are_well_formed(page):
    """They are not opened: the tests need no network."""
    for url in re.findall(r"\]\((\w+://[^)]*)\)", page.read_text()):
        parts = urlsplit(url)
        assert parts.scheme == "https" and parts.hostname in HOSTS and not parts.query, url
        assert re.fullmatch(r"[\w~./%#-]*", parts.path + parts.fragment) and "//" not in parts.path, url


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
    named = set(re.findall(r"^ *(\w+)/ ", code_map, re.MULTILINE))
    package = ROOT / "ddl_magics"
    assert all(any((folder / name).is_dir() for folder in (ROOT, package, package / "runtime")) for name in named)
    rooms = {path.parent.name for path in (*package.glob("*/__init__.py"), *package.glob("runtime/*/__init__.py"))}
    assert rooms <= named, f"no line for {', '.join(sorted(rooms - named))}"


def test_contributing_names_files_that_are_there():
    """Paths in backticks, from the repository or from the package, but of files that `make` writes.

    Those of the example have its option.
    """
    text = (ROOT / "CONTRIBUTING.md").read_text()
    example = text[text.index("### Example") : text.index("## Where is")]
    for name in re.findall(r"`(?!build/)([\w-]+/[\w/-]+\.\w+)`", text):
        found = [path for path in (ROOT / name, ROOT / "ddl_magics" / name) if path.is_file()]
        assert found, f"there is no {name}"
        if name in example:
            assert re.search("sync.batchnorm", found[0].read_text()), f"{name} does not have --sync-batchnorm"
