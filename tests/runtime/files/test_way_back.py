"""From a cell's file to the driver's artifact: a rank without Spark and TensorFlow, in a process of its own."""

import contextlib
import json
import socket
import subprocess
import sys
from types import SimpleNamespace

from support.jobs import job

from ddl_magics.runtime.cell import names
from ddl_magics.runtime.driver import rank_messages
from ddl_magics.runtime.driver.run_files import RunFiles
from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.runtime.transport import wire

RANK = """
import json, socket, sys
from ddl_magics.runtime.cell import ending, execution
from ddl_magics.runtime.rank.config import RankConfig
from ddl_magics.runtime.rank.rank import Rank
from ddl_magics.runtime.transport import wire
channel = wire.Channel(socket.socket(fileno=int(sys.argv[1])), wire.Identity("supervisor", -1, 0))
rank = Rank(RankConfig.from_json(json.loads(sys.stdin.read())), channel)
end = ending.observe(lambda: execution.run(rank), rank)
rank.reporter.send_end(end)
channel.close()
"""

CELL = """
import os
open("empty", "w").close()
open("large", "wb").write(b"x" * 3_000_000)
open("old.txt", "a").write(" and new")
os.makedirs("logs/train")
open("logs/train/events", "w").write("events")

class Table:
    def _repr_html_(self):
        return "<table></table>"

display(Table())
raise ValueError("a cell that fails leaves what it has written")
"""


def test_files_reach_the_driver_also_of_a_cell_that_fails(tmp_path):
    notebook, scratch = tmp_path / "notebook", tmp_path / "scratch"
    notebook.mkdir()
    scratch.mkdir()
    (notebook / "old.txt").write_text("old")
    (scratch / "names.pkl").write_bytes(names.pack(CELL, {}, {}))
    spec = RunSpec(cell=CELL, strategy="single", seed=1, folder=str(notebook))
    config = job(spec).of_rank(0, "h", str(scratch))
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-c", RANK, str(theirs.fileno())]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[theirs.fileno()], text=True)
    theirs.close()
    process.stdin.write(json.dumps(config.to_json()))
    process.stdin.close()

    reported, ends = [], []
    files = RunFiles(RunSpec(run="r", out="hdfs:///out"), SimpleNamespace(report=reported.append))
    listener = SimpleNamespace(
        new_path=files.new_path,
        on_artifact=files.keep,
        on_event=lambda rank, event: reported.append(event),
        on_end=lambda rank, end: ends.append(end),
    )
    channel = wire.Channel(ours, wire.Identity("rank", 0, 0))
    rank_messages.receive(0, channel, listener, contextlib.nullcontext)
    assert process.wait(10) == 0
    (end,) = ends
    assert end.failure.message == "ValueError: a cell that fails leaves what it has written"
    sizes = {event["name"]: event["size"] for event in reported if event["kind"] == "file"}
    assert sizes == {"empty": 0, "large": 3_000_000, "logs/train/events": 6, "old.txt": 11}
    for name, content in (("large", b"x" * 3_000_000), ("old.txt", b"old and new"), ("empty", b"")):
        with open(files.artifacts["files/" + name].path, "rb") as file:
            assert file.read() == content
    assert [(e["kind"], e["data"]) for e in reported if e["kind"] == "picture"] == [("picture", "<table></table>")]
    assert [path.name for path in notebook.iterdir()] == ["old.txt"] and (notebook / "old.txt").read_text() == "old"
    files.remove()
