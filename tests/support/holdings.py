"""What a process and all that it has started hold, and whether that grows from one launch to the next."""

import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from ddl_magics.runtime import scratch
from support import processes
from support.until import until

#: By the words in their command lines; the process that is asked about is the "kernel".
KINDS = {
    "SparkSubmit": "driver's JVM",
    "CoarseGrainedExecutorBackend": "executors",
    "pyspark.daemon": "Python workers",
    processes.MARK: "ranks",
}
#: By how much something may differ that comes and goes by itself: Java's pools keep idle threads for a minute.
SLACK = {("driver's JVM", "threads"): 80, ("executors", "threads"): 40}
SLACK_OF_OTHERS = 4
#: Caches of Python fill up, and a kernel keeps the events of its runs. A model of the tests is twice as much.
KIB_A_LAUNCH = 500


def snapshot(root, temporary):
    """{(who, what): how many}: of the process `root`, its descendants, the folder `temporary` and /dev/shm.

    Of processes of a kind their number, and the most that one of them has: "KiB" is memory that it shares with nobody.
    Folders of ours are not looked into: `ours` has them. What is not there at all is not in the dict.
    """
    found = Counter()
    for pid in family(root):
        who = "kernel" if pid == root else _kind(pid)
        try:
            descriptors = [os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()]
            status = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        except OSError:  # it has ended meanwhile
            continue
        found[who, "processes"] += 1
        here = {
            "descriptors": len(descriptors),
            "sockets": sum(target.startswith("socket:") for target in descriptors),
            "threads": int(status.get("Threads", 0)),
            "KiB": int(status.get("RssAnon", "0").split()[0]),
        }
        for what, count in here.items():
            found[who, what] = max(found[who, what], count)
    for folder, inside, files in os.walk(temporary):
        if folder == str(temporary):
            inside[:] = [name for name in inside if not name.startswith(scratch.PREFIX)]
        found["temporary folder", "files"] += len(files)
    found["/dev/shm", "files"] += sum(name.startswith("ddl") for name in os.listdir("/dev/shm"))
    return dict(found)


def ours(temporary):
    """How many temporary folders of ours there are of each sort."""
    return dict(Counter(name.split("-")[1] for name in os.listdir(temporary) if name.startswith(scratch.PREFIX)))


def leaks(series, every=1):
    """{(who, what): (before, after)} of what has grown over snapshots that are `every` launches apart, by medians.

    Left out is the memory of Java, whose heap is as large as it was told to be, and what ranks and prewarmed processes
    have in them: they are others in each launch.
    """
    fifth = max(1, len(series) // 5)
    grown = {}
    for who, what in sorted({key for snapshot in series for key in snapshot}):
        if what != "processes" and who in ("ranks", "prewarmed", "zombies"):
            continue
        if what == "KiB" and who in ("driver's JVM", "executors"):
            continue
        counts = [each.get((who, what), 0) for each in series]
        before, after = statistics.median(counts[:fifth]), statistics.median(counts[-fifth:])
        allowed = SLACK.get((who, what), SLACK_OF_OTHERS)
        if what == "KiB":
            allowed = KIB_A_LAUNCH * every * (len(series) - fifth)
        if after - before > allowed:
            grown[who, what] = before, after
    return grown


def family(root):
    """The process and all that descend from it."""
    children = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = processes.parent(folder.name)
        except OSError:  # it has ended meanwhile
            continue
        children.setdefault(parent, []).append(int(folder.name))
    found = [root]
    for pid in found:
        found += children.get(pid, ())
    return found


def running(pids):
    """Those that have not ended."""
    return [pid for pid in pids if Path(f"/proc/{pid}").exists() and _kind(pid) != "zombies"]


def assert_swept(temporary, family, shared):
    """Of a kernel that was killed folders alone are left, which the next process removes.

    Args:
        family: The kernel's process and those that it had started.
        shared: Files of shared memory that were there before.
    """
    until(lambda: running(family) == [], 60)
    assert [name for name in processes.shared_files() - shared if name.startswith("ddl")] == []
    folders = ours(temporary)
    assert folders["driver"] == 1 and folders["run"] >= 1
    long_ago = time.time() - 2 * scratch.YOUNG_SECONDS
    for path in (*temporary.glob(f"*/{scratch.LOCK}"), *temporary.glob(f"{scratch.PREFIX}*")):
        os.utime(path, (long_ago, long_ago))  # a folder, too: its process may have been killed before it locked it
    code = "from ddl_magics.runtime import scratch; scratch.sweep()"
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "TMPDIR": str(temporary)})
    assert ours(temporary) == {}


def _kind(pid):
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
        name = Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "others"
    if not command:
        return "zombies"
    if name == "ddl-prewarmed":
        return "prewarmed"
    return next((kind for words, kind in KINDS.items() if words in command), "others")
