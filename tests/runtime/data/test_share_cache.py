"""The cache of --data on a host: what is taken from it is whole, whatever happened to who put it there."""

import errno
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from support.feeds import flip_bit
from support.rings import together

from ddl_magics.runtime import scratch
from ddl_magics.runtime.data import cache_folder, cache_key, share_cache
from ddl_magics.runtime.data.cache_option import CacheOption
from ddl_magics.runtime.data.share_cache import ShareCache

KEY, DIGEST = "a" * 64, "b" * 16
UUID = "0b8a3c1e-7d65-4f2a-9c1b-0123456789ab"


def of_host(folder, rank=0, key=KEY, most=None, digest=DIGEST):
    use = {"key": key, "digest": digest, "folder": str(folder), "max_bytes": most, "data": "df", "feed": {"n": 1}}
    return ShareCache(use, rank, "float32", {})


def share(folder, rows=1000):
    """The files of a rank, as the supervisor has them."""
    place = scratch.make("data-0", str(folder))
    np.save(os.path.join(place, "train-0.npy"), np.arange(rows))
    np.save(os.path.join(place, "train-1.npy"), np.arange(rows) % 2)
    return place


def root_of(folder):
    (root,) = cache_folder.roots({}, str(folder))
    return root


def fetched(cache):
    """The first tensor of what the cache has, or None."""
    place = cache.fetch()
    if place is None:
        return None
    rows = np.load(os.path.join(place, "train-0.npy"))
    scratch.remove(place)
    return rows.tolist()


def test_what_was_kept_is_taken(tmp_path):
    cache, place = of_host(tmp_path), share(tmp_path)
    assert cache.fetch() is None
    assert cache.keep(place) is None
    scratch.remove(place)
    assert fetched(cache) == list(range(1000))
    assert fetched(of_host(tmp_path, rank=1)) is None
    assert fetched(of_host(tmp_path, key="c" * 64)) is None
    assert fetched(of_host(tmp_path, digest="c" * 16)) is None, "the same rows in another order"
    assert cache.keep(share(tmp_path)) is None, "another run has it already"
    (host,) = [cache_folder.look({}, str(tmp_path), KEY)]
    assert (host[DIGEST]["ranks"], host[DIGEST]["feed"]) == ([0], {"n": 1})
    (entry,) = cache_folder.listed({}, str(tmp_path))
    assert (entry["data"], entry["shares"]) == ("df", 1) and entry["bytes"] > 16000
    held = cache.fetch()
    cache_folder.clear({}, str(tmp_path))
    assert len(np.load(os.path.join(held, "train-0.npy"))) == 1000, "a run keeps what it has"
    assert cache.fetch() is None and cache_folder.listed({}, str(tmp_path)) == []


@pytest.mark.parametrize("name", ["train-1.npy", cache_folder.ENTRY])
def test_what_is_damaged_is_not_taken(tmp_path, name):
    cache = of_host(tmp_path)
    cache.keep(share(tmp_path))
    (entry,) = (os.path.join(root_of(tmp_path), name) for name, _, _ in cache_folder.names(root_of(tmp_path)))
    flip_bit(Path(entry, name), 100)
    assert cache.fetch() is None
    assert not os.path.exists(entry), "it makes room for a new one"
    assert cache.keep(share(tmp_path)) is None
    assert len(fetched(cache)) == 1000


