"""The log of requests: whole files under final names, nothing lost by a kill, nothing that is no JSON."""

import io
import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from support.until import until

from ddl_magics.serving import request_log
from ddl_magics.serving.request_log import FolderLog, encode, open_log


def _record(number=1, **fields):
    base = {"time": 1.5, "id": str(number), "model": "my-digits", "version": "3", "rows": 1}
    base |= {"inputs": {"x": np.float32([[1, 2]])}, "outputs": {"y": [[0.5]]}, "latency": 0.25, "error": None}
    return base | fields


def _lines(folder):
    return [json.loads(line) for path in sorted(folder.glob("[!.]*.jsonl")) for line in path.read_text().splitlines()]


def test_a_line_has_lists_for_arrays_and_null_for_what_is_not_finite():
    line = json.loads(encode(_record(inputs={"x": np.float32([[1, np.nan], [np.inf, 2]]), "t": [b"a\xff"]})))
    assert line["inputs"] == {"x": [[1.0, None], [None, 2.0]], "t": ["a\ufffd"]}
    assert json.loads(encode(_record(inputs=None)))["inputs"] is None


def test_a_file_has_its_name_only_when_it_is_complete(tmp_path):
    log = open_log(tmp_path.as_uri())
    for number in range(100):
        log.write(_record(number))
    until(lambda: sum(path.stat().st_size for path in tmp_path.glob(".my-digits*")) > 0, 10)
    assert not list(tmp_path.glob("[!.]*"))
    log.close()
    (path,) = tmp_path.iterdir()
    assert path.name == f"my-digits-3-{socket.gethostname()}-{os.getpid()}-1.jsonl"
    assert [line["id"] for line in _lines(tmp_path)] == [str(number) for number in range(100)]
    assert log.dropped == 0


def test_files_end_by_size_by_age_and_with_their_version(tmp_path, monkeypatch):
    monkeypatch.setattr(request_log, "ROTATE_BYTES", 1000)
    monkeypatch.setattr(request_log, "FLUSH_SECONDS", 0.05)
    log = FolderLog(tmp_path, rotate_seconds=0.2)
    for number in range(20):
        log.write(_record(number, version=str(number % 2)))
    until(lambda: len(_lines(tmp_path)) == 20, 10)  # without a further record
    log.close()
    assert all(path.stat().st_size < 1300 for path in tmp_path.iterdir())
    assert len(list(tmp_path.glob("my-digits-0-*"))) > 1
    assert sorted(int(line["id"]) for line in _lines(tmp_path)) == list(range(20))


def test_what_a_killed_server_has_left_is_completed(tmp_path):
    program = (
        "import sys, time; from ddl_magics.serving.request_log import FolderLog\n"
        "log = FolderLog(__import__('pathlib').Path(sys.argv[1]))\n"
        f"for i in range(50): log.write({_record(inputs=None)!r})\n"
        "time.sleep(60)"
    )
    server = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)])
    until(lambda: any(path.read_bytes().count(b"\n") == 50 for path in tmp_path.glob(".*")), 20)
    server.kill()
    server.wait()
    (growing,) = tmp_path.iterdir()
    with open(growing, "ab") as file:
        file.write(b'{"time": 1.0, "id"')
    of_another_host = tmp_path / f".my-digits-3-elsewhere-{server.pid}-1.jsonl"
    of_a_live_one = tmp_path / f".my-digits-3-{socket.gethostname()}-{server.pid}-7.jsonl"
    of_another_host.write_text("{}\n")
    live = request_log._GrowingFile(of_a_live_one.with_name(of_a_live_one.name[1:]))
    FolderLog(tmp_path).close()
    assert len(_lines(tmp_path)) == 50
    assert of_another_host.exists() and of_a_live_one.exists() and not growing.exists()
    live.complete()


def test_the_log_of_a_killed_server_with_the_same_number_is_completed_and_not_written_over(tmp_path):
    """In containers the next server has the host's name and the number of the last one."""
    left = tmp_path / f".my-digits-3-{socket.gethostname()}-{os.getpid()}-1.jsonl"
    left.write_text(json.dumps(_record("before", inputs=None, outputs=None)) + "\n")
    log = FolderLog(tmp_path)
    log.write(_record("after"))
    log.close()
    assert sorted(line["id"] for line in _lines(tmp_path)) == ["after", "before"]
    # One that cannot be completed is not written over either.
    number = 1 + max(int(path.stem.rpartition("-")[2]) for path in tmp_path.glob("*.jsonl"))
    held = request_log._GrowingFile(tmp_path / f"my-digits-3-{socket.gethostname()}-{os.getpid()}-{number}.jsonl")
    held.append(b'{"id": "held"}\n')
    log = FolderLog(tmp_path)
    log.write(_record("last"))
    log.close()
    held.complete()
    assert {line["id"] for line in _lines(tmp_path)} == {"after", "before", "held", "last"} and log.dropped == 0


