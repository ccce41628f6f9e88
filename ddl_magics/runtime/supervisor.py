"""What a Spark task executes: it starts the rank's process, watches it, and speaks for it to the driver.

The rank is a fresh child process, because Spark reuses its Python workers across jobs: nothing that a cell does to its
process (`sys.exit`, thread pools, dtype policies, open files) may meet the next run. The child dies with its supervisor
(PDEATHSIG, and end of file on their socket pair), and what it leaves behind is killed with its process group.
"""

import os
import re
import signal
import socket
import threading

from . import events, feed_share, gpus, messages, rank_process, scratch, spare, telemetry, wire, worker
from .strategies import NATIVE, TF_PS

SAMPLE_SECONDS = 1.0
CONNECT_SECONDS = 30.0
LOG_FLUSH_SECONDS = 0.2
#: A rank that prints more than this is cut short, with a line that says so.
MAX_LOG_BYTES = 2 << 20
#: Information and warnings of TensorFlow's C++ side, which TF_CPP_MIN_LOG_LEVEL=2 hides but for its first moments.
_NATIVE_CHATTER = re.compile(
    rb"(?m)^(?:[IW]\d{4} \d\d:\d\d:\d\d|[IW]0000 00:00:|WARNING: All log messages before absl).*\n"
)


def supervise(rank, job, names, blobs, home):
    """Run one rank to its end. Returns {"rank", "outcome"}; raises only where the driver cannot be reached.

    rank: this task's rank; job: the driver's dict for all ranks, and "gpus", what `gpus.assigned` says of this one;
    names: `names.pack`'s bytes; blobs: this rank's data (`feed_share.store` consumes it); home: the folder that holds
    the runtime package.
    """
    folder = scratch.make("rank-%d" % rank)
    try:
        feed_share.store(blobs if job["manifest"] else (), os.path.join(folder, "data"))
        with open(os.path.join(folder, "names.pkl"), "wb") as file:
            file.write(names)
        try:
            driver = wire.connect(
                tuple(job["driver"]),
                bytes.fromhex(job["secret"]),
                job["run"],
                wire.Identity("supervisor", rank, job["attempt"]),
                wire.Identity("driver", -1, 0),
                CONNECT_SECONDS,
            )
        except wire.Refused:  # Spark has tried the task of a dead executor again: the driver sees to that itself
            return {"rank": rank, "outcome": "refused"}
        try:
            return _Rank(rank, job, driver, folder, home).run()
        finally:
            driver.close()
    finally:
        scratch.remove(folder)


