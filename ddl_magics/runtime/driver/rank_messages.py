"""What the ranks send to the driver: a connection's frames as calls, each payload parsed here and nowhere else."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, ContextManager, Iterator, Protocol

from ..events import RawEvent
from ..rank_end import RankEnd
from ..transport import messages, wire
from ..transport.incoming import IncomingFile

MAX_FRAME_BYTES = messages.CHUNK_BYTES + (1 << 16)

#: What reading a frame raises that is none of the protocol.
_MALFORMED = (ValueError, KeyError, TypeError, AttributeError)


class RankListener(Protocol):
    """What takes the messages of the ranks. Each rank's come from a thread of its own."""

    def on_event(self, rank: int, event: RawEvent) -> None: ...

    def on_ready(self, rank: int, address: wire.Address | None) -> None:
        """The rank waits for its peers, which reach it at `address` if they connect to it at all."""

    def on_regroup(self, rank: int, joins: int | None, welcomes: int | None) -> None:
        """The rank waits for the next group: it joins in this fit, or welcomes ranks that do, or has lost one."""

    def on_group_ready(self, rank: int, group: int, address: wire.Address) -> None:
        """The rank waits for the others of the group of this number, which reach it at `address`."""

    def on_artifact(self, file: IncomingFile) -> None:
        """The file has come: it is complete, or has a `problem`."""

    def on_checkpoint(self, file: IncomingFile) -> None:
        """The file has come. ValueError or KeyError where its header has no position."""

    def on_end(self, rank: int, rank_end: RankEnd) -> None: ...

    def new_path(self) -> str:
        """Where an incoming file may be written."""


def receive(
    rank: int, channel: wire.Channel, listener: RankListener, current: Callable[[], ContextManager[None]]
) -> None:
    """Call the listener for each message of a rank, until its connection ends or breaks the protocol.

    current(): is entered for each frame, and around each call of the listener but `on_ready`, which sends checkpoints.
    It raises ConnectionLost where nothing of this connection is wanted any more. Other exceptions are the listener's.
    """
    incoming: dict[int, IncomingFile] = {}  # by the kind of the frames that carry the file's bytes
    try:
        while True:
            kind, payload = channel.recv(MAX_FRAME_BYTES)
            with current():
                pass  # a frame counts as a sign of life, whatever it brings
            if kind in (messages.CHUNK, messages.PIECE):
                with _reading():
                    complete = incoming[kind].write(payload)
                if complete and kind == messages.CHUNK:
                    with current():
                        listener.on_artifact(incoming.pop(kind))
                elif complete:
                    with current(), _reading():  # of its header
                        listener.on_checkpoint(incoming.pop(kind))
            elif kind == messages.EVENTS:
                with _reading():
                    events = [dict(event) for event in messages.parse(payload)]
                for event in events:
                    with current():
                        listener.on_event(rank, event)
            elif kind == messages.RANK_READY:
                with _reading():
                    address = _address(messages.parse(payload)["address"])
                listener.on_ready(rank, address)
            elif kind == messages.REGROUP:
                with _reading():
                    value = messages.parse(payload)
                    joins = None if value["joins"] is None else int(value["joins"])
                    welcomes = None if value["welcomes"] is None else int(value["welcomes"])
                with current():
                    listener.on_regroup(rank, joins, welcomes)
            elif kind == messages.GROUP_READY:
                with _reading():
                    value = messages.parse(payload)
                    group, address = int(value["group"]), _address(value["address"])
                if address is not None:
                    with current():
                        listener.on_group_ready(rank, group, address)
            elif kind in (messages.ARTIFACT, messages.CHECKPOINT):
                path = listener.new_path()
                with _reading():
                    file = IncomingFile(path, messages.parse(payload))
                incoming[messages.CHUNK if kind == messages.ARTIFACT else messages.PIECE] = file
            elif kind == messages.RANK_ENDED:
                with _reading():
                    rank_end = RankEnd.from_json(messages.parse(payload))
                with current():
                    listener.on_end(rank, rank_end)
    except (wire.ConnectionLost, wire.ProtocolError):
        pass
    finally:
        for file in incoming.values():
            file.abort()


@contextlib.contextmanager
def _reading() -> Iterator[None]:
    try:
        yield
    except _MALFORMED as error:
        raise wire.ProtocolError("a malformed frame: %s" % error) from error


def _address(value: Any) -> wire.Address | None:
    return None if value is None else (str(value[0]), int(value[1]))
