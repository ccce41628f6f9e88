"""A rank's side of the parameter server: pull the centre, commit a delta, pass an epoch."""

import json
import socket
import threading

import numpy as np

from . import parameter_protocol as protocol
from . import wire
from .buffers import Buffers
from .parameter_memory import Borrower

#: How long a broken connection is tried again before the server counts as lost.
RECONNECT_SECONDS = 5.0


class Refused(Exception):
    """The server did not carry out a request: one line that says why."""


class NonFinite(Refused):
    """A rank's update holds NaN or infinity and was not applied. `rank` says whose."""

    def __init__(self, rank, message):
        super().__init__(message)
        self.rank = rank


class RankLost(Refused):
    """What was waited for can no longer come: `rank` has ended or died."""

    def __init__(self, rank, message):
        super().__init__(message)
        self.rank = rank


class Client:
    """A connection to the server at `address`, by `rank` in its `attempt`. Calls may come from any thread.

    `timeout` (seconds) bounds the connecting and any silence of the server; while others are waited for, the server
    says that it is alive. A broken connection is made anew once per call. Raises `wire.ConnectionLost` if that fails
    too, `wire.Refused` if the server does not want this rank, `Refused` if it does not carry out a request.
    A centre that comes back is read-only where it lies in memory of the server's.
    """

    def __init__(self, address, secret, run, rank, attempt, timeout):
        self.rank = rank
        #: The epoch that the job is in, as of `begin`: above zero for a rank that joins late.
        self.epoch = 0
        self._where = (tuple(address), secret, run)
        self._me = wire.Identity("rank", rank, attempt)
        self._timeout = timeout
        self._lock = threading.Lock()
        self._buffers, self._memory = Buffers(), Borrower()
        self._channel = self._connect(timeout)

    def begin(self, fit, initial, dtype, size, rate=None):
        """Start fit number `fit`; returns (centre, version).

        Rank 0 brings `initial` (1-D, `size` elements of `dtype`), the first centre, and its learning rate; the others
        pass None and wait for it. A fit that goes on already, for a rank that joins late, keeps its centre.
        """
        dtype = np.dtype(dtype).name
        header = {"fit": fit, "dtype": dtype, "size": int(size), "initial": initial is not None, "rate": rate}
        vectors = () if initial is None else (np.ascontiguousarray(initial, dtype),)
        reply, (centre,) = self._ask(protocol.BEGIN, header, vectors)
        self.epoch = reply["epoch"]
        return centre, reply["version"]

    def pull(self, fit, known=None):
        """The centre as it stands now: (centre, version); (None, version) if that is the version `known`."""
        reply, centre = self._ask(protocol.PULL, {"fit": fit, "known": known})
        return (centre[0] if centre else None), reply["version"]

    def commit(self, fit, seq, delta, version, batches, late=0, want_centre=True):
        """Have `delta`, made over `batches` batches against centre `version`, merged: (centre, version, staleness).

        `seq` counts this rank's commits of the fit upwards: a commit with a seq that was there is not merged twice.
        `late` adds to the staleness. Without `want_centre` the centre is None. Raises `NonFinite`, and then the centre
        is untouched.
        """
        delta = np.ascontiguousarray(delta)
        header = {"fit": fit, "seq": seq, "version": version, "late": late, "batches": batches, "want": want_centre}
        header.update(dtype=delta.dtype.name, size=delta.size)
        reply, centre = self._ask(protocol.COMMIT, header, (delta,))
        return (centre[0] if centre else None), reply["version"], reply["staleness"]

    def epoch_end(self, fit, epoch, sums, means, stop):
        """Wait until all live workers have passed `epoch`.

        Returns (sums over ranks, mean over ranks, centre, version, whether any rank wants to stop).
        `sums` and `means` are 1-D and travel as float64. All ranks get the same arrays and the same centre.
        """
        vectors = [np.ascontiguousarray(vector, np.float64).reshape(-1) for vector in (sums, means)]
        header = {"fit": fit, "epoch": epoch, "sums": vectors[0].size, "means": vectors[1].size, "stop": bool(stop)}
        reply, (sums, means, centre) = self._ask(protocol.EPOCH_END, header, vectors)
        return sums, means, centre, reply["version"], reply["stop"]

    def share(self, fit, tag, value):
        """Small JSON, or None, that rank 0 publishes under `tag` and the others wait for. Raises `RankLost`."""
        reply, _ = self._ask(protocol.SHARE, {"fit": fit, "tag": tag, "value": value})
        return reply["value"]

    def leave(self):
        """Say that this rank is done, and close. Without it the server takes the rank for dead."""
        try:
            self._ask(protocol.LEAVE, {})
        except wire.ConnectionLost:
            pass  # the server is gone: there is nothing to leave
        self._channel.close()

    def _connect(self, timeout):
        address, secret, run = self._where
        channel = wire.connect(address, secret, run, self._me, protocol.SERVER, timeout)
        channel.settimeout(self._timeout)
        return channel

    def _ask(self, kind, header, vectors=()):
        with self._lock:
            try:
                return self._exchange(kind, header, vectors)
            except wire.ConnectionLost:
                self._channel.close()
                self._memory.disconnected()
                self._channel = self._connect(RECONNECT_SECONDS)
                return self._exchange(kind, header, vectors)

    def _exchange(self, kind, header, vectors):
        channel = self._channel
        if kind == protocol.BEGIN:
            self._memory.tidy()
        lent = kind == protocol.COMMIT and self._memory.put(*vectors)
        channel.send_json(kind, dict(header, memory=self._memory.says(), lent=lent))
        for vector in () if lent else vectors:
            protocol.send_vector(channel, vector)
        try:
            answer = protocol.ALIVE
            while answer == protocol.ALIVE:
                answer, body = channel.recv(protocol.HEADER_LIMIT_BYTES)
        except socket.timeout as error:
            raise wire.ConnectionLost("the parameter server has been silent for %g s" % self._timeout) from error
        reply = json.loads(bytes(body).decode("utf-8"))
        if answer == protocol.REFUSED:
            raise _refused(reply)
        arrays = [self._vector(*announced) for announced in reply.get("vectors", ())]
        if any(array is None for array in arrays):  # the server must send it: each request may be put again
            return self._exchange(kind, header, vectors)
        if reply.get("room"):
            self._memory.lent(reply["room"], header["dtype"], header["size"])
        return reply, arrays

    def _vector(self, dtype, size, offer):
        if offer:
            return self._memory.read(offer, dtype, size)
        return protocol.recv_vector(self._channel, protocol.new_vector(self._buffers, dtype, size))


def _refused(reply):
    if reply["kind"] == "nonfinite":
        return NonFinite(reply["rank"], reply["message"])
    if reply["kind"] == "lost":
        return RankLost(reply["rank"], reply["message"])
    return Refused(reply["message"])