def test_a_folder_of_others_is_not_read(tmp_path):
    cache = of_host(tmp_path)
    cache.keep(share(tmp_path))
    os.chmod(root_of(tmp_path), 0o755)
    assert cache.fetch() is None and cache_folder.look({}, str(tmp_path), KEY) == {}
    assert "is not a folder of this user alone" in of_host(tmp_path, 1).keep(share(tmp_path))
    os.chmod(root_of(tmp_path), 0o700)
    os.rename(root_of(tmp_path), tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", root_of(tmp_path))
    assert cache.fetch() is None


def test_an_entry_of_another_user_is_not_read(tmp_path, monkeypatch):
    """Where all may write, somebody may put a folder of his own in the place of the one that was looked at."""
    of_host(tmp_path).keep(share(tmp_path))
    ((name, _, _),) = cache_folder.names(root_of(tmp_path))
    entry, other, more = os.path.join(root_of(tmp_path), name), tmp_path / "other", tmp_path / "more"
    other.mkdir(), more.mkdir()
    about, user = cache_folder.read_entry(entry), os.geteuid()
    assert share_cache._take(entry, str(other))
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    assert cache_folder.read_entry(entry) is None
    monkeypatch.setattr(cache_folder, "read_entry", lambda _: about)
    assert not share_cache._take(entry, str(more)), "nor are its files"


def test_a_run_goes_on_where_nothing_can_be_made_beside_the_cache(tmp_path, monkeypatch):
    cache = of_host(tmp_path)
    cache.keep(share(tmp_path))

    def refused(*_):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(scratch, "make", refused)
    assert cache.fetch() is None


def test_its_bytes_are_bounded_and_the_oldest_go_first(tmp_path):
    size = sum(entry.stat().st_size for entry in os.scandir(share(tmp_path)))
    most = int(2.5 * size) + 8192
    for rank in range(3):
        assert of_host(tmp_path, rank, most=most).keep(share(tmp_path)) is None
        for held, _, _ in cache_folder.names(root_of(tmp_path)):
            path = os.path.join(root_of(tmp_path), held)
            os.utime(path, ns=(0, os.stat(path).st_mtime_ns - 10**9))
        if rank == 1:
            assert fetched(of_host(tmp_path, 0)) is not None, "it is used, and stays"
    assert sorted(rank for _, _, rank in cache_folder.names(root_of(tmp_path))) == [0, 2]
    problem = of_host(tmp_path, 4, most=size // 2).keep(share(tmp_path))
    assert problem.startswith("they take ") and "give it more, as in --cache " in problem
    more = CacheOption.read(problem.rpartition("--cache ")[2])
    assert size < more.max_bytes, "what it says is enough"
    assert len(cache_folder.names(root_of(tmp_path))) == 2


def test_it_makes_room_for_a_run(tmp_path, monkeypatch):
    for rank in range(2):
        of_host(tmp_path, rank).keep(share(tmp_path))
    free = lambda _: SimpleNamespace(free=100 - 40 * len(cache_folder.names(root_of(tmp_path))))  # noqa: E731
    monkeypatch.setattr(shutil, "disk_usage", free)
    share_cache.make_room([root_of(tmp_path)], 50)
    assert len(cache_folder.names(root_of(tmp_path))) == 1


STEPS = ("mkdir", "link", "fsync", "rename")


@pytest.fixture
def at_step(monkeypatch):
    """at_step(n, action): call `action` at the n-th step of what follows. Returns a list of the steps made."""

    def install(number, action):
        made = []
        for name in STEPS:
            call = getattr(os, name)

            def step(*arguments, _call=call, **options):
                made.append(_call.__name__)
                if len(made) == number:
                    action()
                return _call(*arguments, **options)

            monkeypatch.setattr(os, name, step)
        return made

    yield install


#: Keeps FOLDER's share again and again, and is killed before each of its steps in turn. Prints how many there were.
#: A process of its own, as a fork of the tests' would share their connection to Java.
KILLED = """
import os, signal, sys
from ddl_magics.runtime import scratch
from ddl_magics.runtime.data.share_cache import ShareCache
folder, place = sys.argv[1:]
scratch.YOUNG_SECONDS = -1.0
use = {"key": "a" * 64, "digest": "b" * 16, "folder": folder, "max_bytes": None, "data": "df", "feed": {"n": 1}}
cache = ShareCache(use, 0, "float32", {})
for number in range(1, 50):
    child = os.fork()
    if not child:
        made = []
        for name in ("mkdir", "link", "fsync", "rename"):
            def step(*arguments, call=getattr(os, name), **options):
                made.append(call)
                if len(made) == number:
                    os.kill(os.getpid(), signal.SIGKILL)
                return call(*arguments, **options)
            setattr(os, name, step)
        cache.keep(place)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    found = cache.fetch()
    print(number, "killed" if status else "done", sorted(os.listdir(found)) if found else None)
    if found:
        scratch.remove(found)
    if not status:
        break
"""


def test_a_writer_that_is_killed_leaves_nothing_that_is_taken(tmp_path, monkeypatch):
    place = share(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path), place], capture_output=True, text=True, timeout=60, check=True
    )
    *killed, (last, outcome, *_) = (line.split() for line in done.stdout.splitlines())
    assert int(last) > 8 and outcome == "done"
    taken = [line[2] != "None" for line in killed]
    assert taken == sorted(taken) and sum(taken) <= 1, "it is there once it has its name"
    assert fetched(of_host(tmp_path)) == list(range(1000))
    monkeypatch.setattr(scratch, "YOUNG_SECONDS", -1.0)
    assert of_host(tmp_path, 1).keep(place) is None
    left = {name for name in os.listdir(root_of(tmp_path)) if name != share_cache.LOCK}
    assert left == {name for name, _, _ in cache_folder.names(root_of(tmp_path))}, "nothing else stays"


