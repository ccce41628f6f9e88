"""The parameter server: a process that holds the centre and merges what the ranks commit.

`python -m <package>.parameter_server.server` reads a line of JSON, a `ServerConfig`, from stdin, writes {"port": ...}
to stdout, and lives until stdin ends. It serves any number of fits, one after the other.

A thread per connection receives, checks and sends vectors. One lock guards a fit's centre and version, so that a commit
changes both in one step; sending a centre needs no lock, as none ever changes. An epoch's end waits for the ranks that
are connected or may still connect; a rank whose connection closes is not waited for until it connects again.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any, Callable, Sequence, Tuple, TypedDict, TypeVar

import numpy as np

from ..parent_death import die_with_parent
from ..transport import messages, wire
from ..transport.buffers import Buffers
from . import protocol, update_rules
from .centre import Arrival, EpochEnd, Fit, Refusal
from .members import CHIEF, Members
from .memory import Pool, ServerBuffer
from .vector import Vector

#: The interval of ALIVE while a rank waits for others.
ALIVE_SECONDS = 5.0
#: How long a rank that has never connected is waited for, from the start of the first fit.
JOIN_SECONDS = 300.0
#: Fits that keep their centre: the current one, and the one before, which a slow rank may still request.
FITS_KEPT = 2

#: Elements that are checked at a time, so that the result of a check stays in the processor's cache.
_BLOCK = 1 << 17

_Value = TypeVar("_Value")
_Answer = Tuple[protocol.Reply, Sequence[Vector]]


class ServerOptions(TypedDict, total=False):
    """Defaults, in seconds, are `JOIN_SECONDS`, `ALIVE_SECONDS`, and 0 for rank 0 to connect again. max_size: as
    `Members` has it; by default 0.
    """

    max_size: int
    join_seconds: float
    alive_seconds: float
    rejoin_seconds: float


class ServerConfig(TypedDict):
    """Of the process.

    credentials: `Credentials.to_json`. host: to listen on. size: ranks of the run. attempt: the first that may connect.
    rule: as `update_rules.parse` takes it.
    """

    credentials: dict[str, Any]
    host: str
    size: int
    attempt: int
    rule: str
    options: ServerOptions


class Server:
    """Answers the requests of the ranks, over all fits of a run, at `port`.

    Raises `rule_spec.UnknownRule`, and OSError where it cannot listen.
    """

    def __init__(self, config: ServerConfig) -> None:
        self._rule, self._size = config["rule"], config["size"]
        update_rules.parse(self._rule)
        self._changed = threading.Condition()
        options = config["options"]
        max_size = options.get("max_size", 0)
        self._most_ranks = max(self._size, max_size)
        self._alive_seconds = options.get("alive_seconds", ALIVE_SECONDS)
        self._members = Members(
            config["size"],
            config["attempt"],
            options.get("join_seconds", JOIN_SECONDS),
            options.get("rejoin_seconds", 0.0),
            max_size,
        )
        self._fits: dict[int, Fit] = {}
        self._vectors, self._statistics = Pool(), Buffers()
        self._handlers: dict[int, Callable[[ServerBuffer, Any], _Answer]] = {
            protocol.BEGIN: self._begin,
            protocol.PULL: self._pull,
            protocol.COMMIT: self._commit,
            protocol.EPOCH_END: self._epoch_end,
            protocol.BROADCAST: self._broadcast,
        }
        credentials = wire.Credentials.from_json(config["credentials"])
        self._listener = wire.Listener(config["host"], credentials, protocol.SERVER, self._admit, self._accept)
        self.port: int = self._listener.address[1]

    def close(self) -> None:
        self._listener.close()

    def _admit(self, peer: wire.Identity) -> str | None:
        """Why a peer may not connect, or None."""
        if peer.role != "rank":
            return "the parameter server serves ranks, not a %s" % peer.role
        with self._changed:
            return self._members.refusal(peer.rank, peer.attempt)

    def _accept(self, channel: wire.Channel) -> None:
        """Serve a connection to its end, in the thread that the listener gives to each."""
        peer, older, has_left = channel.peer, None, False
        buffer = ServerBuffer(channel, self._vectors)
        try:
            with self._changed:
                if self._members.refusal(peer.rank, peer.attempt):
                    return  # a later attempt has connected since the admission
                older = self._members.connected(peer.rank, peer.attempt, channel)
            if older is not None:
                older.close(0)
            while self._serve(buffer):
                pass
            has_left = True
        except wire.ConnectionLost:
            pass  # noted below: those who wait for this rank continue without it
        except (wire.ProtocolError, ValueError, KeyError, TypeError) as error:
            print("rank %d is cut off: %r" % (peer.rank, error), file=sys.stderr, flush=True)
        finally:
            with self._changed:
                self._members.disconnected(peer.rank, channel, has_left)
                self._changed.notify_all()
            buffer.close()
            channel.close()

    def _serve(self, buffer: ServerBuffer) -> bool:
        """Answer one request; False after the last. An error other than a `Refusal` ends the connection."""
        channel = buffer.channel
        kind, body = channel.recv(protocol.HEADER_LIMIT_BYTES)
        header = messages.parse(body)
        if kind == protocol.LEAVE:
            channel.send_json(protocol.REPLY, {})
            return False
        if kind not in self._handlers:
            raise wire.ProtocolError("there is no request of kind %d" % kind)
        buffer.note_state(header["memory"])
        try:
            reply, vectors = self._handlers[kind](buffer, header)
        except Refusal as refusal:
            refused: protocol.RefusalMessage = {"kind": refusal.kind, "rank": refusal.rank, "message": str(refusal)}
            channel.send_json(protocol.REFUSED, refused)
            return True
        buffer.answer(reply, vectors)
        return True

    def _fit(self, rank: int, number: int) -> Fit:
        if number not in self._fits:
            raise Refusal("usage", rank, "rank %d asks about fit %d, which is not there" % (rank, number))
        return self._fits[number]

    def _wait(self, buffer: ServerBuffer, condition: Callable[[], _Value | None]) -> _Value:
        """The first true value of `condition()`, called under the lock; meanwhile the rank gets ALIVE."""
        while True:
            with self._changed:
                value = self._changed.wait_for(condition, self._alive_seconds)
            if value:
                return value
            buffer.channel.send(protocol.ALIVE, b"{}")

    def _begin(self, buffer: ServerBuffer, header: protocol.BeginRequest) -> _Answer:
        rank, number = buffer.rank, header["fit"]
        if header["initial"]:
            initial = buffer.vector(header)
            _check_finite(rank, initial, "initial weights")
            with self._changed:
                self._start(rank, number, initial, header["rate"])

        def begun() -> Fit | None:
            if number not in self._fits:
                if self._fits and number < max(self._fits):
                    if self._members.prepares(rank):
                        cause = "it has come too late for it"
                    elif buffer.attempt == 1:
                        cause = "every rank must train equally often"
                    else:
                        cause = "it has no checkpoint of it"
                    words = rank, number + 1, max(self._fits) + 1, cause
                    raise Refusal("usage", rank, "rank %d begins fit %d, and others are in fit %d: %s" % words)
                self._need_chief("the weights of fit %d" % number)
            return self._fits.get(number)

        fit = self._wait(buffer, begun)
        with self._changed:
            fit.check(rank, header["dtype"], header["size"])
            self._members.begins(rank)
            room = buffer.lend(header["dtype"], header["size"])
            reply: protocol.Reply = {"version": fit.version, "room": room, "ranks": list(fit.ranks), "steps": fit.steps}
            reply["epoch"] = protocol.NO_MORE_EPOCHS if fit.is_over else fit.epoch
            return reply, [fit.centre]

    def _start(self, rank: int, number: int, initial: Vector, rate: float | None) -> None:
        if rank != CHIEF:
            raise Refusal("usage", rank, "rank %d brings initial weights: only rank 0 may" % rank)
        if self._fits and number < max(self._fits):
            raise Refusal("usage", rank, "fit %d is over: fit %d has begun" % (number, max(self._fits)))
        self._members.fit_begins()
        if number not in self._fits:  # else rank 0 has connected again, and the fit keeps its centre
            rule = update_rules.get(self._rule, self._most_ranks, rate)
            self._fits[number] = Fit(rule, initial, sorted(self._members.awaited()))
            for outdated in sorted(self._fits)[:-FITS_KEPT]:
                del self._fits[outdated]
        self._changed.notify_all()

    def _need_chief(self, needed_value: str) -> None:
        """Raises a `Refusal` where rank 0 can no longer bring `needed_value`."""
        if CHIEF not in self._members.awaited():
            raise Refusal("lost", CHIEF, "rank 0 has ended or died before it brought %s" % needed_value)

    def _pull(self, buffer: ServerBuffer, header: protocol.PullRequest) -> _Answer:
        with self._changed:
            fit = self._fit(buffer.rank, header["fit"])
            return {"version": fit.version}, [] if header["local_version"] == fit.version else [fit.centre]

    def _commit(self, buffer: ServerBuffer, header: protocol.CommitRequest) -> _Answer:
        rank, attempt, seq = buffer.rank, buffer.attempt, header["seq"]
        delta = buffer.vector(header)
        _check_finite(rank, delta, "update %d" % seq)
        with self._changed:
            fit = self._fit(rank, header["fit"])
            staleness = fit.commit(rank, attempt, seq, delta, header["version"], header["late"])
            reply: protocol.Reply = {"version": fit.version, "staleness": staleness}
            vectors = [fit.centre] if header["want"] else []
        reply["room"] = buffer.lend(header["dtype"], header["size"])
        return reply, vectors

    def _epoch_end(self, buffer: ServerBuffer, header: protocol.EpochEndRequest) -> _Answer:
        rank, epoch = buffer.rank, header["epoch"]
        sums, means = (
            protocol.recv_vector(buffer.channel, protocol.new_vector(self._statistics, "float64", size))
            for size in (header["sums"], header["means"])
        )
        with self._changed:
            fit = self._fit(rank, header["fit"])
            fit.arrive(epoch, rank, Arrival(sums, means, header["stop"], header["trained"], header["steps"]))
            self._changed.notify_all()
        epoch_end: EpochEnd = self._wait(buffer, lambda: fit.epoch_end(epoch, self._members.awaited()))
        with self._changed:
            centre = fit.centre if epoch_end.centre is None else epoch_end.centre
            reply: protocol.Reply = {"version": epoch_end.version, "stop": epoch_end.stop, "steps": epoch_end.steps}
            reply["ranks"] = list(epoch_end.ranks)
            return reply, [epoch_end.sums, epoch_end.means, centre]

    def _broadcast(self, buffer: ServerBuffer, header: protocol.BroadcastRequest) -> _Answer:
        rank, tag, value = buffer.rank, header["tag"], header["value"]
        with self._changed:
            fit = self._fit(rank, header["fit"])
            if value is not None and rank != CHIEF:
                raise Refusal("usage", rank, "rank %d broadcasts %r: only rank 0 may" % (rank, tag))
            if rank == CHIEF:  # null too is a value then: rank 0 must not wait for itself
                fit.broadcasts[tag] = value
                self._changed.notify_all()

        def broadcast_value() -> list[Any] | None:
            if tag not in fit.broadcasts:
                self._need_chief("%r" % (tag,))
                return None
            return [fit.broadcasts[tag]]

        return {"value": self._wait(buffer, broadcast_value)[0]}, []


def _check_finite(rank: int, vector: Vector, description: str) -> None:
    blocks = (vector[begin : begin + _BLOCK] for begin in range(0, vector.size, _BLOCK))
    if not all(np.isfinite(block).all() for block in blocks):
        raise Refusal("nonfinite", rank, "rank %d's %s is not finite (NaN or infinity)" % (rank, description))


def main() -> None:
    die_with_parent()  # the parent's thread lives as long as the run
    config = json.loads(sys.stdin.readline())
    # The parent reads one line from our stdout: what libraries print goes to stderr.
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    server = Server(config)
    answer.write(json.dumps({"port": server.port}) + "\n")
    answer.close()
    while sys.stdin.read(4096):
        pass
    server.close()


if __name__ == "__main__":
    main()
