"""The faults of a campaign: what each does to the scene, how it ends, and what a run may say of it."""

import contextlib
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from livy.faults import Cut, Status, Truncate
from support import processes

COLLECTIVE = ("allreduce", "average")
ALL = (*COLLECTIVE, "single", "ps", "ensemble")
LIVY = ("allreduce", "ps")
#: Whose workers train on without one that has died.
ELASTIC = ("allreduce",)
#: From the fault, or from its end, to the end of the run. A rank that is started again imports TensorFlow first.
END_SECONDS = 100.0
#: From the fault to the first word of it: of a process that has ended, of one that is stopped with --stall, of a link.
DEATH_SECONDS, STALL_SECONDS, CUT_SECONDS = 12.0, 8.0, 45.0
MEMORY_GROUP = Path("/sys/fs/cgroup/memory")
OOM_BYTES = 48 << 20


@dataclass(frozen=True)
class Fault:
    """begin(act): does it; `act.undos` end it after `hold` seconds, drawn between the two.

    Args:
        notice: so many seconds after `begin` the run must have said something; None where it need not.
        told: what a run that does not finish may say, a regular expression; "" where each run must finish.
        kernel_ends: the run is lost with its kernel, and continues in the next one.
        may_leave: the workers come and go. Random numbers are those of one process, whoever trains.
        scene: "hosts" or "livy".
    """

    begin: Callable
    strategies: tuple = ALL
    hold: tuple = (0.0, 0.0)
    notice: float | None = None
    told: str = ""
    options: str = ""
    kernel_ends: bool = False
    may_leave: bool = False
    end_seconds: float = END_SECONDS
    scene: str = "hosts"


class Act:
    """A fault that is being done: to whom, and how it is undone."""

    def __init__(self, scene, run, random, workers, undos):
        """undos: an ExitStack."""
        self.scene, self.run, self.random, self.workers, self.undos = scene, run, random, workers, undos
        self.rank = random.randrange(workers)
        self.about = ""

    def find_rank(self, seconds=60):
        """The process of the rank. LookupError where there is none before the end of the run."""
        if not self.run.until(lambda run: run.pid(self.rank) is not None, seconds):
            raise LookupError("no process of the rank")
        pid = self.run.pid(self.rank)
        self.about = f"rank {self.rank}, process {pid}"
        return pid

    def send(self, pid, number):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _ancestor(word):
    """The process above the rank in whose command line the word is."""

    def find(act):
        pid = act.find_rank()
        with contextlib.suppress(FileNotFoundError):  # it has ended meanwhile
            while pid > 1:
                if word in Path(f"/proc/{pid}/cmdline").read_bytes():
                    return pid
                pid = processes.parent(pid)
        raise LookupError(f"no process {word.decode()} above the rank")

    return find


_supervisor = _ancestor(b"pyspark.daemon")
_executor = _ancestor(b"CoarseGrainedExecutorBackend")


def _server(act):
    def servers(run=None):
        return [pid for pid, words in processes.our_processes().items() if "parameter_server.server" in words]

    if not act.run.until(servers, 60):
        raise LookupError("no parameter server")
    return servers()[0]


def _java(act):
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
            if processes.parent(pid) == act.scene.kernel.pid and b"java" in words:
                return pid
    raise LookupError("no Java of the driver")


def _kernel(act):
    return act.scene.kernel.pid


def kill(find):
    def begin(act):
        pid = find(act)
        act.about += f" SIGKILL {pid}"
        act.send(pid, signal.SIGKILL)

    return begin


def kill_two(act):
    """The rank and the next one, shortly after it."""
    kill(Act.find_rank)(act)
    time.sleep(act.random.uniform(0.0, 1.0))
    about, act.rank = act.about, (act.rank + 1) % act.workers
    kill(Act.find_rank)(act)
    act.about = f"{about}, {act.about}"


def stop(find):
    """SIGSTOP, and SIGCONT at its end."""

    def begin(act):
        pid = find(act)
        act.about += f" SIGSTOP {pid}"
        act.undos.callback(act.send, pid, signal.SIGCONT)
        act.send(pid, signal.SIGSTOP)

    return begin


