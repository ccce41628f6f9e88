"""What killed servers, and others, have left in the folder of a log, by the thousand: completed, or left as it is."""

import json
import os
import shutil
import socket

import pytest
from support import strangers

from ddl_magics.serving import request_log
from ddl_magics.serving.request_log import FolderLog

HERE = socket.gethostname()
RECORD = {"time": 1.5, "id": "1", "model": "m", "version": "3", "rows": 1, "inputs": {"x": [[1.0]]}, "outputs": None}
RECORD |= {"latency": 0.25, "error": None}


def a_log(chance):
    """The folder of a log: whole files, files of killed servers, and what does not belong there."""
    whole = b"".join(json.dumps({**RECORD, "id": str(number)}).encode() + b"\n" for number in range(5))
    found = {f"m-3-{HERE}-7-1.jsonl": whole, f".m-3-{HERE}-7-2.jsonl": whole[: chance.randrange(len(whole) + 1)]}
    names = [
        f".m-3-{HERE}-{{}}-1.jsonl",
        f".{{}}-3-{HERE}-7-1.jsonl",
        f"m-{{}}-{HERE}-7-1.jsonl",
        ".m-3-{}-7-1.jsonl",
        "{}",
    ]
    for _ in range(chance.choice((1, 2, 4))):
        text = chance.choice([*strangers.TEXTS, "7", "0", "-1", "9" * 30, "²"])[:150].replace("/", "_")
        content = (
            strangers.lines_file([RECORD] * 5, chance) if chance.randrange(3) else strangers.bytes_of(whole, chance)
        )
        found[chance.choice(names).format(text)] = chance.choice(
            [content, content, content, "fifo", "../outside.txt", ".."]
        )
    return found


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(request_log, "FLUSH_SECONDS", 0.001)
    return tmp_path / "log"


@strangers.tried(30, 3000)
def test_the_folder_of_a_log(folder, tmp_path, count):
    def read(made):
        folder.mkdir()
        strangers.unpack(made, folder)
        before = {path.name: path.read_bytes() for path in folder.iterdir() if regular(path)}
        others = {path.name for path in folder.iterdir()} - {*before}
        try:
            log = FolderLog(folder)
            log.write({**RECORD, "id": "new"})
            log.close()
            assert log.dropped == 0
            after = {path.name: path.read_bytes() for path in folder.iterdir() if regular(path)}
            new = [name for name, content in after.items() if b'"id":"new"' in content]
            assert len(new) == 1 and new[0] not in before and not new[0].startswith("."), "in a file of its own"
            assert {path.name for path in folder.iterdir() if not regular(path)} == others
            for name, content in before.items():
                lines = content[: content.rfind(b"\n") + 1]
                kept = after.get(name), after.get(name.removeprefix("."))
                assert content in kept or lines in kept or not lines, f"{name} has lost lines"
            return "completed" if len(after) != len(before) + 1 or {*before} - {*after} else "as it was"
        finally:
            shutil.rmtree(folder)

    strangers.Watch("request logs", folder).each(count, a_log, read)


def regular(path):
    return path.is_file() and not os.path.islink(path)
