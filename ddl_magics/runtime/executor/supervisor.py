"""What a Spark task executes: it starts the rank's process, watches it, and relays its frames to the driver.

The rank is a fresh child process, because Spark reuses its Python workers across jobs: what a cell does to its process
(`sys.exit`, thread pools, dtype policies, open files) must not affect the next run. The child dies with its supervisor
(PDEATHSIG, and end of file on their socket pair), and its process group is killed, by a guard if not by the supervisor.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from typing import Any, Callable, Iterable, Mapping

from .. import events, package, scratch
from ..data import share_files
from ..data.share_cache import NOT_KEPT, ShareCache
from ..files.working_folder import ARCHIVE
from ..native_chatter import NATIVE_CHATTER
from ..rank.config import JobConfig
from ..rank.pulse import Pulse
from ..rank_end import UNCACHED, Failure, FailureKind, RankEnd
from ..spark import gpus
from ..strategies import TF_PS
from ..transport import messages, wire
from ..transport.sockets import hang_up
from . import prewarmed, rank_process, telemetry, worker
from .stall_watch import StallWatch

SAMPLE_SECONDS = 1.0
CONNECT_SECONDS = 30.0
LOG_FLUSH_SECONDS = 0.2
#: How long a finished task waits for its rows to be in the cache.
KEEP_SECONDS = 60.0
#: The output of a rank is cut off here, with a notice. Ranks other than the chief share MAX_OTHERS_BYTES.
MAX_LOG_BYTES = 2 << 20
MAX_OTHERS_BYTES = 32 << 20
#: How often an unfinished progress bar, a line that is rewritten, is shown.
BAR_SECONDS = 30.0


def supervise(
    rank: int,
    config: Mapping[str, Any],
    of_spark: list[str] | None,
    payload: Mapping[str, bytes],
    blobs: Iterable[bytes],
    home: str,
) -> dict[str, Any]:
    """Run one rank to its end. Returns {"rank", "outcome"}; raises only where the driver cannot be reached.

    config: `JobConfig.to_json`; of_spark: this task's GPUs, as `gpus.assigned` says; payload: "runtime", this package's
    zip, "names", which is `names.pack`'s bytes, and "files", a zip of those of --files, or nothing; blobs: this rank's
    data (`share_files.store` consumes it); home: a folder for the runtime package, where it is unpacked when needed.
    """
    job = JobConfig.from_json(config)
    with contextlib.ExitStack() as cleanup:
        folder = scratch.make("rank-%d" % rank)
        cleanup.callback(scratch.remove, folder)
        share = _Share(rank, job, blobs, folder, cleanup)
        for name, content in (("names.pkl", payload["names"]), (ARCHIVE, payload["files"])):
            if content:
                with open(os.path.join(folder, name), "wb") as file:
                    file.write(content)
        try:
            driver = wire.connect(
                job.driver,
                job.credentials,
                wire.Identity("supervisor", rank, job.attempt),
                wire.Identity("driver", -1, 0),
                CONNECT_SECONDS,
            )
        except wire.PeerRefused:  # Spark has tried the task of a dead executor again: the driver sees to that itself
            return {"rank": rank, "outcome": "refused"}
        cleanup.callback(driver.close)
        share.keep(driver, rank, cleanup)
        if share.problem is not None:
            rank_end = RankEnd("failed", share.problem)
            driver.send_json(messages.RANK_ENDED, rank_end.to_json())
        else:
            rank_end = _Supervisor(rank, job, of_spark, driver, folder, home, payload["runtime"]).run()
        return {"rank": rank, "outcome": rank_end.outcome}


class _Share:
    """The rank's rows of --data, on one of Spark's disks: as "data" in its `folder`.

    problem: the failure where the rows cannot be had.
    """

    def __init__(
        self, rank: int, job: JobConfig, blobs: Iterable[bytes], folder: str, cleanup: contextlib.ExitStack
    ) -> None:
        self.problem: Failure | None = None
        self._to_keep: tuple[ShareCache, str] | None = None
        if job.manifest is None:
            return
        number, _ = job.share_of_data(rank)
        cache: ShareCache | None = None
        cached_folder: str | None = None
        if job.cache is not None:
            cache = ShareCache(job.cache, rank, share_files.floatx_of(job.manifest, os.environ), os.environ)
            cached_folder = cache.fetch()
            if cached_folder is None and rank not in job.cache["dealt"]:
                message = "the cache has no longer its rows of --data"
                self.problem = Failure(rank, socket.gethostname(), UNCACHED, message)
                return
        try:
            data_folder = cached_folder or share_files.make_folder(
                job.manifest, number, os.environ, job.cache, rank if job.whole_data else None
            )
            cleanup.callback(scratch.remove, data_folder)
            if cached_folder is None and not job.manifest["files"]:  # which the rank reads itself
                share_files.store(blobs, data_folder, job.manifest, number)
            self._to_keep = (cache, data_folder) if cache is not None and cached_folder is None else None
            os.symlink(data_folder, os.path.join(folder, "data"))
        except share_files.NoRoom as error:
            self.problem = Failure(rank, socket.gethostname(), "error", str(error))

    def keep(self, driver: wire.Channel, rank: int, cleanup: contextlib.ExitStack) -> None:
        """Put the rows into the cache, if they are not there, while the rank trains."""
        if self._to_keep is None:
            return
        cache, data_folder = self._to_keep

        def keep() -> None:
            problem = cache.keep(data_folder)
            if problem is not None:
                notice = events.make("notice", rank, level="info", message="%s %s" % (NOT_KEPT, problem))
                with contextlib.suppress(wire.ConnectionLost, OSError):
                    driver.send_json(messages.EVENTS, [notice])

        thread = threading.Thread(target=keep, daemon=True)
        thread.start()
        cleanup.callback(thread.join, KEEP_SECONDS)


def last_states(text: bytes) -> bytes:
    """The final state of each printed line: a carriage return restarts the line."""
    lines = text.split(b"\n")
    for i, line in enumerate(lines):
        stripped = line.rstrip(b"\r")
        if b"\r" in stripped:
            lines[i] = stripped.rpartition(b"\r")[2] + line[len(stripped) :]
    return b"\n".join(lines)


def whole_characters(text: bytes) -> int:
    """The length of UTF-8 text without a character at its end whose other bytes are still to come."""
    for i, byte in enumerate(reversed(text[-3:]), 1):
        if byte >= 0xC0:  # a character of 2, 3 or 4 bytes begins here
            return len(text) - i if i < 2 + (byte >= 0xE0) + (byte >= 0xF0) else len(text)
        if byte < 0x80:
            break
    return len(text)


def most_printed(rank: int, ranks: int) -> int:
    """The bytes of a rank's output that are shown."""
    return MAX_LOG_BYTES if rank == 0 else min(MAX_LOG_BYTES, MAX_OTHERS_BYTES // ranks)


class _Supervisor:
    """One rank's process and the threads that relay its frames, read its output and sample its use."""

    def __init__(
        self,
        rank: int,
        job: JobConfig,
        of_spark: list[str] | None,
        driver: wire.Channel,
        folder: str,
        home: str,
        runtime: bytes,
    ) -> None:
        self._rank, self._job, self._of_spark, self._driver = rank, job, of_spark, driver
        self._folder, self._home, self._runtime = folder, home, runtime
        self._rank_end: RankEnd | None = None  # as the rank reported it
        self._was_ended: Failure | None = None  # the reason for it
        self._over = threading.Event()
        self._printed, self._may_print = 0, most_printed(rank, job.size)
        # Strategies of TensorFlow set more before they import it.
        self._prewarms = job.spec.prewarm is not False and not job.uses_tf_distribute
        self._threads: dict[str, str] | None = None  # of the rank, once its peers are known
        environment = dict(os.environ, **gpus.environment(of_spark))
        self._devices = telemetry.GpuSampler(telemetry.visible_gpus(environment))

    def run(self) -> RankEnd:
        prewarmed_rank = self._take_prewarmed()
        try:
            return self._run(prewarmed_rank)
        finally:
            if prewarmed_rank is not None:
                prewarmed.leave(prewarmed_rank)
            if self._prewarms and self._rank_end and self._threads:
                prewarmed.start(self._job, self._of_spark, self._runtime, self._threads)

    def _run(self, prewarmed_rank: prewarmed.Started | None) -> RankEnd:
        process, channel_socket = prewarmed_rank or self._start()
        guard = rank_process.Guard(process.pid)
        child = wire.Channel(channel_socket, wire.Identity("rank", self._rank, self._job.attempt))
        config = self._job.of_rank(self._rank, self._driver.local_host, self._folder, self._of_spark)
        child.send_json(messages.CONFIG, config.to_json())
        watch = self._stall_watch(process, child)
        readers = [
            self._thread(self._relay_up, child, watch),
            self._thread(self._read_output, process.stdout, "stdout"),
            self._thread(self._read_output, process.stderr, "stderr"),
        ]
        self._thread(self._relay_down, child, process)
        self._thread(self._sample, process.pid)
        self._thread(watch.run, self._over)
        try:
            readers[0].join()  # the rank has closed its end: it is over, or about to be
            rank_process.wait(process)
            for reader in readers[1:]:
                reader.join(1.0)
        finally:
            self._over.set()
            rank_process.kill(process)
            guard.dismiss()
            child.close()
        rank_end = self._rank_end or RankEnd("failed", self._was_ended or self._death(process))
        self._send(messages.RANK_ENDED, rank_end.to_json())
        return rank_end

    def _start(self) -> tuple[rank_process.Process, socket.socket]:
        package.unpack(self._runtime, self._home)
        separates = rank_process.has_notebook(self._job.spec.folder)
        return rank_process.start(self._variables(), self._folder, separates)

    def _variables(self) -> dict[str, str]:
        return rank_process.environment(self._home, self._folder, self._of_spark)

    def _take_prewarmed(self) -> prewarmed.Started | None:
        if self._prewarms:
            return prewarmed.take(self._job, self._variables(), self._folder)
        prewarmed.drop()
        return None

    @staticmethod
    def _thread(target: Callable[..., None], *args: Any) -> threading.Thread:
        thread = threading.Thread(target=target, args=args, daemon=True)
        thread.start()
        return thread

    def _stall_watch(self, process: rank_process.Process, child: wire.Channel) -> StallWatch:
        def notice(level: str, message: str) -> None:
            self._send(messages.EVENTS, [events.make("notice", self._rank, level=level, message=message)])

        def terminate(failure: Failure) -> None:
            self._was_ended = failure
            hang_up(child.socket)  # a process in an uninterruptible call would never close it
            rank_process.kill(process)

        return StallWatch(self._rank, self._job, process.pid, self._folder, notice, terminate)

    def _relay_up(self, child: wire.Channel, watch: StallWatch) -> None:
        with contextlib.suppress(wire.ConnectionLost, wire.ProtocolError, OSError):
            while True:
                kind, payload = child.recv()
                if kind == messages.PULSE:
                    watch.feed(Pulse.from_json(messages.parse(payload)))
                elif kind == messages.RANK_ENDED:
                    self._rank_end = RankEnd.from_json(messages.parse(payload))
                else:
                    with watch.relaying():
                        self._driver.send(kind, payload)

    def _relay_down(self, child: wire.Channel, process: rank_process.Process) -> None:
        try:
            while True:
                kind, payload = self._driver.recv()
                if kind == messages.PEERS and self._threads is None:
                    child.send_json(kind, self._share_out(messages.parse(payload)))
                elif kind == messages.LEAVE:
                    reason = messages.parse(payload)["reason"]
                    self._was_ended = Failure(self._rank, socket.gethostname(), "lost", reason)
                    rank_process.kill(process)
                else:
                    child.send(kind, payload)
        except (wire.ConnectionLost, wire.ProtocolError, OSError):
            if not self._over.is_set():  # without its driver a rank works for nobody
                rank_process.kill(process)

    def _share_out(self, peers: Mapping[str, Any]) -> dict[str, Any]:
        """PEERS with this rank's share of the host's cores and GPUs."""
        self._threads = worker.thread_settings(self._job, peers)
        rank_gpus = gpus.round_robin(self._devices.addresses, self._of_spark, peers)
        self._devices.keep_to(rank_gpus)
        return dict(peers, gpus=rank_gpus)

    def _death(self, process: rank_process.Process) -> Failure:
        """The failure of a rank that never reported how it ended."""
        status = process.returncode
        if status is not None and status < 0:
            name = signal.Signals(-status).name if -status in set(signal.Signals) else "signal %d" % -status
            kind: FailureKind = "signal"
            message = "its process %d was killed by %s" % (process.pid, name)
            if -status == signal.SIGKILL:
                message += (
                    "; if nobody killed it, the host ran out of memory: give executors more, or lower --batch-size"
                )
        else:
            kind = "exit"
            message = "its process %d ended with exit status %s before the cell did" % (process.pid, status)
        return Failure(self._rank, socket.gethostname(), kind, message)

    def _read_output(self, pipe: Any, stream: str) -> None:
        """Whole lines, collected for a moment so that a chatty rank costs few events."""
        descriptor = pipe.fileno()
        pending = b""
        bar_shown_at: float | None = None  # or begun at; None while none is in progress
        while True:
            block = os.read(descriptor, 65536)
            pending = last_states(pending + block)
            lines, cut, tail = pending.rpartition(b"\n")
            if cut:
                bar_shown_at = None
            elif b"\r" in block:
                bar_shown_at = bar_shown_at or time.monotonic()
                if time.monotonic() >= bar_shown_at + BAR_SECONDS:
                    bar_shown_at = time.monotonic()
                    self._print(stream, pending + b"\n")
            if cut:
                self._print(stream, lines + cut)
                pending = tail
            elif (pending and not block) or len(pending) > 65536:
                length = whole_characters(pending) if block else len(pending)
                self._print(stream, pending[:length])
                pending = pending[length:]
            if not block:
                return
            if len(block) < 65536:
                self._over.wait(LOG_FLUSH_SECONDS)

    def _print(self, stream: str, block: bytes) -> None:
        if stream == "stderr":
            block = NATIVE_CHATTER.sub(b"", block)
        if not block or self._printed > self._may_print:
            return
        self._printed += len(block)
        text = block.decode("utf-8", "replace")
        if self._printed > self._may_print:
            words = self._rank, self._may_print >> 10
            text += "\n... rank %d printed more than %d kB; the rest is not shown\n" % words
        self._send(messages.EVENTS, [events.make("log", self._rank, stream=stream, text=text)])

    def _sample(self, pid: int) -> None:
        process = telemetry.ProcessSampler(pid, with_children=self._job.spec.strategy == TF_PS)
        while not self._over.wait(SAMPLE_SECONDS):
            use = process.sample()
            if use is not None:
                cpu, memory = use
                gpu_uses = self._devices.sample()
                sample = events.make("sample", self._rank, cpu=round(cpu, 1), memory=memory, gpus=gpu_uses)
                warnings = [
                    events.make("notice", self._rank, level="warning", message=message)
                    for message in self._devices.new_slowdowns(gpu_uses or ())
                ]
                self._send(messages.EVENTS, [sample, *warnings])

    def _send(self, kind: int, value: Any) -> None:
        with contextlib.suppress(wire.ConnectionLost, OSError):  # the driver has gone; _relay_down ends the rank
            self._driver.send_json(kind, value)