def freeze_host(act):
    """All processes of the rank's host are stopped, as if it swapped."""
    host = act.scene.host_of(act.find_rank())
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{pid}/ns/net") == act.scene.hosts.namespace(host):
                act.undos.callback(act.send, pid, signal.SIGCONT)
                act.send(pid, signal.SIGSTOP)
    act.about += f" host {host}"


def out_of_memory(act):
    """The rank, which trains, may take so much more memory, and wants all that there is."""
    act.run.until(lambda run: run.stepped(), 60)
    pid = act.find_rank()
    group = MEMORY_GROUP / f"chaos-{pid}"
    group.mkdir()
    act.undos.callback(_remove_group, group)
    (group / "memory.limit_in_bytes").write_text(str(OOM_BYTES))
    (group / "cgroup.procs").write_text(str(pid))
    wish = act.scene.base / "eat"
    wish.write_text(str(pid))
    act.undos.callback(wish.unlink)


def _remove_group(group):
    for pid in (group / "cgroup.procs").read_text().split():
        with contextlib.suppress(OSError):
            (MEMORY_GROUP / "cgroup.procs").write_text(pid)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            return group.rmdir()
        time.sleep(0.1)


def fill(find):
    """The disk with a folder has no room."""

    def begin(act):
        folder = find(act)
        file = folder / "filler"
        act.undos.callback(file.unlink)
        act.about += f" {folder.name}"
        for block in (bytes(1 << 16), b"0"):
            with open(file, "ab", buffering=0) as filler, contextlib.suppress(OSError):
                while True:
                    filler.write(block)

    return begin


def _hosts_disk(act):
    return act.scene.hosts.disk(act.scene.host_of(act.find_rank()))


def cut(act):
    host = act.scene.host_of(act.find_rank())
    act.about += f" host {host}"
    act.undos.callback(act.scene.hosts.mend, host)
    act.scene.hosts.cut(host)


def shaped(rate, queue):
    def begin(act):
        host = act.scene.host_of(act.find_rank())
        act.about += f" host {host}"
        act.undos.callback(act.scene.hosts.unshape, host)
        act.scene.hosts.shape(host, rate, queue)

    return begin


def jump(act):
    seconds = act.random.choice((-3600, 3600))
    act.about = f"{seconds:+d} s"
    act.undos.callback(act.scene.set_clock, 0)
    act.scene.set_clock(seconds)


def fail_thread(act):
    act.about = act.scene.kernel.ask("fail_thread", seed=act.random.randrange(1 << 30))


def failing(share, *kinds):
    """This share of the requests to Livy fails."""

    def begin(act):
        act.undos.callback(act.scene.proxy.clear)
        act.scene.proxy.sometimes(share, *kinds, seed=act.random.randrange(1 << 30))

    return begin


def away(act):
    act.undos.callback(act.scene.proxy.clear)
    act.scene.proxy.always(Cut())


def kill_livy(act):
    act.undos.callback(act.scene.restart_livy)
    act.send(act.scene.livy.pid, signal.SIGKILL)


def _livy_session(act):
    """The process of the Livy session's Python, in which the driver's threads are."""
    for pid, words in act.scene.livy.processes().items():
        if "livy-child" in words:
            return pid
    raise LookupError("no Python of the session")


