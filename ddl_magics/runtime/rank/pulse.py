"""The pulse of a rank: where it is, sent to its supervisor once a second, so that a rank that hangs is noticed.

It is sent by a thread of its own, so it goes on while the cell hangs in Python, in a file system or in a collective. It
stops with the process, and while the interpreter's lock is held.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any, Mapping, NamedTuple

from ..transport import messages, wire

if TYPE_CHECKING:
    from .rank import Rank

SECONDS = 1.0


class Pulse(NamedTuple):
    """Where a rank is. Counters as in `Progress`.

    moves: counts what else is progress: batches of validation, exchanges with other ranks. training: a fit, or a loop
    of the cell's own, is in progress. waiting: for other ranks or for the parameter server.
    """

    fit: int
    epoch: int
    step: int
    moves: int
    training: bool
    waiting: bool

    @classmethod
    def of(cls, rank: Rank) -> Pulse:
        progress, server = rank.progress, rank.server
        waiting = rank.peers.busy or (server is not None and server.busy)
        moves = progress.evaluated + progress.sync_rounds + progress.cell_collectives + progress.exchanges
        moves += progress.row_blocks
        return cls(progress.fit, progress.epoch, progress.step, moves, progress.training, waiting)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Pulse:
        return cls(**value)

    @property
    def where(self) -> str:
        """The last step in words: "after step 12 of epoch 3"."""
        if self.fit < 0:
            return "before its first fit"
        of_fit = " of fit %d" % (self.fit + 1) if self.fit else ""
        if not self.step:
            return "since the beginning of epoch %d%s" % (self.epoch + 1, of_fit)
        return "after step %d of epoch %d%s" % (self.step, self.epoch + 1, of_fit)


def start(rank: Rank, channel: wire.Channel) -> None:
    """Send pulses through the channel to the supervisor, to the end of this process."""
    threading.Thread(target=_run, args=(rank, channel), name="ddl pulse", daemon=True).start()


def _run(rank: Rank, channel: wire.Channel) -> None:
    pause = threading.Event()
    # When the supervisor is gone, the thread that listens to it ends this process.
    with contextlib.suppress(wire.ConnectionLost, OSError):
        while not pause.wait(SECONDS):
            channel.send_json(messages.PULSE, Pulse.of(rank)._asdict())
