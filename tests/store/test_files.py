"""Files that are whole, what killed processes have left, and whether a file has changed."""

import errno
import os
import re
import shutil
import time

import pytest

from ddl_magics.store import files


def test_an_old_folder_that_was_left_goes_and_what_else_is_there_stays(tmp_path):
    for name in ("left-old", "left-new", "other-old", "left-file"):
        (tmp_path / name).touch() if name == "left-file" else (tmp_path / name / "inside").mkdir(parents=True)
    (tmp_path / "left-link").symlink_to(tmp_path / "other-old")
    for name in ("left-old", "other-old", "left-file"):
        before = time.time() - files.LEFT_SECONDS - 60
        os.utime(tmp_path / name, (before, before))
    files.remove_left(tmp_path, re.compile("left-.*"))
    files.remove_left(tmp_path / "none", re.compile("left-.*"))
    assert {path.name for path in tmp_path.iterdir()} == {"left-new", "other-old", "left-file", "left-link"}


def test_a_file_is_read_up_to_a_size(tmp_path):
    (tmp_path / "file").write_text("12345")
    assert files.read_bounded(tmp_path / "file", 5) == b"12345"
    with pytest.raises(ValueError, match="too long"):
        files.read_bounded(tmp_path / "file", 4)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="no file"):
        files.read_bounded(tmp_path / "pipe", 4)
    with pytest.raises(OSError, match="directory"):
        files.read_bounded(tmp_path, 4)


def test_the_reason_of_an_error_is_the_systems_words_or_those_of_the_first_file_of_a_tree():
    assert files.reason_of(OSError(errno.ENOSPC, "No space left on device", "x")) == "No space left on device"
    assert files.reason_of(OSError("closed")) == "closed"
    assert files.reason_of(shutil.Error([("a", "b", "No space left"), ("c", "d", "other")])) == "No space left"
    assert files.reason_of(shutil.Error([])) == "[]"
    assert files.reason_of(shutil.SameFileError("a and b are the same file")) == "a and b are the same file"


def test_a_stamp_tells_whether_a_file_has_changed(tmp_path):
    path = tmp_path / "file"
    assert files.stamp(path) is None
    path.write_text("a")
    before = files.stamp(path)
    assert files.stamp(path) == before
    os.utime(path, (1, 1))
    assert files.stamp(path) != before, "of another time"
    path.write_text("ab")
    os.utime(path, (1, 1))
    longer = files.stamp(path)
    (tmp_path / "other").write_text("ab")
    os.utime(tmp_path / "other", (1, 1))
    os.replace(tmp_path / "other", path)
    assert files.stamp(path)[1:] == longer[1:] and files.stamp(path) != longer, "another file of this time and size"


@pytest.fixture
def synced(monkeypatch):
    """What is synchronized, by name."""
    done, fsync = [], os.fsync

    def note(file):
        done.append(os.path.basename(os.readlink(f"/proc/self/fd/{file}")))
        fsync(file)

    monkeypatch.setattr(os, "fsync", note)
    return done


def test_all_files_and_folders_of_a_tree_are_synchronized_and_what_links_lead_to_is_not(tmp_path, synced):
    tree = tmp_path / "tree"
    (tree / "a" / "b").mkdir(parents=True)
    for path in (tree / "one", tree / "a" / "b" / "two", tmp_path / "elsewhere"):
        path.touch()
    (tree / "link").symlink_to(tmp_path / "elsewhere")
    files.synchronize_tree(tree)
    assert sorted(synced) == ["a", "b", "one", "tree", "two"]


def test_what_need_not_last_is_replaced_at_once_and_synchronizes_nothing(tmp_path, synced):
    files.write_atomically(tmp_path / "file", [b"a", b"b"], lasting=False)
    assert (tmp_path / "file").read_bytes() == b"ab" and synced == []
    files.synchronize_folder(tmp_path / "none")


def test_an_interrupt_leaves_no_temporary_file(tmp_path):
    def interrupted():
        yield b"half"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        files.write_atomically(tmp_path / "file", interrupted())
    assert list(tmp_path.iterdir()) == []


def test_others_cannot_enter_what_is_private_also_where_an_earlier_version_let_them(data_dir):
    root = data_dir / "ddl_magics"
    root.mkdir(mode=0o755)
    root.chmod(0o755)
    assert files.make_private(root / "runs") == root / "runs"
    files.make_private(root / "runs")
    assert [path.stat().st_mode & 0o777 for path in (root, root / "runs")] == [0o700, 0o700]