def test_a_full_disk_is_told_and_leaves_nothing(tmp_path, monkeypatch, at_step):
    def full():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    cache, place = of_host(tmp_path), share(tmp_path)
    os.makedirs(root_of(tmp_path), 0o700)
    for number in range(2, 50):  # the first, of a folder that is there, may fail
        with monkeypatch.context():
            made = at_step(number, full)
            problem = cache.keep(place)
            monkeypatch.undo()
        if len(made) < number:
            break
        assert problem == "No space left on device"
    assert 8 < number < 49 and problem is None
    assert len(fetched(cache)) == 1000


def test_two_runs_that_make_the_same_entry(tmp_path):
    start = threading.Barrier(4)

    def keep():
        place = share(tmp_path)
        start.wait()
        return of_host(tmp_path).keep(place), len(fetched(of_host(tmp_path)))

    assert together([keep] * 4) == [(None, 1000)] * 4
    assert len(cache_folder.names(root_of(tmp_path))) == 1


def test_another_process_holds_the_lock(tmp_path, monkeypatch):
    monkeypatch.setattr(share_cache, "LOCK_SECONDS", 0.1)
    place = share(tmp_path)
    os.makedirs(root_of(tmp_path), 0o700)
    with share_cache._locked(root_of(tmp_path)):
        assert of_host(tmp_path).keep(place).endswith("is locked by another process")


@pytest.mark.parametrize(
    ("disk", "expected"),
    [
        (f"spark-{UUID}/executor-{UUID}/blockmgr-{UUID}", f"spark-{UUID}"),
        (f"usercache/ann/appcache/application_1_2/blockmgr-{UUID}", "usercache/ann/appcache/application_1_2"),
        (f"blockmgr-{UUID}", f"blockmgr-{UUID}"),
    ],
)
def test_where_it_is_without_a_folder_of_ones_own(tmp_path, disk, expected):
    """In what Spark removes at the end of the session, or of its worker, and that a host's executors have in common."""
    os.makedirs(tmp_path / disk)
    environment = {"SPARK_LOCAL_DIRS": f"{tmp_path / disk},/not/there"}
    assert cache_folder.roots(environment, None) == [str(tmp_path / expected / cache_folder.FOLDER)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, None),
        ("off", None),
        ("on", CacheOption()),
        ("20GB", CacheOption(max_bytes=20_000_000_000)),
        ("/mnt/fast/", CacheOption("/mnt/fast")),
    ],
)
def test_values_of_the_option(text, expected):
    assert CacheOption.read(text) == expected


@pytest.mark.parametrize("text", ["", "20", "fast", "hdfs:///cache"])
def test_what_is_no_value_of_the_option(text):
    with pytest.raises(ValueError, match="a size such as 20GB"):
        CacheOption.read(text)


def test_the_key_has_the_files_of_every_storage(tmp_path, monkeypatch):
    monkeypatch.setattr(cache_key, "_statuses", lambda jvm, uris: uris)
    (tmp_path / "a b.csv").write_text("1")
    here = (tmp_path / "a b.csv").as_uri()
    texts = list(cache_key._file_texts(None, ["hdfs://n/b.csv", here, "s3a://c/d.csv"]))
    assert [json.loads(texts[0])[:2], *texts[1:]] == [[here, 1], "hdfs://n/b.csv", "s3a://c/d.csv"]
