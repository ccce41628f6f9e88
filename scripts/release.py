"""Makes a release but for its upload: `make release VERSION=1.2.3`. docs/releasing.md says what comes before and after.

Writes the version and the date wherever they stand, builds the sdist and from it the wheel, checks them and the page
that an index makes of them, tries the wheel in an environment with nothing else, and prints the command that remains.
"""

from __future__ import annotations

import datetime
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ".venv-release/bin"

#: File -> what stands before the version and behind it.
VERSIONS = {
    "ddl_magics/_version.py": r'(?m)(^__version__ = ").*(")',
    "CITATION.cff": r"(?m)(^version: ).*($)",
    "conda/recipe.yaml": r'(?m)(^  version: ").*(")',
    "package.json": r'(^\{\n(?:  .*\n)*?  "version": ").*(")',
}
LOCK, CHANGELOG = "package-lock.json", "CHANGELOG.md"
WRITTEN = (*VERSIONS, LOCK, CHANGELOG)
_UNRELEASED = re.compile(r"^## \[.*\] - unreleased$", re.MULTILINE)
_DATED = r"(?m)^## \[{}\] - \d{{4}}-\d\d-\d\d$"


class Refused(Exception):
    """No release can be made; the message says what to do."""


def write(root: Path, version: str, date: datetime.date) -> None:
    """Write the version into all files that name it, and the date into the changelog; twice changes nothing more."""
    for name, pattern in VERSIONS.items():
        _replace(root / name, pattern, rf"\g<1>{version}\g<2>")
    lock = json.loads((root / LOCK).read_text(encoding="utf-8"))
    lock["version"] = lock["packages"][""]["version"] = version
    (root / LOCK).write_text(json.dumps(lock, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    if not re.search(_DATED.format(re.escape(version)), (root / CHANGELOG).read_text(encoding="utf-8")):
        _replace(root / CHANGELOG, _UNRELEASED, f"## [{version}] - {date.isoformat()}")


def _replace(path: Path, pattern: str | re.Pattern[str], text: str) -> None:
    changed, count = re.subn(pattern, text, path.read_text(encoding="utf-8"))
    if count != 1:
        raise Refused(f"{path.name} has {count} places for it: see VERSIONS in scripts/release.py")
    path.write_text(changed, encoding="utf-8")


def check(root: Path, version: str) -> None:
    """Raise Refused where this tree cannot become this version."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise Refused("give it a version: make release VERSION=1.2.3")
    if _git(root, "tag", "--list", f"v{version}"):
        raise Refused(f"v{version} is tagged: choose another version")
    changed = [line[3:] for line in _git(root, "status", "--porcelain").splitlines()]
    if others := [name for name in changed if name not in WRITTEN]:
        raise Refused(f"{others[0]} is not committed: commit or stash it")
    changelog = (root / CHANGELOG).read_text(encoding="utf-8")
    if not _UNRELEASED.search(changelog) and not re.search(_DATED.format(re.escape(version)), changelog):
        raise Refused(f"{CHANGELOG} has no section 'unreleased': write one")
    if not re.search(r"(?m)^Repository\b", (root / "pyproject.toml").read_text(encoding="utf-8")):
        raise Refused("pyproject.toml has no Repository under [project.urls]: the index's page links there, so add it")


def _git(root: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, text=True).stdout.rstrip("\n")


def build(root: Path) -> Path:
    """Build the sdist, and the wheel from it, into an empty dist/, and check both; the wheel."""
    shutil.rmtree(root / "dist", ignore_errors=True)
    _do(root, f"{TOOLS}/python", "-m", "build")
    files = sorted(str(path) for path in (root / "dist").iterdir())
    _do(root, f"{TOOLS}/twine", "check", "--strict", *files)
    (wheel,) = (root / "dist").glob("*.whl")
    _do(root, f"{TOOLS}/python", "scripts/index_page.py", wheel, "build/index-page.html")
    return wheel


def _do(root: Path, *command: str | Path) -> None:
    subprocess.run(command, cwd=root, check=True)


def remaining(version: str) -> str:
    """The command that publishes what is built."""
    return (
        f'git commit -qam "ddl_magics {version}" && git tag -a v{version} -m "ddl_magics {version}"'
        f" && git push --follow-tags && {TOOLS}/twine upload dist/ddl_magics-{version}*"
    )


def main(version: str) -> None:
    """Make the release but for its upload."""
    check(ROOT, version)
    write(ROOT, version, datetime.date.today())
    wheel = build(ROOT)
    _do(ROOT, sys.executable, "scripts/try_wheel.py", wheel)
    print(f"ddl_magics {version} is in dist/, and its page in build/index-page.html. Look at it; what remains is:\n")
    print(f"  {remaining(version)}")


if __name__ == "__main__":
    try:
        main(sys.argv[1] if len(sys.argv) > 1 else "")
    except Refused as refused:
        sys.exit(f"release: {refused}")
    except subprocess.CalledProcessError as failed:
        sys.exit(f"release: {failed.cmd[0]} failed; mend it and repeat, or git checkout {' '.join(WRITTEN)}")
