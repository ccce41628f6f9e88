"""The parameter server: a process that holds the centre and merges what the ranks commit.

`python -m <package>.parameter_server` reads its configuration as one JSON line from stdin ({"run", "secret" (hex),
"host", "size", "attempt", "rule", "options"}), answers {"port": ...} on stdout, and lives until stdin ends. It serves
any number of fits one after the other. `rule` is as `rules.read` takes it; `options` may have "join_seconds",
"rejoin_seconds" and "alive_seconds".

A thread per connection receives, checks and sends vectors. One lock stands around a fit's centre and version, so that a
commit is a merge and a version in one; as no centre ever changes, sending one needs no lock. Ranks that are waited for
are those that are connected, or may still come: a rank whose connection closes is counted out until it connects again.
"""

import ctypes
import json
import os
import signal
import sys
import threading

import numpy as np

from . import parameter_protocol as protocol
from . import rules, wire
from .buffers import Buffers
from .parameter_centre import Fit, Refusal
from .parameter_members import CHIEF, Members
from .parameter_memory import Lender, Pool

#: How often a rank that waits for others is told that the server lives.
ALIVE_SECONDS = 5.0
#: How long a rank that has never connected is waited for, from the start of the first fit.
JOIN_SECONDS = 300.0
#: Fits whose centre is kept: the current one, and the one that a slow rank may still ask about.
FITS_KEPT = 2

#: Elements that are checked at a time: what is noted of them stays in the processor's cache.
_BLOCK = 1 << 17

_PR_SET_PDEATHSIG = 1


