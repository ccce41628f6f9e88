"""The git state of the notebook's folder: commit, and what differs from it. Nothing where there is no git."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path
from typing import Any

from ddl_magics.options.redaction import masked_source, without_user

#: How long one command may take, the bound of the difference, and of the list of files that git does not know.
SECONDS = 5.0
MAX_CHARACTERS = 256 * 2**10
MAX_BYTES = 4 * MAX_CHARACTERS + 1
MAX_UNTRACKED = 100

#: No file system monitor and no programs that show differences are run. Filters that the repository configures are, as
#: by any `git status`.
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
    fields: dict[str, Any] = {
        "commit": "" if commit == "(initial)" else commit,
        "branch": head.get("branch.head", ""),
        "remote": without_user((_run(folder, "config", "--get", "remote.origin.url") or "").strip()),
        "changed": changed,
        "untracked": untracked[:MAX_UNTRACKED],
    }
    difference = _run(folder, *_DIFF, *_BUT_NOTEBOOKS) if changed and fields["commit"] else None
    if difference:
        fields["diff"] = masked_source(difference[:MAX_CHARACTERS])
        fields["cut"] = len(difference) > MAX_CHARACTERS
    return fields


def _run(folder: str | Path, *arguments: str) -> str | None:
    """What a git command prints; None where it fails: there is no git, no repository, or no time."""
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    try:
        process = subprocess.Popen(
            [*_COMMAND, *arguments],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except OSError:
        return None
    late = threading.Timer(SECONDS, process.kill)
    late.start()
    with process:
        assert process.stdout is not None
        output = process.stdout.read(MAX_BYTES)
        cut = len(output) == MAX_BYTES  # the rest is not read, as no more is kept
        if cut:
            process.kill()
    late.cancel()
    return output.decode(errors="replace") if cut or process.returncode == 0 else None
