"""The scenes of a campaign: a kernel, the Spark or the Livy that it uses, and the run that is in progress."""

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from livy import rig
from livy.faults import faults
from support import paths, processes, starts

from chaos.hosts import Hosts, mount, unmount
from ddl_magics.runtime.events import TERMINAL

START_SECONDS, ANSWER_SECONDS = 120.0, 60.0
KERNEL_DISK_BYTES = 96 << 20
HOSTS = 3
POLL_SECONDS = 0.1


class Silent(Exception):
    """The kernel does not answer, or has ended."""


class Kernel:
    """A process of kernel.py with these arguments. Its temporary folder and its store are in `base`."""

    def __init__(self, base, *arguments):
        self.folder = Path(base)
        self.temporary, self.store = self.folder / "tmp", self.folder / "store"
        variables = {
            "TMPDIR": str(self.temporary),
            "JUPYTER_DATA_DIR": str(self.store),
            "CHAOS_CLOCK": str(self.folder / "clock"),
            "PYTHONPATH": os.pathsep.join([str(paths.TESTS / "chaos" / "startup"), paths.environment()["PYTHONPATH"]]),
        }
        work = self.folder / "work"
        work.mkdir(exist_ok=True)
        self._log = open(self.folder / "kernel.log", "ab")  # noqa: SIM115 - closed with the kernel
        self._process = subprocess.Popen(
            [sys.executable, "-m", "chaos.kernel", *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            bufsize=0,
            env={**paths.environment(), **variables},
            cwd=work,
            start_new_session=True,
        )
        self.pid = self._process.pid
        self._asked, self._received = 0, b""
        self._answer(START_SECONDS)

    def ask(self, command, seconds=ANSWER_SECONDS, **about):
        """The answer to a command. Silent; RuntimeError with the words of an error."""
        self._asked += 1
        try:
            self._process.stdin.write(json.dumps([self._asked, command, about]).encode() + b"\n")
        except OSError:
            raise Silent("the kernel has ended") from None
        return self._answer(seconds)

    def _answer(self, seconds):
        """The answer to the newest command; those to earlier ones may come late."""
        deadline = time.monotonic() + seconds
        while True:
            line = self._line(deadline)
            if line is None:
                raise Silent(f"the kernel has not answered for {seconds:g} s")
            answer = json.loads(line)
            if answer["number"] == self._asked:
                break
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["ok"]

    def _line(self, deadline):
        while b"\n" not in self._received:
            output = self._process.stdout.fileno()
            if not select.select([output], [], [], max(0.0, deadline - time.monotonic()))[0]:
                return None
            block = os.read(output, 1 << 20)
            if not block:
                raise Silent(f"the kernel has ended: {self._last_words()}")
            self._received += block
        line, _, self._received = self._received.partition(b"\n")
        return line

    def _last_words(self):
        lines = (self.folder / "kernel.log").read_text(errors="replace").splitlines()
        return " | ".join(lines[-3:])

    def end(self):
        self._process.kill()
        self._process.wait()
        for file in (self._process.stdin, self._process.stdout, self._log):
            with contextlib.suppress(OSError):
                file.close()


class Watched:
    """A run, as the kernel shows it. `seen`: when each event was seen, by `time.monotonic`."""

    def __init__(self, kernel, options, cell):
        self._kernel = kernel
        self.id = kernel.ask("start", options=options, cell=cell)
        self.events, self.seen, self.state, self.reason = [], [], "", ""

    def look(self, seconds=ANSWER_SECONDS):
        """Ask for news. Silent."""
        answer = self._kernel.ask("look", seconds, run=self.id, after=len(self.events))
        self.events += answer["events"]
        self.seen += [time.monotonic()] * len(answer["events"])
        self.state, self.reason = answer["state"], answer["reason"]

    @property
    def ended(self):
        return self.state in TERMINAL

    def until(self, condition, seconds):
        """Whether the condition came true before the end of the run and within so many seconds."""
        deadline = time.monotonic() + seconds
        while True:
            self.look()
            if condition(self):
                return True
            if self.ended or time.monotonic() > deadline:
                return False
            time.sleep(POLL_SECONDS)

    def pid(self, rank):
        """The newest process of a rank; None before there is one."""
        found = [e["pid"] for e in self.events if e["kind"] == "worker" and e["rank"] == rank and "pid" in e]
        return found[-1] if found else None

    def stepped(self):
        return any(event["kind"] == "steps" for event in self.events)

    def messages(self, after=0):
        """(when, text) of states and warnings, from event `after` on."""
        for event, when in list(zip(self.events, self.seen, strict=True))[after:]:
            if event["kind"] == "state" or (event["kind"] == "notice" and event["level"] != "info"):
                yield when, event["message"]


class Scene:
    """`with HostScene() as scene:`. kernel: replaced by `restart`."""

    def __init__(self):
        self.base = Path(tempfile.mkdtemp(prefix="chaos-"))
        self.stack = contextlib.ExitStack()
        self.kernel = None

    def __enter__(self):
        self.stack.callback(shutil.rmtree, self.base, ignore_errors=True)
        try:
            for name in ("tmp", "store"):
                mount(self.base / name, KERNEL_DISK_BYTES)
                self.stack.callback(unmount, self.base / name)
            self.open()
            self.stack.callback(self._end_kernel)
            self.kernel = self.start_kernel()
        except BaseException:
            self.stack.close()
            raise
        return self

    def __exit__(self, *error):
        self.close()

    def close(self):
        self.stack.close()

    def restart(self):
        """Another kernel, after the end of this one, and another Spark."""
        self._end_kernel()
        self.set_clock(0)
        self.kernel = self.start_kernel()

    def _end_kernel(self):
        if self.kernel is not None:
            self.kernel.end()
        self.clear()

    def forget(self):
        """Remove what the store has of all runs."""
        for folder in (self.kernel.store / "ddl_magics" / "runs").glob("*"):
            shutil.rmtree(folder, ignore_errors=True)

    def set_clock(self, seconds):
        """`time.time` of all Pythons of the scene is so far ahead."""
        part = self.base / "clock.part"
        part.write_text(str(seconds))
        part.replace(self.base / "clock")

    def open(self):
        """Make what the kernels use."""

    def start_kernel(self):
        raise NotImplementedError

    def clear(self):
        """Nothing of a kernel is left."""
        for pid in self.kernel_processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def kernel_processes(self):
        """All that kernels have started: they inherit a variable."""
        variable = f"CHAOS_CLOCK={self.base / 'clock'}".encode()
        return [pid for pid in processes.session() if variable in _variables(pid)]

    def temporary_folders(self):
        return [self.kernel.temporary]


class HostScene(Scene):
    """The kernel's own Spark, whose executors are on hosts."""

    def open(self):
        real = Path(os.environ["JAVA_HOME"]) / "bin" / "java"
        self.hosts = self.stack.enter_context(Hosts(HOSTS, self.base / "hosts", real))

    def start_kernel(self):
        folder = self.base / "spark"
        folder.mkdir(exist_ok=True)
        hosts = self.hosts
        return Kernel(self.base, "spark", hosts.count, hosts.driver_address, hosts.java_home, folder)

    def clear(self):
        super().clear()
        shutil.rmtree(self.base / "spark", ignore_errors=True)
        self.hosts.release()

    def host_of(self, pid):
        """The number of the host that a process is on. LookupError, also where it has ended."""
        try:
            namespace = os.readlink(f"/proc/{pid}/ns/net")
        except FileNotFoundError:
            raise LookupError(f"process {pid} has ended") from None
        for host in range(self.hosts.count):
            if namespace == self.hosts.namespace(host):
                return host
        raise LookupError(f"process {pid} is on no host")

    def has(self, pid):
        """Whether a process is on one of the hosts."""
        try:
            self.host_of(pid)
        except LookupError:
            return False
        return True

    def temporary_folders(self):
        return [self.kernel.temporary, *map(self.hosts.disk, range(self.hosts.count))]


class LivyScene(Scene):
    """A Livy session, through a proxy that can fail."""

    def open(self):
        variables = {"PYTHONPATH": starts.STARTUP}
        self.livy = rig.start(self.base / "livy", environment=variables)
        self.stack.callback(lambda: self.livy.stop())
        self.proxy = self.stack.enter_context(faults(self.livy))

    def start_kernel(self):
        self.proxy.clear()
        return Kernel(self.base, "livy", self.proxy.url)

    def restart_livy(self):
        """The server has been killed: another one answers at its port. It does not know the sessions of the other."""
        self.livy = self.livy.restart()

    def clear(self):
        """Sessions of a Livy outlive the kernel."""
        super().clear()
        for number in self.livy.processes().keys() - {self.livy.pid}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)


def _variables(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return []