class Server:
    """The requests of the ranks, over all fits of a run. `config` is the process's configuration."""

    def __init__(self, config):
        self._rule, self._size = config["rule"], config["size"]
        rules.read(self._rule)
        self._changed = threading.Condition()
        options = config["options"]
        self._alive_seconds = options.get("alive_seconds", ALIVE_SECONDS)
        self._members = Members(
            config["size"],
            config["attempt"],
            options.get("join_seconds", JOIN_SECONDS),
            options.get("rejoin_seconds", 0.0),
        )
        self._fits = {}
        self._weights, self._small = Pool(), Buffers()  # what vectors are made of
        self._handlers = {
            protocol.BEGIN: self._begin,
            protocol.PULL: self._pull,
            protocol.COMMIT: self._commit,
            protocol.EPOCH_END: self._epoch_end,
            protocol.SHARE: self._share,
        }
        secret = bytes.fromhex(config["secret"])
        self._listener = wire.Listener(
            config["host"], secret, config["run"], protocol.SERVER, self._admit, self._accept
        )
        self.port = self._listener.address[1]

    def close(self):
        self._listener.close()

    def _admit(self, peer):
        if peer.role != "rank":
            return "the parameter server talks to ranks, not to a %s" % peer.role
        with self._changed:
            return self._members.why_not(peer.rank, peer.attempt)

    def _accept(self, channel):
        """Serve a connection to its end, in the thread that the listener gives to each."""
        peer, older, left = channel.peer, None, False
        lender = Lender(channel, self._weights)
        try:
            with self._changed:
                if self._members.why_not(peer.rank, peer.attempt):
                    return  # a later attempt came between admission and here
                older = self._members.joined(peer.rank, peer.attempt, channel)
            if older is not None:
                older.close(0)
            while self._answer(lender):
                pass
            left = True
        except wire.ConnectionLost:
            pass  # noted below: whoever waits for this rank goes on
        except (wire.ProtocolError, ValueError, KeyError, TypeError) as error:
            print("rank %d is cut off: %r" % (peer.rank, error), file=sys.stderr, flush=True)
        finally:
            with self._changed:
                self._members.gone(peer.rank, channel, left)
                self._changed.notify_all()
            lender.end()
            channel.close()

    def _answer(self, lender):
        """One request; False when it was the last. What breaks the protocol raises, and ends the connection."""
        channel = lender.channel
        kind, body = channel.recv(protocol.HEADER_LIMIT_BYTES)
        header = json.loads(bytes(body).decode("utf-8"))
        if kind == protocol.LEAVE:
            channel.send_json(protocol.REPLY, {})
            return False
        lender.hear(header["memory"])
        try:
            reply, vectors = self._handlers[kind](lender, header)
        except Refusal as refusal:
            refused = {"kind": refusal.kind, "rank": refusal.rank, "message": str(refusal)}
            channel.send_json(protocol.REFUSED, refused)
            return True
        lender.answer(reply, vectors)
        return True

    def _fit(self, rank, number):
        if number not in self._fits:
            raise Refusal("usage", rank, "rank %d asks about fit %d, which is not there" % (rank, number))
        return self._fits[number]

    def _wait(self, lender, ready):
        """The first true value of `ready()`, which is called under the lock. Tells the rank meanwhile that we live."""
        while True:
            with self._changed:
                value = self._changed.wait_for(ready, self._alive_seconds)
            if value:
                return value
            lender.channel.send(protocol.ALIVE, b"{}")

    def _begin(self, lender, header):
        rank, number = lender.rank, header["fit"]
        if header["initial"]:
            initial = lender.vector(header)
            _check_finite(rank, initial, "initial weights")
            with self._changed:
                self._start(rank, number, initial, header["rate"])
        fit = self._wait(lender, lambda: self._fits.get(number) or self._need_chief("the weights of fit %d" % number))
        with self._changed:
            fit.check(rank, header["dtype"], header["size"])
            room = lender.lend(header["dtype"], header["size"])
            return {"version": fit.version, "epoch": fit.epoch, "room": room}, [fit.centre]

    def _start(self, rank, number, initial, rate):
        if rank != CHIEF:
            raise Refusal("usage", rank, "rank %d brings initial weights: only rank 0 may" % rank)
        if self._fits and number < max(self._fits):
            raise Refusal("usage", rank, "fit %d is over: fit %d has begun" % (number, max(self._fits)))
        self._members.fit_begins()
        if number not in self._fits:  # else rank 0 has connected again: what was learnt is kept
            self._fits[number] = Fit(rules.get(self._rule, self._size, rate), initial)
            for old in sorted(self._fits)[:-FITS_KEPT]:
                del self._fits[old]
        self._changed.notify_all()

    def _need_chief(self, what):
        """None while rank 0 may still bring `what`; raises when it cannot."""
        if CHIEF not in self._members.awaited():
            raise Refusal("lost", CHIEF, "rank 0 has ended or died before it brought %s" % what)

    def _pull(self, lender, header):
        with self._changed:
            fit = self._fit(lender.rank, header["fit"])
            return {"version": fit.version}, [] if header["known"] == fit.version else [fit.centre]

    def _commit(self, lender, header):
        rank, attempt = lender.rank, lender.attempt
        delta = lender.vector(header)
        _check_finite(rank, delta, "update %d" % header["seq"])
        with self._changed:
            fit = self._fit(rank, header["fit"])
            staleness = fit.commit(rank, attempt, header["seq"], delta, header["version"], header["late"])
            reply, vectors = {"version": fit.version, "staleness": staleness}, [fit.centre] if header["want"] else []
        reply["room"] = lender.lend(header["dtype"], header["size"])
        return reply, vectors

    def _epoch_end(self, lender, header):
        rank, epoch = lender.rank, header["epoch"]
        sums, means = (
            protocol.recv_vector(lender.channel, protocol.new_vector(self._small, "float64", header[name]))
            for name in ("sums", "means")
        )
        with self._changed:
            fit = self._fit(rank, header["fit"])
            fit.arrive(epoch, rank, sums, means, header["stop"])
            self._changed.notify_all()
        end = self._wait(lender, lambda: fit.ended(epoch, self._members.awaited()))
        with self._changed:
            centre = fit.centre if end.centre is None else end.centre
            return {"version": end.version, "stop": end.stop}, [end.sums, end.means, centre]

    def _share(self, lender, header):
        rank, tag, value = lender.rank, header["tag"], header["value"]
        with self._changed:
            fit = self._fit(rank, header["fit"])
            if value is not None and rank != CHIEF:
                raise Refusal("usage", rank, "rank %d shares %r: only rank 0 may" % (rank, tag))
            if rank == CHIEF:  # null too is a value then: it must not wait for itself
                fit.shared[tag] = value
                self._changed.notify_all()
        found = self._wait(lender, lambda: [fit.shared[tag]] if tag in fit.shared else self._need_chief("%r" % (tag,)))
        return {"value": found[0]}, []


def _check_finite(rank, vector, what):
    blocks = (vector[begin : begin + _BLOCK] for begin in range(0, vector.size, _BLOCK))
    if not all(np.isfinite(block).all() for block in blocks):
        raise Refusal("nonfinite", rank, "rank %d's %s is not finite (NaN or infinity)" % (rank, what))


def _die_with_parent():
    """Have the kernel end this process with the thread that started it: a run's, which lives as long as the run."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def main():
    _die_with_parent()
    config = json.loads(sys.stdin.readline())
    # Whoever reads our stdout waits for one line: what libraries print goes elsewhere.
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