def test_what_another_user_may_put_into_a_shared_log_stops_no_server(tmp_path):
    names = [f".m-1-{socket.gethostname()}-1-{number}.jsonl" for number in range(3)]
    os.mkfifo(tmp_path / names[0])
    (secret := tmp_path / "secret").write_text("{}\n")
    (tmp_path / names[1]).symlink_to(secret)
    (tmp_path / names[2]).mkdir()
    FolderLog(tmp_path).close()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*names, "secret"])


def test_texts_that_wait_have_a_bound_of_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(request_log, "MAX_WAITING_VALUES", 1000)
    log = FolderLog(tmp_path)
    log.write(_record(1, inputs={"text": np.array([["a" * 10_000]], dtype=object)}))
    log.write(_record(2, inputs={"text": np.array([b"a" * 10_000])}))
    log.close()
    assert log.dropped == 2


def test_no_request_waits_for_a_disk(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(request_log, "MAX_WAITING", 10)
    monkeypatch.setattr(FolderLog, "_settle", lambda self: time.sleep(0.5))
    log = FolderLog(tmp_path)
    for number in range(100):
        log.write(_record(number))
    assert 80 <= log.dropped <= 90
    log.close()


def test_waiting_records_have_a_bound_of_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(request_log, "MAX_WAITING_VALUES", 100)
    log = FolderLog(tmp_path)
    log.write(_record(1, inputs={"x": np.zeros((10, 11))}))
    log.write(_record(2))
    log.close()
    assert log.dropped == 1 and [line["id"] for line in _lines(tmp_path)] == ["2"]


def test_a_full_disk_is_told_and_counted(tmp_path, monkeypatch, capsys):
    """What is there gets its name all the same, and has no half record."""
    full = limited(monkeypatch, 1000)
    log = FolderLog(tmp_path)
    for number in range(20):
        log.write(_record(number))
    log.close()
    logged = [line["id"] for line in _lines(tmp_path)]
    assert full.is_set() and logged == [str(number) for number in range(len(logged))] and 1 < len(logged) < 10
    assert log.dropped == 20 - len(logged) and "No space left" in capsys.readouterr().out


def limited(monkeypatch, size):
    """A disk takes so many bytes of each file. An event that is set once one is full."""
    full = threading.Event()

    class File(io.FileIO):
        def __init__(self, path, mode, buffering):
            super().__init__(path, mode)

        def write(self, data):
            room = size - self.tell()
            if not room:
                full.set()
                raise OSError(28, "No space left on device")
            return super().write(data[:room])

    plain = Path.open
    monkeypatch.setattr(
        Path, "open", lambda path, mode="r", **more: (File if mode == "xb" else plain)(path, mode, **more)
    )
    return full


def test_a_log_is_a_folder_of_this_machine_or_a_topic():
    with pytest.raises(ValueError, match="a folder of this machine or a topic of Kafka, and not in s3a:") as caught:
        open_log("s3a://key:secret@logs")
    assert "secret" not in str(caught.value)


def test_records_go_to_a_topic_and_what_a_broker_refuses_is_counted_soon():
    class Writer:
        """Learns when it is flushed what the broker has refused."""

        sent, refused, dropped = [], 0, 0

        def send(self, key, value):
            self.sent.append((key, json.loads(value)))
            self.refused += key == "2"

        def flush(self, seconds):
            self.dropped, self.refused = self.dropped + self.refused, 0
            return 1 if seconds else 0  # one is left when the server ends

    log = request_log.KafkaLog(Writer())
    for number in (1, 2, 3):
        log.write(_record(number))
    until(lambda: log.dropped == 1, 10)
    log.close()
    assert [(key, record["id"]) for key, record in Writer.sent] == [(number, number) for number in "123"]
    assert log.dropped == 2


def test_on_a_disk_without_locks_a_file_is_nobodys_after_ten_minutes(tmp_path, monkeypatch):
    monkeypatch.setattr(request_log.fcntl, "flock", Mock(side_effect=OSError("no locks")))
    left = tmp_path / f".my-digits-3-{socket.gethostname()}-1-1.jsonl"
    for age, remains in ((590, True), (610, False)):
        left.write_text('{"id": "left"}\n{"half')
        os.utime(left, (time.time() - age, time.time() - age))
        FolderLog(tmp_path).close()
        assert left.exists() is remains
    assert [line["id"] for line in _lines(tmp_path)] == ["left"]
