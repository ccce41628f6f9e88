"""What a rank prints, on its way to the driver: progress bars are one line each."""

import os
import threading

import pytest

from ddl_magics.runtime.executor import supervisor
from ddl_magics.runtime.transport import messages


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        (b"a\nb\n", b"a\nb\n"),
        (b" 10%\r 50%\r100%\nnext", b"100%\nnext"),
        (b"\r 10%\r 50%\r", b" 50%\r"),  # what follows may be a new line
        (b"windows\r\nlines\r\n", b"windows\r\nlines\r\n"),
        (b"1/2 \x08\x08\x08\r2/2 done\n", b"2/2 done\n"),
    ],
)
def test_last_states(printed, shown):
    assert supervisor.last_states(printed) == shown


def relayed(write, most=supervisor.MAX_LOG_BYTES, stream="stderr"):
    """The events that come of what `write(file)` prints, of so many bytes at most."""
    events = []

    def send(kind, value):
        assert kind == messages.EVENTS
        events.extend(value)

    relay = object.__new__(supervisor._Supervisor)
    relay._rank, relay._printed, relay._over = 3, 0, threading.Event()
    relay._may_print, relay._send = most, send
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as source:
        thread = threading.Thread(target=relay._read_output, args=(source, stream))
        thread.start()
        with os.fdopen(writing, "wb", buffering=0) as target:
            write(target)
        thread.join(10)
    return events


@pytest.mark.parametrize(
    "line",
    [
        b"E0000 00:00:1795805979.408406   26453 cuda_platform.cc:52] failed call to cuInit: INTERNAL: CUDA error: x\n",
        b"2023-11-27 19:02:11.1: E tensorflow/compiler/xla/stream_executor/cuda/cuda_driver.cc:268] failed call to "
        b"cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected\n",
    ],
)
def test_a_host_without_a_gpu_is_no_error(line):
    events = relayed(lambda target: target.write(b"before\n" + line + b"after\n"))
    assert "".join(event["text"] for event in events) == "before\nafter\n"


def test_of_many_ranks_all_together_print_a_bounded_text():
    for ranks in (1, 2, 17, 256, 1000):
        of_each = [supervisor.most_printed(rank, ranks) for rank in range(ranks)]
        assert of_each[0] == 2 << 20 and sum(of_each) <= 34 << 20
    assert supervisor.most_printed(15, 16) == 2 << 20


def test_a_bar_of_ten_thousand_steps_is_one_line():
    def write(file):
        for step in range(10_000):
            file.write(b"\rstep %d of 10000 %s" % (step + 1, b"#" * 100))
        file.write(b"\nafter\n")

    text = "".join(event["text"] for event in relayed(write))
    assert text == "step 10000 of 10000 " + "#" * 100 + "\nafter\n"


def test_a_long_bar_is_shown_meanwhile(monkeypatch):
    monkeypatch.setattr(supervisor, "BAR_SECONDS", 0.0)
    shown = threading.Event()

    def write(file):
        file.write(b"\rhalf")
        shown.wait(1.0)
        file.write(b"\rwhole\n")

    assert [event["text"] for event in relayed(write)] == ["half\n", "whole\n"]


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        (b"", 0),
        (b"abc", 3),
        ("é".encode(), 2),
        (b"a\xc3", 1),
        (b"a\xe5\x90", 1),
        (b"\xf0\x9f\x91", 0),
        (b"\x80\x80\x80", 3),
    ],
)
def test_no_character_is_cut_in_two(text, whole):
    assert supervisor.whole_characters(text) == whole