class _Rank:
    """One rank's process and the threads that relay its frames, read its output and sample its use."""

    def __init__(self, rank, job, driver, folder, home):
        self._rank, self._job, self._driver = rank, job, driver
        self._folder, self._home = folder, home
        self._ended = None  # payload of the END frame
        self._over = threading.Event()
        self._printed = 0
        self._spares = job["spare"] and job["strategy"] not in NATIVE  # which set more before they import TensorFlow
        self._threads = None  # of the rank, once its peers are known
        own = dict(os.environ, **gpus.environment(job.get("gpus")))
        self._devices = telemetry.GpuSampler(telemetry.visible_gpus(own))

    def run(self):
        taken = self._take_spare()
        if taken is not None:
            self._home = taken.home
        try:
            return self._run(taken)
        finally:
            if taken is not None:
                scratch.remove(taken.home)

    def _run(self, taken):
        process, ours = (taken.process, taken.socket) if taken else rank_process.start(self._variables(), self._folder)
        child = wire.Channel(ours, wire.Identity("rank", self._rank, self._job["attempt"]))
        child.send_json(messages.CONFIG, self._config())
        readers = [
            self._thread(self._relay_up, child),
            self._thread(self._read_output, process.stdout, "stdout"),
            self._thread(self._read_output, process.stderr, "stderr"),
        ]
        self._thread(self._relay_down, child, process)
        self._thread(self._sample, process.pid)
        try:
            readers[0].join()  # the rank has closed its end: it is over, or about to be
            rank_process.wait(process)
            for reader in readers[1:]:
                reader.join(1.0)
        finally:
            self._over.set()
            rank_process.kill(process)
            child.close()
        end = self._ended or {"outcome": "failed", "failure": self._death(process)}
        self._tell(messages.END, end)
        if self._spares and self._ended and self._threads:
            spare.leave(self._job, self._home, self._threads)
        return {"rank": self._rank, "outcome": end["outcome"]}

    def _variables(self):
        return rank_process.environment(self._job, self._home, self._folder)

    def _take_spare(self):
        if self._spares:
            return spare.take(self._job, self._variables(), self._folder)
        spare.drop()
        return None

    def _config(self):
        return dict(self._job, rank=self._rank, host=self._driver.local_host, scratch=self._folder)

    @staticmethod
    def _thread(target, *args):
        thread = threading.Thread(target=target, args=args, daemon=True)
        thread.start()
        return thread

    def _relay_up(self, child):
        try:
            while True:
                kind, payload = child.recv()
                if kind == messages.END:
                    self._ended = messages.parse(payload)
                else:
                    self._driver.send(kind, payload)
        except (wire.ConnectionLost, wire.ProtocolError, OSError):
            pass

    def _relay_down(self, child, process):
        try:
            while True:
                kind, payload = self._driver.recv()
                if kind == messages.PEERS:
                    child.send_json(kind, self._share_out(messages.parse(payload)))
                else:
                    child.send(kind, payload)
        except (wire.ConnectionLost, wire.ProtocolError, OSError):
            if not self._over.is_set():  # without its driver a rank works for nobody
                rank_process.kill(process)

    def _share_out(self, peers):
        """What is left for the rank of the host's cores and GPUs."""
        self._threads = worker.thread_settings(self._job, peers)
        own = gpus.share(self._devices.indices, self._job.get("gpus"), peers)
        self._devices.keep_to(own)
        return dict(peers, gpus=own)

    def _death(self, process):
        """The failure of a rank that never said how it ended."""
        status = process.returncode
        if status is not None and status < 0:
            name = signal.Signals(-status).name if -status in set(signal.Signals) else "signal %d" % -status
            kind, message = "signal", "its process %d was killed by %s" % (process.pid, name)
            if -status == signal.SIGKILL:
                message += (
                    "; if nobody killed it, the host ran out of memory: give executors more, or lower --batch-size"
                )
        else:
            kind = "exit"
            message = "its process %d ended with exit status %s before the cell did" % (process.pid, status)
        return {"rank": self._rank, "host": socket.gethostname(), "kind": kind, "message": message, "traceback": ""}

    def _read_output(self, pipe, stream):
        """Whole lines, gathered for a moment so that a chatty rank costs few events."""
        descriptor = pipe.fileno()
        rest = b""
        while True:
            block = os.read(descriptor, 65536)
            rest += block
            lines, cut, tail = rest.rpartition(b"\n")
            if cut or (rest and not block) or len(rest) > 65536:
                self._print(stream, lines + cut if cut else rest)
                rest = tail if cut else b""
            if not block:
                return
            if len(block) < 65536:
                self._over.wait(LOG_FLUSH_SECONDS)

    def _print(self, stream, block):
        if stream == "stderr":
            block = _NATIVE_CHATTER.sub(b"", block)
        if not block or self._printed > MAX_LOG_BYTES:
            return
        self._printed += len(block)
        text = block.decode("utf-8", "replace")
        if self._printed > MAX_LOG_BYTES:
            text += "\n... rank %d printed more than %d MB; the rest is not shown\n" % (self._rank, MAX_LOG_BYTES >> 20)
        self._tell(messages.EVENTS, [events.make("log", self._rank, stream=stream, text=text)])

    def _sample(self, pid):
        process = telemetry.ProcessSampler(pid, family=self._job["strategy"] == TF_PS)
        while not self._over.wait(SAMPLE_SECONDS):
            use = process.sample()
            if use is not None:
                cpu, memory = use
                found = self._devices.sample()
                sample = events.make("sample", self._rank, cpu=round(cpu, 1), memory=memory, gpus=found)
                self._tell(messages.EVENTS, [sample])

    def _tell(self, kind, value):
        try:
            self._driver.send_json(kind, value)
        except (wire.ConnectionLost, OSError):
            pass  # the driver has gone; _relay_down ends the rank
