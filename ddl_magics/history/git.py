"""The git state of the notebook's folder: commit, and what differs from it. Nothing where there is no git."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from ddl_magics.options.redaction import masked_source, without_user

#: How long one command may take, the bound of the difference, and of the list of files that git does not know.
SECONDS = 5.0
MOST_CHARACTERS = 256 * 2**10
MOST_UNTRACKED = 100

#: Nothing that a repository configures is executed: no file system monitor, no programs that show differences.
_COMMAND = ("git", "-c", "core.fsmonitor=false", "-c", "core.quotepath=false")
_DIFF = ("diff", "HEAD", "--no-ext-diff", "--no-textconv", "--no-color")
#: Notebooks are left out of the difference: their outputs are pages, and the run's own is kept by its cells.
_BUT_NOTEBOOKS = ("--", ":/", ":(exclude,top)*.ipynb")


def state(folder: str | Path) -> dict[str, Any]:
    """The part `git` of a `Provenance`. Secrets in the difference are masked."""
    text = _run(folder, "status", "--porcelain=v2", "--branch", "--untracked-files=normal", "-z")
    if text is None:
        return {}
    lines = text.split("\0")
    head = dict(line[2:].split(" ", 1) for line in lines if line.startswith("# ") and " " in line[2:])
    commit = head.get("branch.oid", "")
    untracked = [line[2:] for line in lines if line.startswith("? ")]
    changed = any(line[:2] in ("1 ", "2 ", "u ") for line in lines)
    found: dict[str, Any] = {
        "commit": "" if commit == "(initial)" else commit,
        "branch": head.get("branch.head", ""),
        "remote": without_user((_run(folder, "config", "--get", "remote.origin.url") or "").strip()),
        "changed": changed,
        "untracked": untracked[:MOST_UNTRACKED],
    }
    difference = _run(folder, *_DIFF, *_BUT_NOTEBOOKS) if changed and found["commit"] else None
    if difference:
        found["diff"] = masked_source(difference[:MOST_CHARACTERS])
        found["cut"] = len(difference) > MOST_CHARACTERS
    return found


def _run(folder: str | Path, *arguments: str) -> str | None:
    """What a git command prints; None where it fails: there is no git, no repository, or no time."""
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            [*_COMMAND, *arguments],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode(errors="replace")
