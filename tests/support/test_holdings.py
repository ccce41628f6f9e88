"""What runs/test_leaks.py looks with: it finds each kind of leak, and none where there is none."""

import subprocess
import sys

import pytest

from support import holdings

ROUNDS = 12
#: What a process does in each round, and what must then be said to grow. "None" is the process that leaks nothing.
PLANTS = {
    "None": set(),
    "os.open(os.devnull, os.O_RDONLY)": {("kernel", "descriptors")},
    "socket.socket()": {("kernel", "descriptors"), ("kernel", "sockets")},
    "threading.Thread(target=threading.Event().wait, daemon=True).start()": {("kernel", "threads")},
    "bytearray(os.urandom(1000 << 10))": {("kernel", "KiB")},
    "subprocess.Popen(['sleep', '60'])": {("others", "processes")},
    "subprocess.Popen(['true'])": {("zombies", "processes")},
    "tempfile.mkstemp(dir=tempfile.mkdtemp())": {("temporary folder", "files"), ("kernel", "descriptors")},
    "tempfile.NamedTemporaryFile(delete=False, dir='/dev/shm', prefix=shared)": {
        ("/dev/shm", "files"),
        ("kernel", "descriptors"),
    },
}
LEAKY = """
import os, signal, socket, subprocess, sys, tempfile, threading
kept, shared = [], "ddl-test-leak-" + str(os.getpid())
for _ in sys.stdin:
    kept.append({plant})
    print("done", flush=True)
for process in kept:
    if isinstance(process, subprocess.Popen):
        process.kill()
for name in os.listdir("/dev/shm"):
    if name.startswith(shared):
        os.unlink("/dev/shm/" + name)
"""


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.partition("(")[0])
def test_a_planted_leak_is_found(plant, tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", LEAKY.replace("{plant}", plant)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"TMPDIR": str(tmp_path)},
    )
    series = []
    for _ in range(ROUNDS):
        process.stdin.write("go\n")
        process.stdin.flush()
        process.stdout.readline()
        series.append(holdings.snapshot(process.pid, tmp_path))
    process.communicate()
    assert set(holdings.leaks(series)) == PLANTS[plant]


@pytest.mark.parametrize(("one_in", "found"), [(20, True), (1000, False)])
def test_one_in_so_many_launches_is_found(one_in, found):
    series = [{("kernel", "descriptors"): 50 + number % 3 + number // one_in} for number in range(190)]
    assert bool(holdings.leaks(series)) is found


def test_one_launch_in_the_middle_of_things_is_no_leak():
    series = [{("kernel", "threads"): 10 + 20 * (number in (0, 99, 189))} for number in range(190)]
    assert holdings.leaks(series) == {}