FAULTS = {
    "rank: SIGKILL": Fault(kill(Act.find_rank), notice=DEATH_SECONDS),
    "supervisor: SIGKILL": Fault(kill(_supervisor), notice=DEATH_SECONDS),
    "Python daemon: SIGKILL": Fault(kill(lambda act: processes.parent(_supervisor(act)))),
    "executor's JVM: SIGKILL": Fault(kill(_executor), notice=DEATH_SECONDS),
    "parameter server: SIGKILL": Fault(
        kill(_server), ("ps",), notice=DEATH_SECONDS, told="the parameter server .process"
    ),
    "kernel: SIGKILL": Fault(kill(_kernel), ALL[:4], kernel_ends=True, options="--checkpoint file://BASE/checkpoints"),
    "driver's JVM: SIGKILL": Fault(kill(_java), notice=DEATH_SECONDS, told=r"driver process \(Java\) has died"),
    "rank: SIGSTOP, SIGCONT": Fault(stop(Act.find_rank), hold=(0.5, 6.0)),
    "rank: SIGSTOP, --stall": Fault(
        stop(Act.find_rank), hold=(20.0, 25.0), notice=STALL_SECONDS + 8, options="--stall 8s"
    ),
    "supervisor: SIGSTOP, SIGCONT": Fault(stop(_supervisor), hold=(0.5, 6.0)),
    "executor's JVM: SIGSTOP, SIGCONT": Fault(stop(_executor), hold=(0.5, 6.0)),
    "parameter server: SIGSTOP, SIGCONT": Fault(stop(_server), ("ps",), hold=(0.5, 6.0)),
    "kernel: SIGSTOP, SIGCONT": Fault(stop(_kernel), hold=(0.5, 6.0)),
    "driver's JVM: SIGSTOP, SIGCONT": Fault(stop(_java), hold=(0.5, 6.0)),
    "host: SIGSTOP, SIGCONT": Fault(freeze_host, hold=(0.5, 6.0)),
    "rank: out of memory": Fault(out_of_memory, hold=(8.0, 8.0), notice=DEATH_SECONDS),
    "driver's disk: full": Fault(
        fill(lambda act: act.scene.kernel.temporary), hold=(0.5, 20.0), told="could not be stored on the driver's disk"
    ),
    "store's disk: full": Fault(fill(lambda act: act.scene.kernel.store), hold=(0.5, 20.0)),
    "executor's disk: full": Fault(fill(_hosts_disk), hold=(0.5, 20.0), told="(?i)no space left|disk"),
    "worker that may leave: SIGKILL": Fault(kill(Act.find_rank), ELASTIC, notice=DEATH_SECONDS, may_leave=True),
    "two workers that may leave: SIGKILL": Fault(kill_two, ELASTIC, notice=DEATH_SECONDS, may_leave=True),
    "executor's JVM of a worker that may leave: SIGKILL": Fault(
        kill(_executor), ELASTIC, notice=DEATH_SECONDS, may_leave=True
    ),
    "worker that may leave: SIGSTOP, --stall": Fault(
        stop(Act.find_rank),
        ELASTIC,
        hold=(20.0, 25.0),
        notice=STALL_SECONDS + 8,
        options="--stall 8s",
        may_leave=True,
    ),
    "link of a worker that may leave: cut": Fault(
        cut, ELASTIC, hold=(60.0, 60.0), notice=CUT_SECONDS, end_seconds=200.0, may_leave=True
    ),
    "link: cut for a moment": Fault(cut, hold=(0.5, 10.0)),
    "link: cut": Fault(cut, hold=(60.0, 60.0), notice=CUT_SECONDS, end_seconds=200.0),
    "link: slow": Fault(shaped("4mbit", 1 << 18), hold=(2.0, 8.0)),
    "link: lossy": Fault(shaped("20mbit", 8 << 10), hold=(2.0, 8.0)),
    "clock: an hour": Fault(jump, hold=(0.5, 10.0)),
    "driver's thread: MemoryError": Fault(fail_thread, told="MemoryError"),
    "Livy: 5xx and 429": Fault(
        failing(0.5, Status(500), Status(503), Status(429), Status(502)), LIVY, hold=(2.0, 10.0), scene="livy"
    ),
    "Livy: truncated and repeated replies": Fault(
        failing(0.5, Truncate(), Cut(), Cut(after=True)), LIVY, hold=(2.0, 10.0), scene="livy"
    ),
    "gateway: away": Fault(away, LIVY, hold=(1.0, 20.0), scene="livy"),
    "Livy: SIGSTOP, SIGCONT": Fault(stop(lambda act: act.scene.livy.pid), LIVY, hold=(1.0, 10.0), scene="livy"),
    "Livy: SIGKILL, started again": Fault(kill_livy, LIVY, hold=(1.0, 3.0), told="session", scene="livy"),
    "Livy session: SIGKILL": Fault(kill(_livy_session), LIVY, told="session", scene="livy"),
    "Livy session: SIGSTOP, SIGCONT": Fault(stop(_livy_session), LIVY, hold=(0.5, 6.0), scene="livy"),
    "rank on Livy: SIGKILL": Fault(kill(Act.find_rank), LIVY, notice=DEATH_SECONDS, scene="livy"),
}
