"""Temporary folders: a process locks its own, and removes those of killed processes."""

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
    """Makes a folder look as if its process had started long ago."""
    before = time.time() - 2 * scratch.YOUNG_SECONDS
    os.utime(Path(folder) / scratch.LOCK, (before, before))


def test_a_folder_in_use_stays_and_that_of_a_killed_process_is_removed():
    program = (
        "import sys, time; from ddl_magics.runtime import scratch; "
        "print(scratch.make('rank-0'), flush=True); time.sleep(60)"
    )
    environment = {**os.environ, "TMPDIR": tempfile.tempdir}
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment)
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


@pytest.fixture
def folder(tmp_path):
    """One that has a process's name and lock."""
    path = tmp_path / "ddl-run-x"
    path.mkdir()
    (path / scratch.LOCK).touch()
    return path


def test_a_young_folder_and_one_without_a_lock_are_left_alone(tmp_path, folder):
    strange = tmp_path / "ddl-strange"
    strange.mkdir()
    scratch.sweep()
    assert folder.exists() and strange.exists()


def test_a_folder_whose_process_was_killed_before_it_could_lock_it_is_removed(tmp_path):
    before = time.time() - 2 * scratch.YOUNG_SECONDS
    left, young, of_others, full = (
        tmp_path / f"ddl-{name}" for name in ("run-a1b2c3d_", "run-a1b2c3d4", "x", "run-full1234")
    )
    for path in (left, young, of_others, full):
        path.mkdir()
    (full / "file").touch()
    for path in (left, of_others, full):
        os.utime(path, (before, before))
    scratch.sweep()
    assert not left.exists() and young.exists() and of_others.exists() and full.exists()


@pytest.mark.timeout(20)
def test_a_fifo_in_place_of_a_lock_blocks_nobody(folder):
    """Another user can make one, of any name and age."""
    (folder / scratch.LOCK).unlink()
    os.mkfifo(folder / scratch.LOCK)
    age(folder)
    scratch.sweep()
    assert folder.exists()


def test_a_link_in_place_of_a_lock_or_a_folder_is_not_followed(tmp_path, folder):
    age(folder)
    elsewhere, linked = folder.rename(tmp_path / "elsewhere"), tmp_path / "ddl-run-linked"
    (tmp_path / "ddl-run-link").symlink_to(elsewhere)
    linked.mkdir()
    (linked / scratch.LOCK).symlink_to(elsewhere / scratch.LOCK)
    scratch.sweep()
    assert elsewhere.exists() and linked.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_the_folder_of_another_user_is_left_alone(folder):
    age(folder)
    os.chown(folder, 65534, 65534)
    scratch.sweep()
    assert folder.exists()
