"""What a rank's connection brings to the driver: each message once, files when they are complete, no nonsense."""

import contextlib
import errno
import hashlib
import json

import pytest

from ddl_magics.runtime.driver import rank_messages
from ddl_magics.runtime.rank_end import Failure, RankEnd
from ddl_magics.runtime.transport import messages, wire


class Channel:
    """Brings frames, then loses its peer."""

    def __init__(self, *frames):
        self.frames = list(frames)

    def recv(self, limit):
        if not self.frames:
            raise wire.ConnectionLost("gone")
        kind, value = self.frames.pop(0)
        return kind, value if isinstance(value, bytes) else json.dumps(value).encode()


class Listener:
    def __init__(self, folder):
        self.folder, self.got = folder, []

    def __getattr__(self, name):
        if not name.startswith("on_"):
            raise AttributeError(name)
        return lambda *arguments: self.got.append((name, *arguments))

    def new_path(self):
        return str(self.folder / f"file {len(list(self.folder.iterdir()))}")


def received(folder, *frames):
    listener = Listener(folder)
    rank_messages.receive(1, Channel(*frames), listener, contextlib.nullcontext)
    return listener.got


def header(data, name="model.keras"):
    return {"name": name, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def test_messages_arrive_in_order_and_parsed(tmp_path):
    failure = Failure(1, "h", "error", "ZeroDivisionError: x", "Traceback")
    frames = [
        (messages.EVENTS, [{"kind": "log"}, {"kind": "fit"}]),
        (messages.RANK_READY, {"address": ["h", 7]}),
        (messages.RANK_ENDED, RankEnd("failed", failure).to_json()),
    ]
    assert received(tmp_path, *frames) == [
        ("on_event", 1, {"kind": "log"}),
        ("on_event", 1, {"kind": "fit"}),
        ("on_ready", 1, ("h", 7)),
        ("on_end", 1, RankEnd("failed", failure)),
    ]


def test_a_file_and_a_checkpoint_may_be_on_their_way_at_once(tmp_path):
    model, checkpoint = b"model", b"point"
    frames = [
        (messages.ARTIFACT, header(model)),
        (messages.CHUNK, model[:2]),
        (messages.CHECKPOINT, header(checkpoint, "checkpoint-0.npz")),
        (messages.PIECE, checkpoint),
        (messages.CHUNK, model[2:]),
    ]
    got = received(tmp_path, *frames)
    assert [name for name, _ in got] == ["on_checkpoint", "on_artifact"]
    for (_, file), data in zip(got, (checkpoint, model), strict=True):
        with open(file.path, "rb") as stored:
            assert stored.read() == data


@pytest.mark.parametrize(
    "frame",
    [
        (messages.RANK_ENDED, {"outcome": "vanished", "failure": None}),
        (messages.RANK_ENDED, {"outcome": "failed", "failure": {"message": "m"}}),
        (messages.RANK_ENDED, []),
        (messages.RANK_READY, {}),
        (messages.EVENTS, 7),
        (messages.EVENTS, [7]),
        (messages.CHUNK, b"of nothing"),
        (messages.ARTIFACT, {"name": "model.keras", "size": None, "sha256": ""}),
        (messages.EVENTS, b"\xff"),
    ],
)
def test_what_breaks_the_protocol_ends_the_connection(tmp_path, frame):
    assert received(tmp_path, frame, (messages.RANK_READY, {"address": None})) == []


def test_a_part_of_a_file_is_deleted_with_its_connection(tmp_path):
    assert received(tmp_path, (messages.ARTIFACT, header(b"model")), (messages.CHUNK, b"mo")) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "announcement, piece", [(messages.ARTIFACT, messages.CHUNK), (messages.CHECKPOINT, messages.PIECE)]
)
def test_a_file_for_which_the_disk_has_no_room_costs_no_more_than_the_file(tmp_path, monkeypatch, announcement, piece):
    """/dev/full is writable, and has no room."""
    monkeypatch.setattr(Listener, "new_path", lambda self: str(tmp_path / "full"))
    (tmp_path / "full").symlink_to("/dev/full")
    data = bytes(100_000)
    frames = [(announcement, header(data)), (piece, data[:70_000]), (piece, data[70_000:])]
    (_, file), ready = received(tmp_path, *frames, (messages.RANK_READY, {"address": None}))
    assert file.problem.errno == errno.ENOSPC and ready == ("on_ready", 1, None)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_created_is_no_lost_connection(tmp_path, monkeypatch):
    monkeypatch.setattr(Listener, "new_path", lambda self: str(tmp_path / "missing" / "file"))
    frames = [
        (messages.ARTIFACT, header(b"model")),
        (messages.CHUNK, b"model"),
        (messages.RANK_READY, {"address": None}),
    ]
    (_, file), ready = received(tmp_path, *frames)
    assert file.problem.errno == errno.ENOENT and ready == ("on_ready", 1, None)


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), AttributeError("x"), KeyError("x")]
)
def test_an_error_of_the_driver_is_not_taken_for_the_end_of_the_connection(tmp_path, monkeypatch, error):
    def fail(self, *arguments):
        raise error

    for name, frame in (
        ("on_event", (messages.EVENTS, [{"kind": "log"}])),
        ("on_ready", (messages.RANK_READY, {"address": None})),
        ("on_end", (messages.RANK_ENDED, RankEnd("finished").to_json())),
    ):
        monkeypatch.setattr(Listener, name, fail, raising=False)
        with pytest.raises(type(error)):
            received(tmp_path, frame)
