"""What a cell may print: bytes that are no UTF-8, NUL, escape sequences, megabytes without the end of a line."""

import json
import sys

import pytest
from hypothesis import strategies as st
from support.bad_input import TEXTS, each, tried

from ddl_magics.dashboard.loglines import LogTail
from ddl_magics.runtime.driver.event_log import MAX_TEXT_CHARACTERS, EventLog
from ddl_magics.runtime.executor import supervisor

from .test_output import relayed


@pytest.fixture
def printed(monkeypatch):
    """`printed(blocks)`: the texts of the events that a supervisor makes of these blocks of a rank's output."""
    monkeypatch.setattr(supervisor, "LOG_FLUSH_SECONDS", 0.0)

    def read(blocks):
        def write(file):
            for block in blocks:
                while block:
                    block = block[file.write(block) :]

        log = EventLog("a")
        for event in relayed(write, 2**40, "stdout"):
            log.append(json.loads(json.dumps(event, ensure_ascii=False).encode()), 1)
        return [json.loads(text)["text"] for text in log.read(0, sys.maxsize)[0]]

    return read


BLOCKS = st.lists(
    st.binary(max_size=60)
    | TEXTS.map(lambda text: text.encode(errors="surrogatepass"))
    | st.sampled_from(
        [b"\n", b"\r", b"\r\n", b"50%\r", b"\x80" * 70_000, "é".encode() * 50_000, b"\xf0\x9f", b"x" * 65_536]
    ),
    max_size=6,
)


@tried(60, 4000)
def test_any_bytes_arrive_as_text(printed, count):
    def check(blocks):
        texts = printed(blocks)
        data = b"".join(blocks)
        assert all(len(text) <= MAX_TEXT_CHARACTERS for text in texts)
        "".join(texts).encode()
        if b"\r" not in data:
            assert "".join(texts) == data.decode(errors="replace")
        tail = LogTail(2)
        for text in texts:
            tail.add(0, "out", text)
        assert all("\x1b" not in line.text and "\0" not in line.text for line in tail.newest(1000))

    each(BLOCKS, count, check)


def test_ten_megabytes_without_the_end_of_a_line_arrive_whole(printed):
    """No character is cut in two where the text is cut."""
    line = "aé名👩" * 1_000_000
    assert "".join(printed([line.encode()])) == line
