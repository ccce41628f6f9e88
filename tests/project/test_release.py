"""`make release`: versions and dates, what is refused, the page of a package index; all of it in a clone (slow)."""

import datetime
import html
import re
import shutil
import subprocess
import sys

import pytest
from support.paths import ROOT, script
from support.processes import completed

release = script("release")
TODAY = datetime.date(2027, 1, 31)
RELEASE_PYTHON = ROOT / ".venv-release" / "bin" / "python"


@pytest.fixture
def tree(tmp_path):
    """A repository with the files that a release writes, as they are here, and a Repository."""
    for name in (*release.WRITTEN, "pyproject.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    changelog = tmp_path / "CHANGELOG.md"
    changelog.write_text(re.sub(r"(?m)^## \[.*", "## [0.1.0] - unreleased", changelog.read_text(), count=1))
    _append_urls(tmp_path)
    _git(tmp_path, "init", "--quiet")
    _commit(tmp_path)
    return tmp_path


def _append_urls(root):
    with open(root / "pyproject.toml", "a") as project:
        project.write('\n[project.urls]\nRepository = "https://host.example/someone/ddl_magics"\n')


def _git(root, *words):
    subprocess.run(["git", *words], cwd=root, check=True, capture_output=True)


def _commit(root):
    _git(root, "add", "--all")
    _git(root, "-c", "user.name=test", "-c", "user.email=", "commit", "--quiet", "--message", "changed")


def test_a_release_writes_its_version_and_date_and_nothing_else(tree):
    for _ in range(2):  # it can be repeated
        release.check(tree, "12.3.4")
        release.write(tree, "12.3.4", TODAY)
    diff = subprocess.run(["git", "diff", "--unified=0"], cwd=tree, capture_output=True, text=True).stdout
    added = [line[1:] for line in diff.splitlines() if line.startswith("+") and not line.startswith("+++")]
    assert sorted(added) == sorted(
        [
            '__version__ = "12.3.4"',
            "version: 12.3.4",
            '  version: "12.3.4"',
            *['  "version": "12.3.4",'] * 2,
            '      "version": "12.3.4",',
            "## [12.3.4] - 2027-01-31",
        ]
    )


@pytest.mark.parametrize(
    ("change", "version", "says"),
    [
        (lambda tree: None, "1.2", "make release VERSION=1.2.3"),
        (lambda tree: None, "", "make release VERSION=1.2.3"),
        (lambda tree: _git(tree, "tag", "v1.2.3"), "1.2.3", "v1.2.3 is tagged"),
        (lambda tree: (tree / "new.py").touch(), "1.2.3", "new.py is not committed"),
        (lambda tree: release.write(tree, "1.2.2", TODAY), "1.2.3", "no section 'unreleased'"),
    ],
)
def test_what_cannot_become_a_release_is_refused(tree, change, version, says):
    release.check(tree, "1.2.3")
    change(tree)
    with pytest.raises(release.Refused, match=re.escape(says)):
        release.check(tree, version)


def test_a_release_needs_the_address_of_the_repository(tree):
    shutil.copy(ROOT / "pyproject.toml", tree)
    _commit(tree)
    if "[project.urls]" not in (ROOT / "pyproject.toml").read_text():
        with pytest.raises(release.Refused, match="no Repository"):
            release.check(tree, "1.2.3")


#: What a wheel needs besides its README; the front end is there, so that nobody builds it.
SMALL_WHEEL = ("pyproject.toml", "hatch_build.py", "LICENSE", "README.md", "ddl_magics/_version.py")
BUILT = ("ddl_magics/dashboard/static/widget.js", "ddl_magics/labextension/package.json", "labextension/install.json")


def _wheel(folder, readme=None, repository=True):
    """A wheel with our metadata, and little else."""
    for name in SMALL_WHEEL:
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    for name in BUILT:
        (folder / name).parent.mkdir(parents=True)
        (folder / name).touch()
    shutil.copytree(ROOT / "jupyter-config", folder / "jupyter-config")
    if readme:
        (folder / "README.md").write_text(readme)
    if repository:
        _append_urls(folder)
    completed([RELEASE_PYTHON, "-m", "hatchling", "build", "--target", "wheel"], cwd=folder)
    (wheel,) = (folder / "dist").glob("*.whl")
    return wheel


def _page(folder, **how):
    """What an index shows of such a wheel, or the line that says why it cannot."""
    if not RELEASE_PYTHON.exists():
        pytest.skip("no tools of a release: make release-env")
    wheel = _wheel(folder, **how)
    made = subprocess.run(
        [RELEASE_PYTHON, ROOT / "scripts" / "index_page.py", wheel, folder / "page.html"],
        capture_output=True,
        text=True,
    )
    return (folder / "page.html").read_text() if made.returncode == 0 else made.stderr


def test_the_page_of_an_index_is_the_readme_and_all_its_links_lead_to_the_repository(tmp_path):
    page = _page(tmp_path)
    completed([RELEASE_PYTHON.parent / "twine", "check", "--strict", *tmp_path.glob("dist/*")])
    links = re.findall(r'(href|src)="https://host\.example/someone/ddl_magics/(\w+)/v[\d.]+/([^"#]*)', page)
    assert len(links) > 20 and ("src", "raw", "docs/images/live.webp") in links
    assert {(attribute, kind) for attribute, kind, _ in links} == {("href", "blob"), ("src", "raw")}
    for _, _, name in links:
        assert (ROOT / name).exists(), name
    text = html.unescape(re.sub("<.*?>", "", page))
    assert "pip install 'ddl_magics[local]'" in text and "no package index" not in text
    assert "<table>" in page and "%%distributed --workers 2" in text


def test_without_a_repository_the_page_has_the_text_of_its_links(tmp_path):
    page = _page(tmp_path, repository=False)
    assert "<img" not in page and "tutorial</a>" not in page and "The tutorial continues here" in page


def test_a_picture_that_leads_nowhere_from_the_index_is_named(tmp_path):
    said = _page(tmp_path, readme='# ddl_magics\n\n<img src="docs/rooms.svg">\n')
    assert "docs/rooms.svg leads nowhere from the index" in said


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(2400)
def test_a_release_is_made_but_for_its_upload(tmp_path):
    """Also: the wheel with its extra `local` is all that a bare environment needs, a notebook server included."""
    if not RELEASE_PYTHON.exists():
        pytest.skip("no tools of a release: make release-env")
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines():
        if (ROOT / name).is_file():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / name)
    for name in ("ddl_magics/dashboard/static", "ddl_magics/labextension"):
        shutil.copytree(ROOT / name, tmp_path / name, dirs_exist_ok=True)
    (tmp_path / ".venv-release").symlink_to(ROOT / ".venv-release")
    _append_urls(tmp_path)
    _git(tmp_path, "init", "--quiet")
    _commit(tmp_path)
    said = completed([sys.executable, "scripts/release.py", "9.8.7"], cwd=tmp_path).stdout
    print(said)
    assert "ddl_magics 9.8.7\n" in said and "held-out digits are read correctly" in said
    assert 'git tag -a v9.8.7 -m "ddl_magics 9.8.7"' in said.splitlines()[-1]
    assert (tmp_path / "build" / "index-page.html").exists()
    assert {path.name for path in (tmp_path / "dist").iterdir()} == {
        "ddl_magics-9.8.7.tar.gz",
        "ddl_magics-9.8.7-py3-none-any.whl",
    }
