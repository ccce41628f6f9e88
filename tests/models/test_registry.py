"""A registry that is a folder: versions that are whole, aliases that move, two writers at once."""

import multiprocessing
import os
import shutil

import pytest

from ddl_magics import CannotExport, Registry
from ddl_magics.store import files

WRITERS, EACH = 3, 15


def writing(text):
    def write(folder):
        (folder / "model.txt").write_text(text)
        (folder / "more").mkdir()
        (folder / "more" / "model.txt").write_text(text)

    return write


def add_many(folder, writer):
    registry = Registry(folder)
    for number in range(EACH):
        version = registry.add("digits", writing(f"{writer}-{number}"))
        registry.alias("digits", "champion", version)


@pytest.fixture(params=["here", pytest.param("spark", marks=pytest.mark.spark)])
def registry(request, tmp_path):
    """In a folder of this machine, and in one of a file system that only Spark knows."""
    if request.param == "here":
        return Registry(tmp_path)
    context = request.getfixturevalue("spark_cluster")(2).sparkContext
    context._jsc.hadoopConfiguration().set("fs.viewfs.mounttable.models.link./all", f"file://{tmp_path}")
    return Registry("viewfs://models/all")


def test_versions_and_aliases(registry, tmp_path):
    assert registry.names() == [] and registry.versions("digits") == [] and registry.aliases("digits") == {}
    assert [registry.add("digits", writing(text)) for text in ("a", "b", "c")] == [1, 2, 3]
    assert registry.add("other", writing("d")) == 1
    assert (registry.names(), registry.versions("digits")) == (["digits", "other"], [1, 2, 3])
    assert (tmp_path / "digits" / "2" / "more" / "model.txt").read_text() == "b"
    registry.alias("digits", "champion", 1)
    registry.alias("digits", "challenger", 3)
    registry.alias("digits", "champion", 2)
    assert registry.aliases("digits") == {"challenger": 3, "champion": 2}
    kept = [path.name for path in (tmp_path / "digits" / "aliases").glob("[!.]*")]  # beside checksums of Hadoop's
    assert sorted(kept) == ["challenger.0.3", "champion.1.2"], "an older one is removed"
    assert (registry.version("digits"), registry.version("digits", which="champion")) == (3, 2)
    assert registry.uri("digits", which="champion").endswith("/digits/2")
    fetched = registry.fetch("digits", which="champion", folder=tmp_path / "fetched")
    assert (fetched / "more" / "model.txt").read_text() == "b"
    for ask, message in [
        (lambda: registry.version("digit"), r"has no model digit. Did you mean digits\?"),
        (lambda: registry.version("digits", 4), "digits has no version 4; it has 1, 2, 3"),
        (lambda: registry.version("digits", "champoin"), "no alias champoin; .*Did you mean champion"),
        (lambda: registry.alias("digits", "champion", 9), "digits has no version 9"),
        (lambda: registry.alias("digits", "2", 1), "2 is no alias"),
        (lambda: registry.add("digits", writing("e"), "2"), "2 is no alias"),
        (lambda: registry.add("a/b", writing("")), "'a/b' is no name of a model"),
    ]:
        with pytest.raises(CannotExport, match=message):
            ask()


def test_a_version_that_cannot_be_written_is_not_there(registry, tmp_path):
    def fail(folder):
        (folder / "half").write_text("x")
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        registry.add("digits", fail)
    assert registry.versions("digits") == [] and registry.add("digits", writing("a")) == 1


def test_writers_at_once_get_versions_of_their_own(tmp_path):
    """Processes that add versions and move an alias: none is lost, double or in pieces while another looks."""
    spawn = multiprocessing.get_context("spawn")
    writers = [spawn.Process(target=add_many, args=(tmp_path, writer)) for writer in range(WRITERS)]
    for writer in writers:
        writer.start()
    registry, seen = Registry(tmp_path), set()
    while any(writer.is_alive() for writer in writers):
        for version in set(registry.versions("digits")) - seen:
            seen.add(version)
            folder = tmp_path / "digits" / str(version)
            assert (folder / "more" / "model.txt").read_text() == (folder / "model.txt").read_text() != ""
    assert [writer.exitcode for writer in writers] == [0] * WRITERS
    assert registry.versions("digits") == list(range(1, WRITERS * EACH + 1))
    texts = {(tmp_path / "digits" / str(version) / "model.txt").read_text() for version in registry.versions("digits")}
    assert texts == {f"{writer}-{number}" for writer in range(WRITERS) for number in range(EACH)}
    assert registry.aliases("digits")["champion"] in registry.versions("digits")
    assert not [name for name in os.listdir(tmp_path / "digits") if name.endswith(".part")]


def test_a_registry_out_of_reach_says_so(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotExport, match="file cannot be written to: "):
        Registry(tmp_path / "file").add("digits", writing("a"))


def test_strange_folders_are_no_versions(registry, tmp_path):
    registry.add("digits", writing("a"))
    for name in ("²", "٣", "9" * 30, "1.5", "-1"):
        (tmp_path / "digits" / name).mkdir()
        (tmp_path / "digits" / ".claims" / name).touch()
    assert registry.versions("digits") == [1] and registry.add("digits", writing("b")) == 2
    with pytest.raises(CannotExport, match="digits has no alias ²"):
        registry.version("digits", "²")


def test_a_full_disk_is_one_line_and_names_its_reason(tmp_path, monkeypatch):
    def full(source, target):
        raise shutil.Error([(f"{source}/a", f"{target}/a", "[Errno 28] No space left on device: 'a'")])

    monkeypatch.setattr("ddl_magics.models.registry.shutil.copytree", full)
    with pytest.raises(CannotExport, match=r"cannot be written to: \[Errno 28\] No space left on device: 'a'$"):
        Registry(tmp_path).add("digits", writing("a"))


def test_a_version_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    """A power cut leaves no version whose files are empty."""
    done = []
    rename = os.rename
    monkeypatch.setattr(files, "synchronize", lambda opened: done.append(os.readlink(f"/proc/self/fd/{opened}")))
    monkeypatch.setattr(os, "rename", lambda old, new: (done.append(f"{new} is named"), rename(old, new)))
    Registry(tmp_path).add("digits", writing("a"), alias="champion")
    claim, *before, named, after, alias = done
    part = f"{tmp_path}/digits/.1.part"
    assert (claim, alias) == (f"{tmp_path}/digits/.claims", f"{tmp_path}/digits/aliases")
    assert sorted(before) == sorted([f"{part}/model.txt", f"{part}/more/model.txt", f"{part}/more", part])
    assert (named, after) == (f"{tmp_path}/digits/1 is named", f"{tmp_path}/digits")


def test_what_killed_writers_have_left_is_removed_after_a_day(tmp_path):
    old, young = (tmp_path / "digits" / f".{number}.part" for number in (7, 8))
    for folder in (old, young):
        folder.mkdir(parents=True)
    os.utime(old, (1, 1))
    assert Registry(tmp_path).add("digits", writing("a")) == 1
    assert not old.exists() and young.exists()


def test_a_folder_that_cannot_be_read_is_told(tmp_path):
    (tmp_path / "digits").symlink_to("digits")
    with pytest.raises(CannotExport, match=r"digits cannot be read: Too many levels of symbolic links$"):
        Registry(tmp_path).versions("digits")
