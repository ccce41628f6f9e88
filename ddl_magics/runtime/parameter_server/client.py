"""A rank's side of the parameter server: pull the centre, commit a delta, end an epoch."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING, Any, Mapping, Protocol, Sequence, TypeVar

import numpy as np

from ..assert_never import assert_never
from ..transport import messages, wire
from ..transport.buffers import Buffers
from . import protocol
from .memory import ClientBuffer

if TYPE_CHECKING:
    import numpy.typing as npt

    from ..transport.memory_file import MemoryOffer
    from .vector import Vector

#: How long a broken connection is tried again before the server counts as lost.
RECONNECT_SECONDS = 5.0


class RequestRefused(Exception):
    """The server did not carry out a request: one line that says why."""


class RankAtFault(RequestRefused):
    """Because of the rank `rank`."""

    def __init__(self, rank: int, message: str) -> None:
        super().__init__(message)
        self.rank = rank


class NonFinite(RankAtFault):
    """A vector of `rank` holds NaN or infinity and was not applied."""


class RankLost(RankAtFault):
    """`rank` has ended or died before it brought what this rank waits for."""


#: The version of a centre: an int of one server, a tuple of ints of several.
Version = TypeVar("Version")


class ParameterClient(Protocol[Version]):
    """What a worker needs of its server or servers: a `Client`, or a `shards.ShardedClient`, which say more."""

    @property
    def epoch(self) -> int: ...

    @property
    def ranks(self) -> Sequence[int]: ...

    @property
    def steps(self) -> int: ...

    @property
    def busy(self) -> bool: ...

    def begin(
        self, fit: int, initial: Vector | None, dtype: npt.DTypeLike, size: int, rate: float | None = None
    ) -> tuple[Vector, Version]: ...

    def pull(self, fit: int, local_version: Version | None = None) -> tuple[Vector | None, Version]: ...

    def commit(
        self, fit: int, seq: int, delta: Vector, version: Version, extra_staleness: int = 0, want_centre: bool = True
    ) -> tuple[Vector | None, Version, int]: ...

    def epoch_end(
        self,
        fit: int,
        epoch: int,
        sums: npt.NDArray[Any],
        means: npt.NDArray[Any],
        stop: bool,
        trained: bool = True,
        steps: int = 0,
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], Vector, Version, bool]: ...

    def broadcast(self, fit: int, tag: str, value: Any) -> Any: ...

    def leave(self) -> None: ...


class Client:
    """A connection of `rank` to the server at `address`, in its `attempt`. Calls may come from any thread.

    A vector is a 1-D array of the model's `size` trainable weights, of float16, float32 or float64; one that a call
    returns is read-only if it lies in the server's memory. A version counts the commits merged into a centre.

    timeout: bound in seconds for connecting and for any silence of the server, which reports that it lives while a call
    waits for other ranks. A connection that breaks during a call is made anew, once, and the call repeated.

    Every call raises `wire.ConnectionLost` if that fails as well, `wire.PeerRefused` if the server does not admit this
    rank, and `RequestRefused` if the server does not carry out the request.
    """

    def __init__(
        self, address: Sequence[Any], credentials: wire.Credentials, rank: int, attempt: int, timeout: float
    ) -> None:
        self.rank = rank
        #: The epoch that the job is in, as of `begin`: above zero for a rank that joins late.
        self.epoch = 0
        #: Those that share out the epoch that the job is in, as of `begin` and `epoch_end`.
        self.ranks: Sequence[int] = ()
        #: Those that all ranks had made at its beginning.
        self.steps = 0
        host, port = address
        self._server = ((host, port), credentials)
        self._identity = wire.Identity("rank", rank, attempt)
        self._timeout = timeout
        self._lock = threading.Lock()
        self._buffers, self._memory = Buffers(), ClientBuffer()
        self._channel = self._connect(timeout)

    @property
    def busy(self) -> bool:
        """Whether a request waits for its answer."""
        return self._lock.locked()

    def begin(
        self, fit: int, initial: Vector | None, dtype: npt.DTypeLike, size: int, rate: float | None = None
    ) -> tuple[Vector, int]:
        """Starts fit number `fit`, from 0. A fit that has begun keeps its centre, for a rank that joins late.

        Args:
            initial: the first centre, `size` elements of `dtype`. Rank 0 brings it; the others pass None and wait.
            rate: rank 0's learning rate, or None.

        Returns:
            (centre, version).
        """
        dtype = np.dtype(dtype).name
        header = {"fit": fit, "dtype": dtype, "size": int(size), "initial": initial is not None, "rate": rate}
        vectors = () if initial is None else (np.ascontiguousarray(initial, dtype),)
        reply, (centre,) = self._request(protocol.BEGIN, header, vectors)
        self.epoch, self.ranks, self.steps = reply["epoch"], reply["ranks"], reply["steps"]
        return centre, reply["version"]

    def pull(self, fit: int, local_version: int | None = None) -> tuple[Vector | None, int]:
        """The newest centre and its version; (None, version) if that is `local_version`."""
        reply, centre = self._request(protocol.PULL, {"fit": fit, "local_version": local_version})
        return (centre[0] if centre else None), reply["version"]

    def commit(
        self, fit: int, seq: int, delta: Vector, version: int, extra_staleness: int = 0, want_centre: bool = True
    ) -> tuple[Vector | None, int, int]:
        """Has `delta` merged into the centre.

        Args:
            seq: counts this rank's commits of the fit. The server does not merge a number of this attempt twice.
            delta: of the centre's size and dtype; it is not changed.
            version: of the centre that `delta` was computed against.
            extra_staleness: added, in commits, to the staleness that follows from `version`.
            want_centre: False saves sending the centre, which is None then.

        Returns:
            (new centre, its version, staleness in commits).

        Raises:
            NonFinite: `delta` holds NaN or infinity; the centre is unchanged.
        """
        delta = np.ascontiguousarray(delta)
        header = {
            "fit": fit,
            "seq": seq,
            "version": version,
            "late": extra_staleness,
            "want": want_centre,
            "dtype": delta.dtype.name,
            "size": delta.size,
        }
        reply, centre = self._request(protocol.COMMIT, header, (delta,))
        return (centre[0] if centre else None), reply["version"], reply["staleness"]

    def epoch_end(
        self,
        fit: int,
        epoch: int,
        sums: npt.NDArray[Any],
        means: npt.NDArray[Any],
        stop: bool,
        trained: bool = True,
        steps: int = 0,
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], Vector, int, bool]:
        """Waits until all live ranks have passed `epoch`.

        Args:
            sums: of any shape, added up over the ranks; of one size on all ranks.
            means: of any shape, averaged over the ranks; of one size on all ranks.
            stop: whether this rank wants the fit to stop.
            trained: whether this rank had a share of the epoch, so that its `means` count.
            steps: that all ranks have made, by its count.

        Returns:
            (sums, means, centre, version, whether any rank wants to stop), equal on all ranks; sums and means are 1-D
            float64.
        """
        vectors = [np.ascontiguousarray(vector, np.float64).reshape(-1) for vector in (sums, means)]
        header = {"fit": fit, "epoch": epoch, "sums": vectors[0].size, "means": vectors[1].size, "stop": bool(stop)}
        header.update(trained=trained, steps=steps)
        reply, (sums, means, centre) = self._request(protocol.EPOCH_END, header, vectors)
        self.ranks, self.steps = reply["ranks"], reply["steps"]
        return sums, means, centre, reply["version"], reply["stop"]

    def broadcast(self, fit: int, tag: str, value: Any) -> Any:
        """The small JSON value that rank 0 passes with `tag`, on every rank; the others pass None and wait for it.

        Raises `RankLost` if rank 0 is gone.
        """
        reply, _ = self._request(protocol.BROADCAST, {"fit": fit, "tag": tag, "value": value})
        return reply["value"]

    def leave(self) -> None:
        """Report that this rank is done, and close. Without it the server takes the rank for dead."""
        with contextlib.suppress(wire.ConnectionLost):  # the server is gone: there is nothing to leave
            self._request(protocol.LEAVE, {})
        self._channel.close()

    def _connect(self, timeout: float) -> wire.Channel:
        address, credentials = self._server
        channel = wire.connect(address, credentials, self._identity, protocol.SERVER, timeout)
        channel.settimeout(self._timeout)
        return channel

    def _request(
        self, kind: int, header: Mapping[str, Any], vectors: Sequence[Vector] = ()
    ) -> tuple[protocol.Reply, list[Any]]:
        """(reply, its vectors) to a request, over a new connection if the present one breaks."""
        with self._lock:
            try:
                return self._exchange(kind, header, vectors)
            except wire.ConnectionLost:
                self._channel.close()
                self._memory.disconnected()
                self._channel = self._connect(RECONNECT_SECONDS)
                return self._exchange(kind, header, vectors)

    def _exchange(
        self, kind: int, header: Mapping[str, Any], vectors: Sequence[Vector]
    ) -> tuple[protocol.Reply, list[Any]]:
        channel = self._channel
        if kind == protocol.BEGIN:
            self._memory.release_unused()
        lent = kind == protocol.COMMIT and self._memory.write(*vectors)
        channel.send_json(kind, dict(header, memory=self._memory.state(), lent=lent))
        for vector in () if lent else vectors:
            protocol.send_vector(channel, vector)
        reply = self._reply()
        arrays = [self._vector(*announced) for announced in reply.get("vectors", ())]
        if any(array is None for array in arrays):  # the next answer has them: the server knows by then
            return self._exchange(kind, header, vectors)
        room = reply.get("room")
        if room:
            self._memory.accept(room, header["dtype"], header["size"])
        return reply, arrays

    def _reply(self) -> protocol.Reply:
        try:
            answer = protocol.ALIVE
            while answer == protocol.ALIVE:
                answer, body = self._channel.recv(protocol.HEADER_LIMIT_BYTES)
        except socket.timeout as error:
            raise wire.ConnectionLost("the parameter server has been silent for %g s" % self._timeout) from error
        if answer == protocol.REFUSED:
            raise _refused(messages.parse(body))
        if answer != protocol.REPLY:
            raise wire.ProtocolError("the parameter server sent an answer of kind %d" % answer)
        reply: protocol.Reply = messages.parse(body)
        return reply

    def _vector(self, dtype: str, size: int, offer: MemoryOffer | None) -> Vector | None:
        if offer:
            return self._memory.read(offer, dtype, size)
        return protocol.recv_vector(self._channel, protocol.new_vector(self._buffers, dtype, size))


def _refused(refused: protocol.RefusalMessage) -> RequestRefused:
    """The error for an answer REFUSED."""
    kind, rank, message = refused["kind"], refused["rank"], refused["message"]
    if kind == "nonfinite":
        return NonFinite(rank, message)
    if kind == "lost":
        return RankLost(rank, message)
    if kind == "usage":
        return RequestRefused(message)
    assert_never(kind)
