"""Temporary folders: held by their process, removed by whoever comes after it was killed."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from ddl_magics.runtime import scratch


@pytest.fixture(autouse=True)
def own_tmp(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def age(folder):
    """Make a folder look as if its process had started long ago."""
    before = time.time() - 2 * scratch.YOUNG_SECONDS
    os.utime(Path(folder) / scratch.LOCK, (before, before))


def test_a_folder_in_use_stays_and_a_left_one_goes():
    program = (
        "import sys, time; from ddl_magics.runtime import scratch; "
        "print(scratch.make('rank-0'), flush=True); time.sleep(60)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": tempfile.tempdir},
    )
    theirs = process.stdout.readline().strip()
    age(theirs)
    ours = scratch.make("run")
    assert Path(theirs).is_dir() and Path(ours).is_dir()
    process.kill()
    process.wait()
    process.stdout.close()
    scratch.sweep()
    assert not Path(theirs).exists()
    scratch.remove(ours)
    assert not Path(ours).exists()


def test_a_young_folder_and_a_strange_one_are_left_alone(tmp_path):
    young = tmp_path / "ddl-run-young"
    young.mkdir()
    (young / scratch.LOCK).touch()
    strange = tmp_path / "ddl-strange"
    strange.mkdir()
    scratch.sweep()
    assert young.exists() and strange.exists()
